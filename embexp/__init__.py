"""Config-driven experiments on embedding tables in TensorFlow."""
