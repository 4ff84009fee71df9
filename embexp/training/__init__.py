"""The training loop and what listens to it."""
