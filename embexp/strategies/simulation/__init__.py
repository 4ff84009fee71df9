"""A simulated TPU: TensorFlow's own TPU code, its TPU operations served by the row engine."""
