"""Studies: several ordinary runs and the comparison of their results."""
