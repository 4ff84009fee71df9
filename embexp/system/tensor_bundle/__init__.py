"""The data files of TensorFlow checkpoints: their index, their rows, and a writer."""
