"""TensorBoard: one writer per split, so that the curves of all splits share a chart; the config; hyperparameters.

TensorBoard's HParams tab takes the hyperparameters from the folder of the events, and as metrics of that session every
scalar there and beneath. Sources: tensorboard/plugins/hparams/summary.py and backend_context.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from tensorboard.plugins.hparams import api as hparams
from tensorboard.plugins.hparams import api_pb2
from tensorboard.plugins.hparams import summary as sessions

from embexp.records.inventory import EVENT_SUFFIX
from embexp.reports.tracking import Point, TrackedRun

_SESSION = ("config", "final")
"""What belongs to the run, and so to the folder itself and no split in it."""


class TensorBoard:
    """Writes scalars in a folder per split: `train/loss` is the scalar `loss` in the folder `train`.

    In the folder itself are the hyperparameters, the config as text, and the final metrics as `final/test/auc`.
    """

    name = "TensorBoard"

    def __init__(self, directory: Path) -> None:
        """Writes nothing yet.

        Args:
            directory: for the events; the first one creates it.
        """
        self._directory = directory
        self._writers: dict[str, Any] = {}
        self._unwritten: TrackedRun | None = None
        self._stored: set[tuple[str, int]] = set()
        """Tags and steps of the run's own values that an earlier process has written."""

    def start(self, run: TrackedRun) -> None:
        """Writes nothing yet: with the first operation TensorFlow runs, and a cluster has to be formed before."""
        self._unwritten = run

    def _begin(self) -> None:
        """Writes the config, and the hyperparameters unless an earlier process has: TensorBoard reads the first."""
        if (run := self._unwritten) is None:
            return
        self._unwritten = None
        if run.first_step:
            self._stored = set(_own_points(self._directory))
        with self._writer("").as_default(step=run.first_step):
            # Four blanks make a block of code of every line, whatever stands in it.
            tf.summary.text("config", "".join(f"    {line}\n" for line in run.config.splitlines()))
            if not run.first_step:
                hparams.hparams(dict(run.parameters), trial_id=str(run.directory.absolute()))

    def log(self, points: Sequence[Point]) -> None:
        """Writes scalars; they are on disk before this returns."""
        self._begin()
        for point in points:
            by_writer: dict[str, dict[str, float]] = {}
            for name, value in point.metrics.items():
                split, _, metric = name.partition("/")
                folder, tag = ("", name) if split in _SESSION else (split, metric)
                if not folder and (tag, point.step) in self._stored:
                    continue
                by_writer.setdefault(folder, {})[tag] = value
            for folder, values in by_writer.items():
                self._write(folder, point.step, values)

    def artifacts(self, paths: Sequence[Path]) -> None:
        """Writes nothing: the files are beside the events."""

    def sealed(self, inventory: str) -> None:
        """Writes the digest into a file of its own, as the inventory lists the others."""
        suffix = f".v2{EVENT_SUFFIX}"
        writer = tf.summary.create_file_writer(str(self._directory), filename_suffix=suffix)
        with writer.as_default(step=0):
            tf.summary.text("inventory", inventory)
        writer.close()

    def end(self, status: str) -> None:
        """Writes how the run ended, and closes the files."""
        self._begin()
        success = status in ("completed", "stopped_early")
        state = api_pb2.Status.Value("STATUS_SUCCESS" if success else "STATUS_FAILURE")
        with self._writer("").as_default(step=0):
            tf.summary.experimental.write_raw_pb(sessions.session_end_pb(state).SerializeToString())
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _write(self, folder: str, step: int, values: Mapping[str, float]) -> None:
        # Leaving the block flushes, so that a running TensorBoard sees every point and a killed run keeps it.
        with self._writer(folder).as_default(step=step):
            for name, value in values.items():
                # TensorBoard stores float32 and rejects a double beyond its range, which becomes infinite here.
                with np.errstate(over="ignore"):
                    tf.summary.scalar(name, np.float32(value))

    def _writer(self, folder: str) -> Any:
        if folder not in self._writers:
            self._writers[folder] = tf.summary.create_file_writer(str(self._directory / folder))
        return self._writers[folder]


def _own_points(directory: Path) -> Iterator[tuple[str, int]]:
    """The tags and steps of the values in a folder itself."""
    for path in sorted(directory.glob("events.out.*")):
        try:
            for event in tf.compat.v1.train.summary_iterator(str(path)):
                yield from ((value.tag, event.step) for value in event.summary.value)
        except tf.errors.DataLossError:  # its process was killed while it wrote
            continue
