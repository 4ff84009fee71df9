"""Pretrained values of a run's tables: which table takes which rows of which file."""
