"""Checkpoints: everything that a run has learned, saved and restored."""
