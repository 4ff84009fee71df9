"""A TPU that isn't there: TensorFlow's own TPU code, its TPU operations served by the row engine."""
