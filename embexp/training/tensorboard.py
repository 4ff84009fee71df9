"""TensorBoard events: one writer per part of the data, so that their curves share a chart."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf


class TensorBoard:
    """Writes scalars: `loss`, `examples_per_second` and drift under train/, each metric under its part's name.

    The directory is made by the first event.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._writers: dict[str, Any] = {}
        self._over = False

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Nothing to write yet."""

    def progressed(self, step: int) -> None:
        """Nothing is written between log lines."""

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Writes the loss and the throughput."""
        rate = {} if examples_per_second is None else {"examples_per_second": examples_per_second}
        self._write("train", step, {"loss": loss, **rate})

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Writes the metrics of a part."""
        self._write(split, step, metrics)

    def drifted(self, step: int, drift: Mapping[str, Mapping[str, float | None]]) -> None:
        """Writes how far each table's rows are from their pretrained values; after the end of the training too."""
        shown = {
            f"drift/{table}/{key}": value
            for table, each in drift.items()
            for key in ("mean", "largest", "relative")
            if (value := each[key]) is not None
        }
        self._write("train", step, shown)
        if self._over:
            self.ended("")

    def ended(self, status: str) -> None:
        """Closes the files."""
        self._over = True
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _write(self, part: str, step: int, values: Mapping[str, float]) -> None:
        writer = self._writers.get(part)
        if writer is None:
            writer = self._writers[part] = tf.summary.create_file_writer(str(self._directory / part))
        # Leaving the block flushes: a running TensorBoard, and a run that is killed, have every point.
        with writer.as_default(step=step):
            for name, value in values.items():
                # TensorBoard keeps float32, and refuses a double beyond its range: that is shown as infinite.
                with np.errstate(over="ignore"):
                    tf.summary.scalar(name, np.float32(value))
