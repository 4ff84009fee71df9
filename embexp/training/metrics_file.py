"""metrics.jsonl: one line per logged step or evaluation."""

from __future__ import annotations

import errno
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from embexp.training.listeners import Listener


class MetricsFile(Listener):
    """Appends lines to a file, each in one write, so that a reader never sees half a line.

    There are three kinds of lines:

        {"event": "log", "step": 100, "loss": 0.61, "timing": {"seconds": 2.5, "examples_per_second": 81920.0}}
        {"event": "evaluation", "step": 100, "split": "validation", "metrics": {"auc": 0.8}, "timing": {"seconds": 2.6}}
        {"event": "drift", "step": 100, "drift": {"item": {"mean": 0.1, "largest": 0.7, …}}, "timing": {"seconds": 2.7}}

    `timing` holds everything that differs between two equal runs: `seconds` since the start, and the throughput or
    null. Numbers that JSON lacks are the strings "NaN", "Infinity" and "-Infinity", which `float()` accepts.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._start = time.monotonic()

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
        self._append({"event": "log", "step": step, "loss": _number(loss)}, examples_per_second=rate)

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

    def _append(self, line: dict[str, Any], **timing: Any) -> None:
        line["timing"] = {"seconds": round(time.monotonic() - self._start, 6), **timing}
        data = (json.dumps(line, allow_nan=False, ensure_ascii=False) + "\n").encode("utf-8")
        handle = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        try:
            if (written := os.write(handle, data)) < len(data):  # a disk that is full takes the beginning of a line
                os.truncate(handle, os.fstat(handle).st_size - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(self._path))
        except OSError as error:
            error.filename = error.filename or os.fspath(self._path)
            raise
        finally:
            os.close(handle)


def _number(value: float) -> float | str:
    value = float(value)
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
