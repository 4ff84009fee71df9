"""Config-driven experiments on embedding tables in TensorFlow.

The public names are those of `__all__`. Those that need TensorFlow or Hydra are imported on first use, so that
`import embexp` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from embexp.errors import (
    CheckpointError,
    CommandLineError,
    ConfigError,
    DataError,
    DivergedError,
    EmbexpError,
    Fault,
    NotARunError,
    RunError,
    UsageError,
    VocabularyError,
)

if TYPE_CHECKING:
    from embexp import rows
    from embexp.api import resume, run, verify
    from embexp.config.composition import compose
    from embexp.reports.tabulate import report
    from embexp.runs.finished import load_run
    from embexp.runs.run import RunResult
    from embexp.simulation.simulator import tpu_simulator
    from embexp.specs.run import RunSpec

__all__ = [
    "CheckpointError",
    "CommandLineError",
    "ConfigError",
    "DataError",
    "DivergedError",
    "EmbexpError",
    "Fault",
    "NotARunError",
    "RunError",
    "RunResult",
    "RunSpec",
    "UsageError",
    "VocabularyError",
    "compose",
    "load_run",
    "report",
    "resume",
    "rows",
    "run",
    "tpu_simulator",
    "verify",
]

__version__ = "0.1.0"

_LATER = {
    "RunResult": "embexp.runs.run",
    "RunSpec": "embexp.specs.run",
    "compose": "embexp.config.composition",
    "load_run": "embexp.runs.finished",
    "report": "embexp.reports.tabulate",
    "resume": "embexp.api",
    "run": "embexp.api",
    "tpu_simulator": "embexp.simulation.simulator",
    "verify": "embexp.api",
}


_MODULES = {"rows"}


def __getattr__(name: str) -> Any:
    """Imports a public name's module when the name is first used."""
    if name in _MODULES:
        return importlib.import_module(f"embexp.{name}")
    if name in _LATER:
        return getattr(importlib.import_module(_LATER[name]), name)
    raise AttributeError(f"module 'embexp' has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, imported or not."""
    return sorted({*globals(), *__all__})
