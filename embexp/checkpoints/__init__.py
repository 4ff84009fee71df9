"""Saving and restoring what a run has learned."""
