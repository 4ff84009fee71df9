"""The events of a training run, its pace, and the listener that writes metrics.jsonl."""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


class Listener:
    """Receives the events of a training run. Subclasses override the ones they need.

    Events come in this order: started; resumed, if a checkpoint is continued; any number of progressed, paced, logged,
    evaluated, reset and warned; ended. `ended` also comes after an error, so that a listener can close files and
    restore the terminal.
    """

    stop_status: str | None = None
    """If `evaluated` sets it, training ends after this evaluation with this status."""

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Training begins; it takes `total_steps` steps unless it ends early."""

    def resumed(self, step: int) -> None:
        """Training continues after `step` steps, which an earlier process ran."""

    def progressed(self, step: int) -> None:
        """`step` steps are done. Comes several times a second."""

    def paced(self, pace: Pace) -> None:
        """The training speed; comes after each `progressed`."""

    def working(self, stage: str, done: float | None) -> None:
        """Work between two steps takes seconds, such as an evaluation; this fraction (0 to 1) is done."""

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """`loss` is the mean training loss since the last log event; the rate is None if nothing could be timed."""

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """The `metrics` of a split (train, validation, test) after `step` steps."""

    def drifted(self, step: int, drift: Mapping[str, Mapping[str, float | None]]) -> None:
        """How far each table's pretrained rows are from their file after `step` steps; once more after `ended`."""

    def reset(self, step: int, rows: Mapping[str, int]) -> None:
        """After `step` steps, this many rows of each table were reset to their initial values."""

    def warned(self, sentence: str) -> None:
        """Something went wrong that does not end the training, such as a checkpoint that can't be written."""

    def ended(self, status: str) -> None:
        """Training has ended; `status` is completed, stopped_early, pruned, interrupted or failed."""


@dataclass(frozen=True)
class Pace:
    """The pace of a training after some of its steps.

    Attributes:
        loss: mean over the steps since the last log event; None: there were none since.
        steps_per_second: over all timed steps of this process, without the first call, which traces, and without
            evaluations; None: none was timed yet.
        seconds_left: until the last step, with evaluations at the duration of the latest one; None: not known yet.
        untimed_evaluations: how many evaluations come that `seconds_left` lacks, as none was timed yet.
    """

    step: int
    loss: float | None = None
    steps_per_second: float | None = None
    seconds_left: float | None = None
    untimed_evaluations: int = 0


@dataclass
class Pacing:
    """Measures the pace of a training.

    Attributes:
        steps: that were timed.
        seconds: that these took.
        evaluation_seconds: that the latest evaluation took; None: there was none.
    """

    steps: int = 0
    seconds: float = 0.0
    evaluation_seconds: float | None = None

    def timed(self, steps: int, seconds: float) -> None:
        """Some steps took so long."""
        self.steps += steps
        self.seconds += seconds

    def pace(self, step: int, *, loss: float | None, steps_left: int, evaluations_left: int) -> Pace:
        """The pace after `step` steps, with that much to be done."""
        if not self.steps or self.seconds <= 0:
            return Pace(step, loss)
        each = self.evaluation_seconds
        return Pace(
            step,
            loss,
            self.steps / self.seconds,
            steps_left * self.seconds / self.steps + evaluations_left * (each or 0.0),
            evaluations_left if each is None else 0,
        )


class MetricsFile(Listener):
    """Appends lines to a file, each in one write, so that a reader never sees half a line.

    There are four kinds of lines:

        {"event": "log", "step": 100, "loss": 0.61, "timing": {"seconds": 2.5, "examples_per_second": 81920.0}}
        {"event": "evaluation", "step": 100, "split": "validation", "metrics": {"auc": 0.8}, "timing": {"seconds": 2.6}}
        {"event": "drift", "step": 100, "drift": {"item": {"mean": 0.1, "largest": 0.7, …}}, "timing": {"seconds": 2.7}}
        {"event": "reset", "step": 100, "rows": {"item": 80}, "timing": {"seconds": 2.8}}

    `timing` holds everything that differs between two equal runs: `seconds` since the start, the throughput or null,
    and what `of_time` returns. Numbers that JSON lacks are the strings "NaN", "Infinity" and "-Infinity", which
    `float()` accepts.

    Lines for which the disk has no room wait for the next one, for `waiting` or for `flush`.
    """

    def __init__(
        self,
        path: Path,
        of_time: Callable[[], Mapping[str, Any]] = dict,
        full: Callable[[OSError], object] | None = None,
    ) -> None:
        """Writes nothing yet.

        Args:
            full: called when a line can't be written; raises the error, unless the line may wait. None: it is raised.
        """
        self._path, self._of_time, self._full = path, of_time, full
        self._start = time.monotonic()
        self._waiting = b""

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Creates the file, or removes the partial line that a killed run left at its end."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a+b") as file:
            file.seek(0)
            content = file.read()
            file.truncate(content.rfind(b"\n") + 1)
        self._start = time.monotonic()

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Appends a "log" line."""
        rate = None if examples_per_second is None else _number(examples_per_second)
        self._append({"event": "log", "step": step, "loss": _number(loss)}, examples_per_second=rate, **self._of_time())

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Appends an "evaluation" line."""
        numbers = {name: _number(value) for name, value in metrics.items()}
        self._append({"event": "evaluation", "step": step, "split": split, "metrics": numbers})

    def drifted(self, step: int, drift: Mapping[str, Mapping[str, float | None]]) -> None:
        """Appends a "drift" line: by table, how far rows are from their pretrained values."""
        numbers = {
            table: {
                key: value if value is None or isinstance(value, int) else _number(value) for key, value in each.items()
            }
            for table, each in drift.items()
        }
        self._append({"event": "drift", "step": step, "drift": numbers})

    def reset(self, step: int, rows: Mapping[str, int]) -> None:
        """Appends a "reset" line: how many rows of each table started again."""
        self._append({"event": "reset", "step": step, "rows": dict(rows)})

    def _append(self, line: dict[str, Any], **timing: Any) -> None:
        line["timing"] = {"seconds": round(time.monotonic() - self._start, 6), **timing}
        is_late = bool(self._waiting)
        self._waiting += (json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n").encode("utf-8")
        try:
            self.flush()
        except OSError as error:
            if self._full is None:
                raise
            if not is_late:
                self._full(error)

    def waiting(self) -> str:
        """The lines that wait and still can't be written."""
        with contextlib.suppress(OSError):
            self.flush()
        return self._waiting.decode("utf-8")

    def flush(self) -> None:
        """Writes the lines that wait.

        Raises:
            OSError: they can't be written, and go on waiting.
        """
        data = self._waiting
        if not data:
            return
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        written = 0
        try:
            while written < len(data):  # a disk that is full takes the beginning of a line, and then nothing
                written += os.write(handle, data[written:])
        except OSError as error:
            os.truncate(handle, os.fstat(handle).st_size - written)
            error.filename = error.filename or os.fspath(self._path)
            raise
        finally:
            os.close(handle)
        self._waiting = b""


def _number(value: float) -> float | str:
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
