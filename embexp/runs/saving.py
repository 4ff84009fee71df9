"""Saves a run during its training and at its end."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from embexp.checkpoints import paths, series, store
from embexp.checkpoints.series import SavedStep
from embexp.checkpoints.store import IncrementalSaves
from embexp.errors import CheckpointError, EmbexpError
from embexp.records.folder import RunFolder
from embexp.runs import saved_state
from embexp.runs.saved_state import TOUCHED, Running
from embexp.specs.running import Checkpointing, CheckpointKind, OnError
from embexp.system import files
from embexp.system.background import BackgroundDirectories
from embexp.tables.optimizers import moves_every_row
from embexp.tensor_bundle import increments, rekeying
from embexp.training.loop import Outcome, Replay, SaveTimes, Saving


@dataclass
class RunSaver:
    """Saves a run into its folder.

    Attributes:
        running: the run.
        warn: called with a sentence when a checkpoint can't be written.
    """

    running: Running
    warn: Callable[[str], object]
    _background: BackgroundDirectories = field(default_factory=BackgroundDirectories, repr=False)
    _increments: IncrementalSaves | None = field(default=None, repr=False)
    _pending: int = 0

    def saving(self, saved: SavedStep | None = None, replay: Replay | None = None) -> Saving | None:
        """How the training loop saves; None where the config wants nothing saved during training.

        Args:
            saved: the checkpoint that the run was restored from, if it was.
            replay: how it follows an earlier run, if it does.
        """
        wanted = self.running.prepared.spec.checkpoint
        if not wanted.during_training:
            return None
        if wanted.incremental is not None:
            tables = self.running.started.execution.tables
            every_row = [name for name in tables if moves_every_row(self.running.prepared.spec.optimizer_of(name))]
            if every_row:
                self.warn(
                    f"checkpoint.incremental: adam with lazy_adam=false moves all rows of {', '.join(every_row)}, so"
                    " every checkpoint has them all"
                )
            self._increments = IncrementalSaves(
                tables,
                whole_every=wanted.incremental,
                every_row=every_row,
                # An increment's base lies beside it, which the final checkpoint does not.
                restored=None
                if saved is None or saved.directory.name == self.running.folder.final_checkpoint.name
                else saved.directory,
            )
        minutes = wanted.every_minutes
        last = 0 if saved is None else saved.step
        seconds = None if minutes is None else 60 * minutes
        only_at = None if replay is None else replay.stops
        return Saving(SaveTimes(wanted.every_steps, seconds, last, only_at), self.save)

    def save(self, outcome: Outcome) -> None:
        """Saves the state after the steps of `outcome`; a thread waits for the disk, then removes old checkpoints.

        Raises:
            CheckpointError: it, or the one before, can't be written, and `checkpoint.on_error` is stop.
        """
        self._wait()
        directory, self._pending = series.step_directory(self.running.folder.checkpoints, outcome.steps), outcome.steps
        whole = partial(self._background.written_whole, on_disk=partial(self._saved, directory))
        write: Callable[[str], object] = self.running.started.execution.save
        if self._increments is not None:
            write = partial(self._increments.write, self.running.started.execution.checkpoint)
        try:
            self._write(directory, outcome, write, whole)
        except CheckpointError as error:
            self._failed(error)

    def _saved(self, directory: Path) -> None:
        """A checkpoint of the training is on disk."""
        if self._increments is not None:
            self._increments.saved(directory)
        settings = self.running.prepared.spec.checkpoint
        _prune(self.running.folder, settings, settings.keep, latest=directory)

    def _wait(self) -> None:
        """Waits until the last checkpoint of the training is on disk."""
        try:
            self._background.wait()
        except (OSError, EmbexpError) as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Goes on without the last checkpoint of the training, or not, as the config wants."""
        if not isinstance(error, CheckpointError):
            path = series.step_directory(self.running.folder.checkpoints, self._pending)
            error = CheckpointError(f"{path}: the checkpoint can't be written: {error}")
        if self.running.prepared.spec.checkpoint.on_error is OnError.STOP:
            raise error
        self.warn(f"step {self._pending:,}: {error}")

    def keep_best(self, outcome: Outcome) -> None:
        """Keeps the state after the steps of `outcome` as that of the best evaluation."""
        self._keep(self.running.folder.best_checkpoint, outcome)

    def keep_final(self, outcome: Outcome, final_step: int) -> None:
        """Writes the final checkpoint. Those of the training stay: until there is a summary, the run may be resumed.

        Raises:
            CheckpointError: it can't be written.
        """
        self._wait()
        try:
            if final_step == outcome.steps:
                self._keep(self.running.folder.final_checkpoint, outcome)
            else:
                store.link(self.running.folder.best_checkpoint, self.running.folder.final_checkpoint, finish=self._name)
            folder = self.running.folder
            _prune(folder, self.running.prepared.spec.checkpoint, None, latest=folder.final_checkpoint)
        except CheckpointError as error:
            command = shlex.join(["embexp", "resume", str(self.running.folder.path)])
            remedy = f"Then complete the run from its last checkpoint: {command}"
            raise CheckpointError(f"{error}. {remedy}") from error
        finally:
            self._background.close()

    def _keep(self, directory: Path, outcome: Outcome) -> None:
        """Makes `directory` a whole checkpoint of the present state, from that of the same step where there is one."""
        self._wait()
        same = series.step_directory(self.running.folder.checkpoints, outcome.steps)
        if not same.exists() or increments.is_incremental(same / paths.CHECKPOINT_NAME):
            self._write(directory, outcome, self.running.started.execution.save)
            return

        def finish(temporary: Path) -> None:
            self._name(temporary)
            for name in (TOUCHED, series.STATE):
                rekeying.hard_linked(same / name, temporary / name)

        store.link(same, directory, finish=finish)

    def _write(
        self,
        directory: Path,
        outcome: Outcome,
        write: Callable[[str], object],
        whole: store.Whole = files.directory_written_whole,
    ) -> None:
        """Writes the state of the run into a directory, which appears whole or not at all.

        Args:
            directory: of the checkpoint.
            outcome: of the training so far.
            write: writes the variables to a prefix.
            whole: makes the directory.

        Raises:
            CheckpointError: it can't be written.
        """

        def finish(temporary: Path) -> None:
            self._name(temporary)
            saved_state.add(temporary, outcome, self.running)

        store.write_by(write, directory, finish=finish, whole=whole)

    def _name(self, directory: Path) -> None:
        """Makes a checkpoint match by name, where the config wants that."""
        if self.running.prepared.spec.checkpoint.kind is CheckpointKind.NAME:
            rekeying.to_names(directory, self.running.started.execution.names())


def remove_earlier(folder: RunFolder, settings: Checkpointing, status: str) -> None:
    """Removes the checkpoints of the training, once the run has its summary, unless all are to stay.

    An interrupted run keeps its last one, from which it can be resumed.

    Args:
        folder: of the run.
        settings: which of them stay.
        status: with which the run has ended.
    """
    if status != "interrupted":
        if settings.keep is not None:
            _prune(folder, settings, 0, latest=folder.final_checkpoint)
        if not settings.keep_best and folder.best_checkpoint.exists():
            series.remove(folder.best_checkpoint)


def _prune(folder: RunFolder, settings: Checkpointing, keep: int | None, *, latest: Path) -> None:
    """Removes checkpoints of steps; where variables are matched by name, TensorFlow finds the latest one."""
    by_name = settings.kind is CheckpointKind.NAME
    series.prune(folder.checkpoints, keep, latest=latest if by_name else None)
