"""Saves the state of a run during its training, and restores it: all that a run needs to continue.

Beside TensorFlow's files, the checkpoint of a step holds `state.json` (position of the training, metrics so far, sizes
of the files that are appended to) and `touched.npz` (which rows were looked up).
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embexp.checkpoints import series, store
from embexp.checkpoints.series import SavedStep
from embexp.errors import CheckpointError, DataError
from embexp.records.folder import RunFolder
from embexp.runs.execute import Started
from embexp.runs.prepare import Prepared
from embexp.runs.summary import describe
from embexp.specs.checkpointing import CheckpointKind, OnError, Save
from embexp.specs.optimizers import slot_count
from embexp.system import files
from embexp.tensor_bundle import rekeying
from embexp.training.early_stopping import EarlyStopping
from embexp.training.loop import Outcome, Saving
from embexp.training.saving import SaveTimes

_TOUCHED = "touched.npz"


@dataclass
class RunSaver:
    """Saves a run into its folder.

    Attributes:
        prepared: the run.
        started: its variables.
        folder: of the run.
        stopping: follows the validation metric; None: nothing does.
        warn: called with a sentence when a checkpoint can't be written.
        resumed_at: steps at which the run was resumed so far.
    """

    prepared: Prepared
    started: Started
    folder: RunFolder
    stopping: EarlyStopping | None
    warn: Callable[[str], object]
    resumed_at: tuple[int, ...] = ()

    def saving(self) -> Saving | None:
        """How the training loop saves; None where the config wants nothing saved during training."""
        wanted = self.prepared.spec.checkpoint
        if not wanted.during_training:
            return None
        minutes = wanted.every_minutes
        return Saving(SaveTimes(wanted.every_steps, None if minutes is None else 60 * minutes), self.save)

    def save(self, outcome: Outcome) -> bool:
        """Saves the state after the steps of `outcome`, and removes old checkpoints; returns whether it could.

        Raises:
            CheckpointError: it can't be written, and `checkpoint.on_error` is stop.
        """
        settings, checkpoints = self.prepared.spec.checkpoint, self.folder.checkpoints
        try:
            self.write(series.step_directory(checkpoints, outcome.steps), outcome)
        except CheckpointError as error:
            if settings.on_error is OnError.STOP:
                raise
            self.warn(f"step {outcome.steps:,}: {error}")
            return False
        series.prune(checkpoints, settings.keep)
        return True

    def keep_best(self, outcome: Outcome) -> None:
        """Keeps the state after the steps of `outcome` as that of the best evaluation."""
        self._keep(self.folder.best_checkpoint, outcome)

    def keep_final(self, outcome: Outcome, final_step: int) -> None:
        """Writes the final checkpoint, and removes those of the training unless all are to stay.

        An interrupted run keeps its last one, from which it can be resumed.

        Raises:
            CheckpointError: it can't be written.
        """
        settings = self.prepared.spec.checkpoint
        try:
            if final_step == outcome.steps:
                self._keep(self.folder.final_checkpoint, outcome)
            else:
                store.link(self.folder.best_checkpoint, self.folder.final_checkpoint, finish=self._name)
        except CheckpointError as error:
            command = shlex.join(["embexp", "resume", str(self.folder.path)])
            remedy = f"Then complete the run from its last checkpoint: {command}"
            raise CheckpointError(f"{error}. {remedy}") from error
        if outcome.status != "interrupted":
            if settings.keep is not None:
                series.prune(self.folder.checkpoints, 0)
            if not settings.keep_best and self.folder.best_checkpoint.exists():
                series.remove(self.folder.best_checkpoint)

    def _keep(self, directory: Path, outcome: Outcome) -> None:
        """Makes `directory` a checkpoint of the present state, from that of the same step where there is one."""
        same = series.step_directory(self.folder.checkpoints, outcome.steps)
        if same.exists():

            def finish(temporary: Path) -> None:
                self._name(temporary)
                for name in (_TOUCHED, series.STATE):
                    os.link(same / name, temporary / name)

            store.link(same, directory, finish=finish)
        else:
            self.write(directory, outcome)

    def write(self, directory: Path, outcome: Outcome) -> None:
        """Writes the state of the run into a directory, which appears whole or not at all.

        Raises:
            CheckpointError: it can't be written.
        """

        def finish(temporary: Path) -> None:
            self._name(temporary)
            self._add_state(temporary, outcome)

        store.write_by(self.started.execution.save, directory, finish=finish)

    def _name(self, directory: Path) -> None:
        """Makes a checkpoint match by name, where the config wants that."""
        if self.prepared.spec.checkpoint.kind is CheckpointKind.NAME:
            rekeying.to_names(directory, self.started.execution.names())

    def _add_state(self, directory: Path, outcome: Outcome) -> None:
        touched = {
            name: np.packbits(mask)
            for name, table in self.started.execution.tables.items()
            if not table.frozen and (mask := table.looked_up()) is not None
        }
        with (directory / _TOUCHED).open("wb") as file:
            np.savez(file, allow_pickle=False, **touched)
        stopping = self.stopping
        state = {
            "run_ids": [self.prepared.run_id],
            "outcome": outcome.as_json(),
            "stopping": None if stopping is None else {"best": stopping.best, "waited": stopping.waited},
            "drift": self.started.watch.reported,
            "appended": _sizes(self.folder),
            "resumed_at": self.resumed_at,
            "summary": describe(self.prepared, self.started) | {"steps": outcome.steps},
            "files": {
                str(path.relative_to(directory)): path.stat().st_size
                for path in sorted(directory.rglob("*"))
                if path.is_file()
            },
        }
        files.write_text(directory / series.STATE, json.dumps(state, indent=2) + "\n")


def _sizes(folder: RunFolder) -> dict[str, int]:
    """Sizes of the files that a training appends to, by their path in the run's folder."""
    appended = [folder.metrics, *(path for path in folder.events.rglob("*") if path.is_file())]
    for path in appended:
        if path.exists():
            _to_disk(path)
    return {str(path.relative_to(folder.path)): path.stat().st_size for path in appended if path.exists()}


