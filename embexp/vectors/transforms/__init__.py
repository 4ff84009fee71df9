"""The rows of a pretrained file, transformed step by step before they become rows of a table."""
