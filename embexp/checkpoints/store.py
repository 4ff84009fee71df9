"""Writing and reading a run's checkpoint, whole or incremental: tables, slots, dense model, optimizer, step counter.

The checkpoint is TensorFlow's object-based one, with the tables under the keys that `TPUEmbedding` writes:
`embedding/<table>` and `embedding/<table>.S<slot>`. `rekeying.to_names` makes it name-based; `naming` has the names.

Incremental checkpoints of a run: the rows of tables that training changed since the checkpoint before. Everything else
is whole in each of them. `streaming` restores them like whole ones.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.checkpoints import restoring, streaming
from embexp.checkpoints.paths import CHECKPOINT_NAME, plain_path
from embexp.errors import CheckpointError
from embexp.system import files, machine_faults
from embexp.tables.reading import ReadableTable
from embexp.tensor_bundle import increments
from embexp.tensor_bundle.increments import is_incremental
from embexp.tensor_bundle.index import index_of, prefix_of
from embexp.tensor_bundle.rekeying import object_index

Whole = Callable[[Path], AbstractContextManager[Path]]
"""Makes a directory whole or not at all: see `files.directory_written_whole`."""


def write(checkpoint: Any, directory: Path) -> Path:
    """Writes a `tf.train.Checkpoint` into `directory`, which appears whole or not at all, and returns it.

    An older checkpoint of that name is replaced.
    """
    return write_by(partial(streaming.write, checkpoint), directory)


def write_by(
    write_to: Callable[[str], object],
    directory: Path,
    *,
    finish: Callable[[Path], object] = lambda temporary: None,
    whole: Whole = files.atomic_directory,
) -> Path:
    """Has `write_to(prefix)` write a checkpoint into `directory`, as `write` does.

    Args:
        write_to: writes the files of a prefix whose path TensorFlow takes as it is.
        finish: called with the temporary directory, before it becomes `directory`; it may add files.

    Raises:
        CheckpointError: a file can't be written; what was there before is whole.
    """
    try:
        if directory.exists():
            _replace(write_to, directory, finish)
        else:
            _write_new(write_to, directory, finish, whole)
    except (OSError, tf.errors.OpError) as error:
        raise CheckpointError(f"{directory}: the checkpoint can't be written: {_reason(error)}") from error
    return directory


def _write_new(
    write_to: Callable[[str], object],
    directory: Path,
    finish: Callable[[Path], object],
    whole: Whole = files.atomic_directory,
) -> None:
    with whole(directory) as temporary:
        with plain_path(temporary) as plain:
            write_to(str(plain / CHECKPOINT_NAME))
        finish(temporary)


def _replace(write_to: Callable[[str], object], directory: Path, finish: Callable[[Path], object]) -> None:
    beside = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}.", suffix=files.UNFINISHED))
    new, old = beside / "new", beside / "old"
    try:
        _write_new(write_to, new, finish)
        # The old one is renamed only when the new one is complete, and deleted only when that is in its place.
        directory.rename(old)
        new.rename(directory)
    except BaseException:
        if old.exists():
            old.rename(directory)
        shutil.rmtree(beside, ignore_errors=True)
        raise
    shutil.rmtree(beside, ignore_errors=True)


def _reason(error: OSError | tf.errors.OpError) -> str:
    """Why a file can't be written, and what helps."""
    text = error.strerror or str(error) if isinstance(error, OSError) else str(error.message)
    if "No space left" in text or "quota" in text.lower():
        return f"{text}. Make room on the disk, or keep fewer checkpoints: checkpoint.keep=1"
    return machine_faults.reason(error) if isinstance(error, OSError) else text


def link(directory: Path, target: Path, *, finish: Callable[[Path], object] = lambda temporary: None) -> Path:
    """Copies a checkpoint to another directory, by hard links where the file system has them, and returns that.

    The copy appears whole or not at all, and replaces an older one.

    Args:
        finish: see `write_by`.

    Raises:
        CheckpointError: there is no checkpoint, or the copy can't be written.
    """
    prefix = prefix_in(directory)
    return write_by(lambda to: copy(prefix, to), target, finish=finish)


def read(checkpoint: Any, directory: Path) -> None:
    """Restores all of a checkpoint, of either kind, whole or incremental, into a like object.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged; or a variable is missing, extra or of another shape,
            which TensorFlow's own checks detect only in part.
        DataError: rows of a table are damaged.
    """
    restoring.read_run(checkpoint, index_of(Path(prefix_in(directory))), directory)


