"""Places to run, one module each."""
