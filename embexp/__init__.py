"""Config-driven experiments on embedding tables in TensorFlow.

The public names are those of `__all__`. Those that need TensorFlow or Hydra are imported on first use, so that
`import embexp` is fast.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
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
    from embexp.api import (
        Listener,
        RunResult,
        RunSpec,
        SweepResult,
        compare,
        compose,
        continue_run,
        load_run,
        report,
        resume,
        run,
        spec_of,
        sweep,
        verify,
    )
    from embexp.strategies.simulation.simulator import tpu_simulator
    from embexp.training.freezing.optimizers import freeze

__all__ = [
    "CheckpointError",
    "CommandLineError",
    "ConfigError",
    "DataError",
    "DivergedError",
    "EmbexpError",
    "Fault",
    "Listener",
    "NotARunError",
    "RunError",
    "RunResult",
    "RunSpec",
    "SweepResult",
    "UsageError",
    "VocabularyError",
    "compare",
    "compose",
    "continue_run",
    "freeze",
    "load_run",
    "report",
    "resume",
    "rows",
    "run",
    "spec_of",
    "sweep",
    "tpu_simulator",
    "verify",
]

__version__ = "0.2.0"

_HERE = os.path.dirname(os.path.abspath(__file__))


class _Configs:
    """Finds `embexp.conf`, and nothing else, in a checkout, where it lies next to `embexp`: a `MetaPathFinder`.

    The base class of `importlib.abc` alone would double the time of `embexp --help`.
    """

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(fullname, [os.path.dirname(_HERE)]) if fullname == "embexp.conf" else None


if not os.path.isdir(os.path.join(_HERE, "conf")):  # a wheel has it inside
    sys.meta_path.append(_Configs)

_LATER = {
    "Listener": "embexp.training.listeners",
    "RunResult": "embexp.runs.run",
    "RunSpec": "embexp.specs.run",
    "SweepResult": "embexp.sweeps.sweep",
    "compare": "embexp.api",
    "compose": "embexp.config.composition",
    "continue_run": "embexp.api",
    "freeze": "embexp.training.freezing.optimizers",
    "load_run": "embexp.api",
    "report": "embexp.reports.report",
    "resume": "embexp.api",
    "run": "embexp.api",
    "spec_of": "embexp.config.composition",
    "sweep": "embexp.api",
    "tpu_simulator": "embexp.strategies.simulation.simulator",
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
