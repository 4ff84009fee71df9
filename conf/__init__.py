"""The YAML files of embexp, as `pkg://embexp.conf` for Hydra."""
