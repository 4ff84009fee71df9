"""From freeze policies to a small group number per row, and a multiplier of the learning rate per group over time."""
