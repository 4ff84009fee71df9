"""The training step and loop, its metrics, the listeners that show and record them, and which rows are trained when."""
