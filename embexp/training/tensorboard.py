"""TensorBoard events: one writer per split, so that the curves of all splits share a chart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.training.listeners import Listener


class TensorBoard(Listener):
    """Writes scalars: `loss`, `examples_per_second` and drift under train/, metrics under the name of their split.

    The first event creates the directory.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writers: dict[str, Any] = {}
        self._ended = False

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Writes the loss and the throughput."""
        rate = {} if examples_per_second is None else {"examples_per_second": examples_per_second}
        self._write("train", step, {"loss": loss, **rate})

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Writes the metrics of a split."""
        self._write(split, step, metrics)

    def drifted(self, step: int, drift: Mapping[str, Mapping[str, float | None]]) -> None:
        """Writes how far each table's rows are from their pretrained values; allowed after `ended` too."""
        scalars = {
            f"drift/{table}/{key}": value
            for table, each in drift.items()
            for key in ("mean", "largest", "relative")
            if (value := each[key]) is not None
        }
        self._write("train", step, scalars)
        if self._ended:
            self.ended("")

    def ended(self, status: str) -> None:
        """Closes the files."""
        self._ended = True
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _write(self, split: str, step: int, values: Mapping[str, float]) -> None:
        writer = self._writers.get(split)
        if writer is None:
            writer = self._writers[split] = tf.summary.create_file_writer(str(self._directory / split))
        # Leaving the block flushes, so that a running TensorBoard sees every point and a killed run keeps it.
        with writer.as_default(step=step):
            for name, value in values.items():
                # TensorBoard stores float32 and rejects a double beyond its range, which becomes infinite here.
                with np.errstate(over="ignore"):
                    tf.summary.scalar(name, np.float32(value))
