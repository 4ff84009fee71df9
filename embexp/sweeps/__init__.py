"""Several runs with one command: which, one process each, and what they came to."""
