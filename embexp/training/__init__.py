"""The training step and loop, its metrics, and the listeners that show and record them."""
