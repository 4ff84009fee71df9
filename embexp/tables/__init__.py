"""Embedding tables as variables: lookup, row updates, optimizers, and the same graph as TensorFlow's own objects."""
