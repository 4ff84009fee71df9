"""Saves a run during its training and at its end, with all that it continues from.

Beside the variables, `state.json` has the position of the training, the metrics so far, and the sizes of the files that
are appended to; `touched.npz` has which rows were looked up.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from embexp.checkpoints import naming, store, streaming
from embexp.checkpoints.store import SavedStep
from embexp.checkpoints.streaming import IncrementalSaves
from embexp.errors import CheckpointError, DataError, EmbexpError
from embexp.records import inventory
from embexp.records.folder import RunFolder
from embexp.records.inventory import Listed
from embexp.runs.execute import Started
from embexp.runs.prepare import Prepared
from embexp.runs.runtimes.execution import Execution, Save
from embexp.runs.summary import describe
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.pretrained import Checkpoint as CheckpointSetting
from embexp.specs.running import Checkpointing, CheckpointKind, OnError, RuntimeKind
from embexp.specs.running import Save as When
from embexp.specs.tables import Table
from embexp.system import files, machine_faults
from embexp.system.files import BackgroundDirectories
from embexp.system.parallel import Progress, quiet
from embexp.system.tensor_bundle import increments, writer
from embexp.system.tensor_bundle import index as bundle_index
from embexp.system.tensor_bundle.index import prefix_of
from embexp.tables.checkpointing import StreamedTable
from embexp.tables.variables import ReadableTable
from embexp.training.loop import EarlyStopping, Outcome, Replay, SaveTimes, Saving
from embexp.vectors.pretrained.earlier import EarlierCheckpoint

_TOUCHED = "touched.npz"
_MOST_LINKS = 30
"""The most checkpoints on which one may be based, because each is another file for every reader."""


@dataclass
class RunSaver:
    """Saves a run into its folder.

    Attributes:
        stopping: follows the validation metric; None: nothing does.
        resumed_at: steps at which the run was resumed so far.
        warn: called with a sentence when a checkpoint can't be written.
        linked: the files of the parent that are among those of the run, by their identity, as its inventory lists them.
        waiting: returns the lines that wait until metrics.jsonl has room: a checkpoint has them, for a resumption.
        progress: called as a checkpoint is written.
    """

    prepared: Prepared
    started: Started
    folder: RunFolder
    stopping: EarlyStopping | None = None
    resumed_at: tuple[int, ...] = ()
    warn: Callable[[str], object] = print
    linked: Mapping[tuple[int, int], Listed] = field(default_factory=dict)
    waiting: Callable[[], str] = lambda: ""
    progress: Progress = quiet
    _background: BackgroundDirectories = field(default_factory=BackgroundDirectories, repr=False)
    _increments: IncrementalSaves | None = field(default=None, repr=False)
    _pending: int = 0

    def saving(self, saved: SavedStep | None = None, replay: Replay | None = None) -> Saving | None:
        """How the training loop saves; None where the config wants nothing saved during training.

        Args:
            saved: the checkpoint that the run was restored from, if it was.
        """
        wanted = self.prepared.spec.checkpoint
        if not wanted.during_training:
            return None
        if wanted.incremental is not None:
            tables, spec = self.started.execution.tables, self.prepared.spec
            every_row = [name for name in tables if spec.optimizer_of(name).moves_every_row]
            if every_row:
                self.warn(
                    f"checkpoint.incremental: adam with lazy_adam=false changes all rows of "
                    f"{', '.join(every_row)}, so every checkpoint has all of them"
                )
            self._increments = IncrementalSaves(
                tables,
                whole_every=wanted.incremental,
                every_row=[name for name in tables if _every_row(spec.optimizer_of(name), spec.tables[name])],
                write_whole=self._write_rows,
                # An increment's base must lie next to it, and the final checkpoint is elsewhere.
                restored=None
                if saved is None or saved.directory.name == self.folder.final_checkpoint.name
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
        directory, self._pending = store.step_directory(self.folder.checkpoints, outcome.steps), outcome.steps
        whole = partial(self._background.written_whole, on_disk=partial(self._saved, directory))
        write: Save = self._write_rows
        if self._increments is not None:
            write = partial(self._increments.write, self.started.execution.checkpoint)
        try:
            self._write(directory, outcome, write, whole)
        except CheckpointError as error:
            self._failed(error)

    def _saved(self, directory: Path) -> None:
        """Called when a checkpoint of the training is on disk."""
        if self._increments is not None:
            self._increments.saved(directory)
        store.prune(self.folder.checkpoints, self.prepared.spec.checkpoint.keep, latest=directory)

    def _wait(self) -> None:
        """Waits until the last checkpoint of the training is on disk."""
        try:
            self._background.wait()
        except (OSError, EmbexpError) as error:
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Goes on without the last checkpoint of the training, or raises its error, as configured."""
        if not isinstance(error, CheckpointError):
            path = store.step_directory(self.folder.checkpoints, self._pending)
            error = CheckpointError(f"{path}: the checkpoint can't be written: {error}")
        if self.prepared.spec.checkpoint.on_error is OnError.STOP:
            raise error
        self.warn(f"step {self._pending:,}: {error}")

    def full(self, error: OSError) -> None:
        """Goes on although the disk has no room for a line of metrics.jsonl, or not, as the config wants."""
        if self.prepared.spec.checkpoint.on_error is OnError.STOP or not machine_faults.is_full(error):
            raise error
        self.warn(f"{machine_faults.sentence(error)}; training continues, and the line is written once there is room")

    def keep_best(self, outcome: Outcome) -> None:
        """Keeps the state after the steps of `outcome` as that of the best evaluation."""
        self._keep(self.folder.best_checkpoint, outcome)

    def keep_final(self, outcome: Outcome, final_step: int) -> None:
        """Writes the final checkpoint. Those of the training stay: until there is a summary, the run may be resumed.

        Raises:
            CheckpointError: it can't be written.
        """
        self._wait()
        try:
            if final_step == outcome.steps:
                self._keep(self.folder.final_checkpoint, outcome)
            else:
                store.link(self.folder.best_checkpoint, self.folder.final_checkpoint, finish=self._name)
            store.prune(self.folder.checkpoints, None, latest=self.folder.final_checkpoint)
        except CheckpointError as error:
            command = shlex.join(["embexp", "resume", str(self.folder.path)])
            remedy = f"Then complete the run from its last checkpoint: {command}"
            raise CheckpointError(f"{error}. {remedy}") from error
        finally:
            self._background.close()

    def _keep(self, directory: Path, outcome: Outcome) -> None:
        """Makes `directory` a checkpoint of the present state that needs no other checkpoint of the training.

        If the checkpoint of the same step needs no other either, it is used.
        """
        self._wait()
        same = store.step_directory(self.folder.checkpoints, outcome.steps)
        if not same.exists() or store.follows_step(same):
            self._write(directory, outcome, self._write_rows)
            return

        def finish(temporary: Path) -> None:
            self._name(temporary)
            for name in (_TOUCHED, store.STATE):
                writer.hard_linked(same / name, temporary / name)

        store.link(same, directory, finish=finish)

    @cached_property
    def _parent(self) -> _ParentCheckpoint | None:
        """The parent's final checkpoint, if the run's checkpoints may be based on it."""
        return _parent_checkpoint(self.prepared, self.started.execution)

    @cached_property
    def _base(self) -> Path | None:
        """The parent's final checkpoint in the run's folder; None: it can't be put there."""
        parent = self.prepared.dense
        assert parent is not None
        try:
            listed = {files.identity(path.stat()): each for path, each in parent.checked_data.items() if not each.link}
        except FileNotFoundError:  # somebody has removed the parent; whole checkpoints don't need it
            return None
        self.linked = listed
        return store.link_earlier(parent.index, self.folder.checkpoints)

    def _write_rows(self, prefix: str, *, progress: Progress = quiet) -> None:
        """Writes all learned values. A continued run writes only the rows that moved, if those are much fewer."""
        execution = self.started.execution
        changed = {} if self._parent is None else self._parent.changed(execution.tables)
        if not changed or (base := self._base) is None:
            execution.save(prefix, progress=progress)
        else:
            streaming.write(execution.checkpoint, prefix, base=str(base), changed=changed, progress=progress)

    def _write(
        self,
        directory: Path,
        outcome: Outcome,
        write: Save,
        whole: store.Whole = files.atomic_directory,
    ) -> None:
        """Writes the state of the run into a directory. The write is atomic.

        Raises:
            CheckpointError: the state can't be written.
        """

        def finish(temporary: Path) -> None:
            naming.add_counter(temporary / store.CHECKPOINT_NAME)
            self._name(temporary)
            self._add_state(temporary, outcome)

        store.write_by(partial(write, progress=self.progress), directory, finish=finish, whole=whole)

    def _add_state(self, directory: Path, outcome: Outcome) -> None:
        """Adds the state of the run to a checkpoint that is being written."""
        waiting = self.waiting()
        started, stopping = self.started, self.stopping
        touched = {
            name: np.packbits(mask)
            for name, table in started.execution.tables.items()
            if not table.frozen and (mask := table.looked_up()) is not None
        }
        with (directory / _TOUCHED).open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **touched)
        state = {
            "continued_by": [] if (identity := self.prepared.identity) is None else [identity.continued],
            "outcome": outcome.as_json(),
            "stopping": None
            if stopping is None
            else {"best": stopping.best, "waited": stopping.waited, "perfect": stopping.perfect},
            "drift": started.watch.reported,
            "appended": sizes_on_disk(self.folder),
            "waiting": waiting,
            "resumed_at": self.resumed_at,
            "summary": describe(self.prepared, started) | {"steps": outcome.steps},
            "files": {
                str(path.relative_to(directory)): path.stat().st_size
                for path in sorted(directory.rglob("*"))
                if path.is_file()
            },
        }
        files.write_text(directory / store.STATE, json.dumps(state, indent=2) + "\n")

    def restore_state(self, saved: SavedStep) -> Outcome:
        """Brings the started run to the state of a checkpoint, and returns the outcome of its training so far.

        Raises:
            CheckpointError: the checkpoint does not fit the run.
            DataError: it is damaged.
        """
        execution, state, path = self.started.execution, saved.state, saved.directory / _TOUCHED
        execution.restore(saved.directory)
        try:
            with np.load(path, allow_pickle=False) as stored:
                for name in stored.files:
                    table = execution.tables[name]
                    table.restore_touched(np.unpackbits(stored[name], count=table.rows).astype(bool))
        except (OSError, ValueError, KeyError, EOFError) as error:
            raise DataError(f"{path} is damaged: {error}") from error
        if self.stopping is not None and state["stopping"] is not None:
            self.stopping.best, self.stopping.waited = state["stopping"]["best"], state["stopping"]["waited"]
            self.stopping.perfect = state["stopping"].get("perfect", 0)  # earlier versions did not count them
        if state["drift"] is not None:
            self.started.watch.reported = (state["drift"][0], state["drift"][1])
        self.resumed_at = (*state["resumed_at"], saved.step)
        return Outcome(**state["outcome"])

    def _name(self, directory: Path) -> None:
        """Makes a checkpoint match by name, if configured."""
        if self.prepared.spec.checkpoint.kind is CheckpointKind.NAME:
            writer.to_names(directory, self.started.execution.names())


