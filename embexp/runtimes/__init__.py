"""Ways to execute the step, one module each."""
