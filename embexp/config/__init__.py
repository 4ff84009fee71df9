"""From overrides and YAML files to a checked `RunSpec`: composes with Hydra and reports all faults at once."""