@dataclass(frozen=True)
class _ParentCheckpoint:
    """The final checkpoint of a run's parent, on which the run's checkpoints may be based.

    Attributes:
        moved: rows that did not start like the row with the same number in it, bool [rows], by table.
        row_bytes: bytes of a row with its slots, by table.
        rows: number of rows, by table.
        bytes: bytes of the rows that it and its own bases have in addition to a whole checkpoint.
    """

    moved: Mapping[str, np.ndarray]
    row_bytes: Mapping[str, int]
    rows: Mapping[str, int]
    bytes: int

    def changed(self, tables: Mapping[str, ReadableTable]) -> dict[str, np.ndarray]:
        """The rows that differ from those in it, bool [rows], by table; empty: so many that all must be written."""
        found = {}
        for name, moved in self.moved.items():
            touched = np.False_ if tables[name].frozen else tables[name].looked_up()
            if touched is not None:
                found[name] = moved | touched
        counts = {name: int(found[name].sum()) if name in found else rows for name, rows in self.rows.items()}
        some, whole = (sum(self.row_bytes[name] * each[name] for name in each) for each in (counts, self.rows))
        return found if self.bytes + some <= whole / 2 else {}


def _parent_checkpoint(prepared: Prepared, execution: Execution) -> _ParentCheckpoint | None:
    """The parent's final checkpoint; None: the run's checkpoints are whole."""
    spec, parent = prepared.spec, prepared.dense
    settings = spec.checkpoint
    if prepared.ancestor is None or parent is None or not settings.since_parent or spec.restore.path is not None:
        return None
    if settings.kind is CheckpointKind.NAME or prepared.runtime is not RuntimeKind.FUNCTION:
        return None
    parts: dict[str, list[StreamedTable]] = {}
    for part in streaming.streamed_in(execution.checkpoint):
        parts.setdefault(part.table, []).append(part)
    known = {name: _moved_at_first(prepared, parent, name, each) for name, each in parts.items()}
    moved = {name: rows for name, rows in known.items() if rows is not None}
    if not moved or len(increments.chain(prefix_of(parent.index))) > _MOST_LINKS:
        return None
    row_bytes = {name: sum(each.dtype.size * int(each.shape[1]) for each in of) for name, of in parts.items()}
    further = [part for values in parent.tensors.values() for part in increments.parts_of(values)[1:]]
    size = sum(piece.size for part in further for piece in part.entry.pieces)
    return _ParentCheckpoint(moved, row_bytes, {name: int(of[0].shape[0]) for name, of in parts.items()}, size)


