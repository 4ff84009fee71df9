"""The packages of launchers of others."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from hydra.core.override_parser.types import Override

from embexp.errors import CommandLineError

_PACKAGES = {
    "submitit_local": "hydra-submitit-launcher",
    "submitit_slurm": "hydra-submitit-launcher",
    "ray": "hydra-ray-launcher",
    "joblib": "hydra-joblib-launcher",
}
"""The packages of known launchers."""


def require_package(overrides: Sequence[Override]) -> None:
    """Makes sure that a launcher that is chosen on the command line is installed.

    Raises:
        CommandLineError: it is not.
    """
    chosen = [str(each.value()) for each in overrides if each.key_or_group == "hydra/launcher"]
    package = _PACKAGES.get(chosen[-1]) if chosen else None
    if package is not None and importlib.util.find_spec(f"hydra_plugins.{package.replace('-', '_')}") is None:
        rule = f"hydra/launcher={chosen[-1]} needs the package {package}, which is not installed"
        raise CommandLineError(f"{rule}\n    pip install {package}")
