"""Sweeps: several runs with one command, each in its own process, and the table of their results."""