def _moved_at_first(
    prepared: Prepared, parent: EarlierCheckpoint, name: str, parts: Sequence[StreamedTable]
) -> np.ndarray | None:
    """Rows that did not start like the parent's row with the same number, bool [rows]; None: it could be any row."""
    spec, taken = prepared.spec, prepared.tables.pretrained.tables.get(name)
    if taken is None or not isinstance(taken.setting, CheckpointSetting) or taken.setting.table not in (None, name):
        return None
    policy = prepared.tables.policies[name]
    # Slots of rows that are frozen separately are saved with their initial values.
    every_row = _every_row(spec.optimizer_of(name), spec.tables[name])
    if taken.setting.path != spec.parent.path or every_row or 0 < policy.frozen_rows < policy.rows:
        return None
    for part in parts:
        stored = parent.tensors.get(parent.key(name, part.slot))
        if stored is None or (part.slot is not None and part.slot not in taken.slots):
            return None
        (rows, dim), entry = part.shape.as_list(), stored.entry
        if entry.kind != part.dtype.as_datatype_enum or entry.shape[1:] != (dim,) or entry.shape[0] > rows:
            return None
    moved: np.ndarray = taken.alignment.file_rows != np.arange(len(taken.alignment.file_rows))
    return moved


def _every_row(optimizer: TableOptimizer, table: Table) -> bool:
    """Whether rows of a table may move although no step looks them up."""
    return optimizer.moves_every_row or table.reset is not None


