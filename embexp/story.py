"""The story of a run on one page: each stage is a call that returns a value which the next one takes."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embexp import assembly, cache, identity, manifest
from embexp.checkpoints import store
from embexp.data import batches as data_batches
from embexp.data.scan import Scan, scan
from embexp.errors import RunError
from embexp.folder import RunFolder
from embexp.memory import PeakMemory
from embexp.reports import plots
from embexp.runtimes.function import FunctionRuntime
from embexp.specs.run import RunSpec
from embexp.strategies import cpu
from embexp.training import loop, metrics
from embexp.training.early_stopping import EarlyStopping
from embexp.training.interruption import tidy_interruption
from embexp.training.listeners import Listener
from embexp.training.metrics_file import MetricsFile
from embexp.training.tensorboard import TensorBoard


@dataclass(frozen=True)
class RunResult:
    """A run that has ended: where it lies and what it came to."""

    directory: Path
    summary: Mapping[str, Any]

    @property
    def status(self) -> str:
        """completed, stopped_early or interrupted."""
        return str(self.summary["status"])


def run(spec: RunSpec, directory: Path, *, listeners: Sequence[Listener] = ()) -> RunResult:
    """Runs an experiment from its spec to its summary.

    Args:
        spec: what the user asked for.
        directory: an existing directory that is this run's own.
        listeners: are told of progress, beside those that write the run's files.

    Raises:
        RunError: the data, a file or the machine is not as it must be.
    """
    folder = RunFolder(directory)
    folder.write_spec(spec)
