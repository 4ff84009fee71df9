"""How far a job is, in a small file of its directory that its sweep reads."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from embexp.training.listeners import Listener

NAME = ".progress.json"
_INTERVAL = 0.2
"""Least seconds between two writes."""
_BYTES = 256
"""Size of the file. One write of so few bytes can't be seen in part."""


@dataclass(frozen=True)
class Reached:
    """How far a job is.

    Attributes:
        stage: what it does, such as "training".
        step: steps done.
        total: steps of the whole training; 0 while that is unknown.
        rate: steps per second so far in this process; 0 while that is unknown.
    """

    stage: str
    step: int = 0
    total: int = 0
    rate: float = 0.0


class ProgressFile(Listener):
    """Writes how far a run is; also a progress callback for the stages before and after training."""

    def __init__(self, directory: Path) -> None:
        self._handle = os.open(directory / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._reached = Reached("starting")
        self._first = 0
        self._began = self._written = 0.0

    def __call__(self, stage: str, done: float | None) -> None:
        """Writes the stage."""
        self._write(Reached(stage), now=stage != self._reached.stage)

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Writes that the training begins."""
        self._began, self._first = time.monotonic(), 0
        self._write(Reached("training", 0, total_steps), now=True)

    def resumed(self, step: int) -> None:
        """Counts from where an earlier process ended."""
        self._first = step
        self.progressed(step)

    def progressed(self, step: int) -> None:
        """Writes the step, a few times a second."""
        seconds = time.monotonic() - self._began
        rate = (step - self._first) / seconds if seconds else 0.0
        self._write(Reached("training", step, self._reached.total, rate), now=step == self._reached.total)

    def _write(self, reached: Reached, *, now: bool) -> None:
        self._reached = reached
        if now or time.monotonic() - self._written > _INTERVAL:
            self._written = time.monotonic()
            with contextlib.suppress(OSError):  # a full disk ends no training on account of its progress
                os.pwrite(self._handle, json.dumps(asdict(reached)).encode()[:_BYTES].ljust(_BYTES), 0)


def read(directory: Path) -> Reached | None:
    """How far the job in a directory is; None where that is unknown."""
    try:
        return Reached(**json.loads((directory / NAME).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