def remove_earlier(folder: RunFolder, settings: Checkpointing, status: str) -> None:
    """Removes the checkpoints of the training, once the run has its summary, unless all are to stay.

    An interrupted run keeps its last one, from which it can be resumed.
    """
    if status != "interrupted":
        if settings.keep is not None:
            store.prune(folder.checkpoints, 0, latest=folder.final_checkpoint)
        if not settings.keep_best and folder.best_checkpoint.exists():
            store.remove(folder.best_checkpoint)
    store.remove_unneeded(folder.checkpoints)


def sizes_on_disk(folder: RunFolder) -> dict[str, int]:
    """Sizes of the files that a training appends to, by their path in the run's folder; they are on disk."""
    appended = [folder.metrics, *(path for path in folder.events.rglob("*") if path.is_file())]
    appended = [path for path in appended if path.exists()]
    folders = {parent for path in appended for parent in path.parents if parent.is_relative_to(folder.path)}
    for path in (*appended, *folders):  # a file whose name is lost with the power is lost, and the checkpoint with it
        files.to_disk(path)
    return {str(path.relative_to(folder.path)): path.stat().st_size for path in appended}


def adopted(saved: SavedStep, folder: RunFolder, continued: str) -> SavedStep:
    """A checkpoint that also a changed run may continue from, as the checkpoint of its step.

    Args:
        saved: the checkpoint of a step, or the final one.
        continued: of the changed run, see `Identity`.
    """
    state = saved.state | {"continued_by": [*saved.state["continued_by"], continued]}
    text = json.dumps(state, indent=2) + "\n"
    directory = store.step_directory(folder.checkpoints, saved.step)
    if directory == saved.directory:
        files.write_text(directory / store.STATE, text)
    else:

        def finish(temporary: Path) -> None:
            writer.hard_linked(saved.directory / _TOUCHED, temporary / _TOUCHED)
            files.write_text(temporary / store.STATE, text)

        store.link(saved.directory, directory, finish=finish)
    return SavedStep(directory, state)


