"""From overrides and YAML files to a checked `RunSpec`: composed with Hydra, every error in embexp's own sentences."""
