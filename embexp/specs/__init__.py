"""The spec of a run: its pydantic models are both the grammar of the YAML and the domain objects. No TensorFlow."""