def cut_back(folder: RunFolder, saved: SavedStep | None) -> None:
    """Removes what a run wrote after a checkpoint: lines of metrics.jsonl, events, checkpoints, results.

    Lines of metrics.jsonl that waited for room when it was saved are written.

    Args:
        saved: the checkpoint; None: from its beginning.

    Raises:
        DataError: a file has lost what it held at the time of the checkpoint.
    """
    sizes: dict[str, int] = {} if saved is None else saved.state["appended"]
    for name, size in sizes.items():
        path = folder.path / name
        found = path.stat().st_size if path.exists() else 0
        if found < size:
            raise DataError(f"{path}: found {found} bytes, but at step {saved.step if saved else 0} it had {size}")
    inventory.unseal(folder.path)
    folder.summary.unlink(missing_ok=True)
    for path in [folder.metrics, *(path for path in folder.events.rglob("*") if path.is_file())]:
        size = sizes.get(str(path.relative_to(folder.path)), 0)
        if size:
            os.truncate(path, size)
        else:
            path.unlink(missing_ok=True)
    waiting = "" if saved is None else saved.state.get("waiting", "")  # earlier versions kept none
    if waiting:
        with files.naming(folder.metrics), folder.metrics.open("a", encoding="utf-8") as file:
            file.write(waiting)
    if saved is None:
        shutil.rmtree(folder.estimator, ignore_errors=True)
    directories = store.step_directories(folder.checkpoints)
    kept = [each for each in directories if saved is not None and each.name <= saved.directory.name]
    if saved is None:
        bundle_index.unmark(folder.checkpoints)
    elif bundle_index.marked(folder.checkpoints):
        store.mark_latest(folder.checkpoints, kept, saved.directory)
    for directory in directories:
        if directory not in kept:
            store.remove(directory)


def check_room(prepared: Prepared, folder: RunFolder) -> None:
    """Checks before training that the checkpoints can be written.

    Raises:
        CheckpointError: no permission, or too little room on the disk.
    """
    settings = prepared.spec.checkpoint
    if settings.save is When.NEVER:
        return
    count = 1
    if settings.during_training:  # a new one is whole before an old one goes
        count = 2 if settings.keep is None else settings.keep + 1
        count += settings.incremental is not None  # kept checkpoints need their base
    size = sum(_checkpoint_bytes(prepared, name) for name in prepared.spec.tables)
    try:
        free = files.free_bytes(folder.checkpoints)
    except OSError as error:
        raise CheckpointError(f"{folder.checkpoints} can't be written to: {machine_faults.reason(error)}") from error
    if free < count * size:
        raise CheckpointError(
            f"{folder.checkpoints}: {count} checkpoints of {size / 1e6:,.0f} MB must fit at once, but only "
            f"{free / 1e6:,.0f} MB are free. Free some space, or write fewer: checkpoint.keep=1, checkpoint.save=end"
        )


def _checkpoint_bytes(prepared: Prepared, name: str) -> int:
    """The bytes of a table and its slots in a checkpoint."""
    if prepared.spec.kept_by_reference(name):
        return 0
    table = prepared.tables.spec.tables[name]
    frozen = prepared.tables.policies[name].fully_frozen
    slots = 0 if frozen else table.slot_bytes(prepared.spec.optimizer_of(name), table.width)
    return prepared.tables.rows[name] * (table.row_bytes(table.width) + slots)
