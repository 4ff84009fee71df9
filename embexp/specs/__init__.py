"""The description of a run: grammar of the YAML and domain objects in one. No TensorFlow, no Hydra."""
