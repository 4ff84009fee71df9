"""What a finished run is for other programs: a model that TensorFlow serves, and lists of the best items."""