def _to_disk(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def restore(saved: SavedStep, started: Started, stopping: EarlyStopping | None) -> Outcome:
    """Brings a started run to the state of a checkpoint, and returns the outcome of its training so far.

    Raises:
        CheckpointError: the checkpoint does not fit the run.
        DataError: it is damaged.
    """
    started.execution.restore(saved.directory)
    for name, mask in _touched(saved, started).items():
        started.execution.tables[name].restore_touched(mask)
    state = saved.state
    if stopping is not None and state["stopping"] is not None:
        stopping.best, stopping.waited = state["stopping"]["best"], state["stopping"]["waited"]
    if state["drift"] is not None:
        started.watch.reported = (state["drift"][0], state["drift"][1])
    return Outcome(**state["outcome"])


def _touched(saved: SavedStep, started: Started) -> dict[str, np.ndarray]:
    """Bool [rows] of each table that trains: which rows steps have looked up."""
    path = saved.directory / _TOUCHED
    try:
        with np.load(path, allow_pickle=False) as stored:
            packed: Mapping[str, Any] = {name: stored[name] for name in stored.files}
        tables = started.execution.tables
        return {name: np.unpackbits(bits, count=tables[name].rows).astype(bool) for name, bits in packed.items()}
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise DataError(f"{path} is damaged: {error}") from error


def adopted(saved: SavedStep, folder: RunFolder, run_id: str) -> SavedStep:
    """A checkpoint that also a changed run may continue from, as the checkpoint of its step.

    Args:
        saved: the checkpoint of a step, or the final one.
        folder: of the run.
        run_id: of the changed run.
    """
    state = saved.state | {"run_ids": [*saved.state["run_ids"], run_id]}
    text = json.dumps(state, indent=2) + "\n"
    directory = series.step_directory(folder.checkpoints, saved.step)
    if directory == saved.directory:
        files.write_text(directory / series.STATE, text)
    else:

        def finish(temporary: Path) -> None:
            os.link(saved.directory / _TOUCHED, temporary / _TOUCHED)
            files.write_text(temporary / series.STATE, text)

        store.link(saved.directory, directory, finish=finish)
    return SavedStep(directory, state)


def cut(folder: RunFolder, saved: SavedStep | None) -> None:
    """Removes what a run wrote after a checkpoint: lines of metrics.jsonl, events, checkpoints, results.

    Args:
        folder: of the run.
        saved: the checkpoint; None: from its beginning.

    Raises:
        DataError: a file has lost what it held at the time of the checkpoint.
    """
    sizes: dict[str, int] = {} if saved is None else saved.state["appended"]
    for name, size in sizes.items():
        path = folder.path / name
        found = path.stat().st_size if path.exists() else 0
        if found < size:
            raise DataError(f"{path}: found {found} bytes, and at step {saved.step if saved else 0} it had {size}")
    folder.summary.unlink(missing_ok=True)
    for path in [folder.metrics, *(path for path in folder.events.rglob("*") if path.is_file())]:
        size = sizes.get(str(path.relative_to(folder.path)), 0)
        if size:
            os.truncate(path, size)
        else:
            path.unlink(missing_ok=True)
    if saved is None:
        shutil.rmtree(folder.estimator, ignore_errors=True)
    series.remove_leftovers(folder.checkpoints)
    for directory in series.step_directories(folder.checkpoints):
        if saved is None or directory.name > saved.directory.name:
            series.remove(directory)


def check_room(prepared: Prepared, folder: RunFolder) -> None:
    """Checks before training that the checkpoints can be written.

    Raises:
        CheckpointError: no permission, or too little room on the disk.
    """
    settings = prepared.spec.checkpoint
    if settings.save is Save.NEVER:
        return
    count = 1
    if settings.during_training:  # a new one is whole before an old one goes
        count = 2 if settings.keep is None else settings.keep + 1
    size = sum(_bytes(prepared, name) for name in prepared.spec.tables)
    try:
        free = files.free_bytes(folder.checkpoints)
    except OSError as error:
        raise CheckpointError(f"{folder.checkpoints} can't be written to: {error.strerror}") from error
    if free < count * size:
        raise CheckpointError(
            f"{folder.checkpoints}: {count} checkpoints of {size / 1e6:,.0f} MB are to be there at once, and"
            f" {free / 1e6:,.0f} MB are free. Make room, or write fewer: checkpoint.keep=1, checkpoint.save=end"
        )


def _bytes(prepared: Prepared, name: str) -> int:
    """Bytes of a table and its slots in a checkpoint."""
    if prepared.spec.kept_by_reference(name):
        return 0
    table = prepared.tables.spec.tables[name]
    frozen = prepared.tables.policies[name].fully_frozen
    slots = 0 if frozen else slot_count(prepared.spec.optimizer_of(name))
    return 4 * prepared.tables.rows[name] * table.width * (1 + slots)
