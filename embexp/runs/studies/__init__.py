"""Studies: several runs and their comparison."""