def restore_weights(model: Any, directory: Path) -> None:
    """Restores all weights of a Keras model from a run's checkpoint.

    Raises:
        CheckpointError: a weight is missing or of another shape.
    """
    prefix_in(directory)  # raises if there is none, with the directory's own name
    like = tf.train.Checkpoint(model=model)
    with plain_path(directory) as path:
        try:
            like.read(prefix_in(path)).expect_partial().assert_existing_objects_matched()
        except (ValueError, AssertionError, tf.errors.OpError) as error:
            raise CheckpointError(f"{directory} does not fit the model: {error}") from error


def copy(prefix: str, target: str) -> None:
    """Copies the files of a whole checkpoint to another prefix, by hard links where the file system has them.

    Raises:
        CheckpointError: it is incremental, so a copy elsewhere would lack its base.
    """
    if is_incremental(Path(prefix)):
        raise CheckpointError(f"{Path(prefix).parent} is an incremental checkpoint, where a whole one is needed")
    name = Path(prefix).name
    for file in sorted(Path(prefix).parent.iterdir()):
        ending = file.name.removeprefix(name)
        if ending.startswith((".index", ".data-")) and file.name.startswith(name):
            copied = Path(f"{target}{ending}")
            copied.unlink(missing_ok=True)
            try:
                copied.hardlink_to(file.resolve())
            except OSError:
                shutil.copy2(file, copied)


def prefix_in(directory: Path) -> str:
    """Prefix of the checkpoint in a directory: of the object-based one, if it has both kinds.

    Raises:
        CheckpointError: there is none.
    """
    if not (directory / f"{CHECKPOINT_NAME}.index").exists():
        raise CheckpointError(f"{directory} holds no checkpoint: there is no {CHECKPOINT_NAME}.index in it")
    return str(prefix_of(object_index(directory)))


class Changes:
    """The rows of a run's tables that changed since its last checkpoint that is on disk."""

    def __init__(self, tables: Mapping[str, ReadableTable], every_row: Collection[str] = ()) -> None:
        """Counts from now on.

        Args:
            every_row: tables whose optimizer moves every row in each step: `adam` with `lazy_adam: false`.
        """
        self._tables = {name: table for name, table in tables.items() if name not in every_row}
        self._masks: dict[str, np.ndarray] = {}
        self.collect()
        self.saved()

    def collect(self) -> dict[str, np.ndarray]:
        """The rows that changed, bool [rows], by table; without tables of which every row may have changed.

        They are collected again next time, unless `saved` is called in between. Call it only when it is known whether
        the save before went well.
        """
        for name, table in self._tables.items():
            touched = np.zeros(table.rows, np.bool_) if table.frozen else table.take_touched()
            if touched is not None:
                self._masks[name] = touched | self._masks.get(name, np.False_)
        return dict(self._masks)

    def saved(self) -> None:
        """The checkpoint with the rows last collected is on disk."""
        self._masks.clear()


class IncrementalSaves:
    """The saves of a training: a whole checkpoint every so many, and between them what changed since the one before."""

    def __init__(
        self,
        tables: Mapping[str, ReadableTable],
        *,
        whole_every: int,
        every_row: Collection[str] = (),
        restored: Path | None = None,
    ) -> None:
        """Counts changes from now on.

        Args:
            whole_every: 1: every checkpoint is whole.
            every_row: see `Changes`.
            restored: directory of the checkpoint that the tables were just restored from; None: the first is whole.

        Raises:
            CheckpointError: the chain of `restored` is broken.
        """
        self._changes, self._whole_every = Changes(tables, every_row), whole_every
        self._base = restored
        self._since_whole = 0 if restored is None else len(increments.chain(restored / CHECKPOINT_NAME)) - 1

    def write(self, checkpoint: Any, prefix: str) -> None:
        """Writes the next checkpoint, once it is known whether the save before went well; see `write`.

        It is whole if the one before is gone.
        """
        changed, base = self._changes.collect(), None if self._base is None else self._base / CHECKPOINT_NAME
        if base is None or not index_of(base).is_file() or self._since_whole + 1 >= self._whole_every:
            streaming.write(checkpoint, prefix)
        else:
            streaming.write(checkpoint, prefix, base=str(base), changed=changed)

    def saved(self, directory: Path) -> None:
        """The checkpoint last written is on disk, in this directory beside that of the one before."""
        self._changes.saved()
        self._base = directory
        self._since_whole = self._since_whole + 1 if increments.is_incremental(directory / CHECKPOINT_NAME) else 0
