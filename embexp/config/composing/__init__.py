"""Composes YAML files and overrides with Hydra."""
