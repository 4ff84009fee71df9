"""Writing and reading a run's checkpoint, whole or incremental: tables, slots, dense model, optimizer, step counter.

The checkpoint is TensorFlow's object-based one, with the tables under the keys that `TPUEmbedding` writes:
`embedding/<table>` and `embedding/<table>.S<slot>`. `rekeying.to_names` makes it name-based; `naming` has the names.

Incremental checkpoints of a run: the rows of tables that training changed since the checkpoint before. Everything else
is whole in each of them. `streaming` restores them like whole ones.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.checkpoints import streaming, taking
from embexp.checkpoints.naming import as_objects
from embexp.checkpoints.paths import CHECKPOINT_NAME, plain_path
from embexp.errors import CheckpointError
from embexp.system import files, machine_faults
from embexp.tables.reading import Bypass, ReadableTable, bypass
from embexp.tensor_bundle import increments
from embexp.tensor_bundle.increments import Matrices, SomeRows, is_incremental
from embexp.tensor_bundle.rekeying import KEY_END, object_index
from embexp.tensor_bundle.writer import BundleWriter

Whole = Callable[[Path], AbstractContextManager[Path]]
"""Makes a directory whole or not at all: see `files.directory_written_whole`."""
_NUMBERS, _ROWS = "increment_numbers/", "increment/"
"""How the keys of changed rows' numbers, by table, and of the rows, by the matrix' key, begin."""


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


def keys(directory: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of all variables in a checkpoint, by key without `KEY_END`."""
    stored = Matrices(Path(prefix_in(directory)))
    return {key.removesuffix(KEY_END): shape for key, shape in stored.shapes().items() if key.endswith(KEY_END)}


def read(checkpoint: Any, directory: Path) -> None:
    """Restores all of a checkpoint, of either kind, into a like object.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged; or a variable is missing, extra or of another shape,
            which TensorFlow's own checks detect only in part.
        DataError: rows of a table are damaged.
    """
    prefix_in(directory)
    with plain_path(directory) as plain, as_objects(checkpoint, Path(f"{prefix_in(plain)}.index")) as prefix:
        _read(checkpoint, directory, prefix)


def _read(checkpoint: Any, directory: Path, prefix: str) -> None:
    faults = taking.planned_account(str(directory), checkpoint, Path(f"{prefix}.index")).faults()
    if faults:
        raise CheckpointError("\n".join([f"{directory} does not fit what it is restored into:", *faults]))
    try:
        with _damage_reported(directory):
            streaming.read(checkpoint, prefix)
    except (ValueError, AssertionError, tf.errors.InvalidArgumentError) as error:
        raise CheckpointError(f"{directory} does not fit what it is restored into: {error}") from error


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
    return str(object_index(directory)).removesuffix(".index")


@contextlib.contextmanager
def _damage_reported(directory: Path) -> Iterator[None]:
    """Turns TensorFlow's errors about damaged, truncated or missing files into a `CheckpointError`."""
    try:
        yield
    except tf.errors.InvalidArgumentError:
        raise
    except (tf.errors.OpError, IndexError) as error:
        raise CheckpointError(f"{directory} is damaged: {error}") from error


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
        gone = base is None or not base.with_name(f"{CHECKPOINT_NAME}.index").is_file()
        if gone or self._since_whole + 1 >= self._whole_every:
            streaming.write(checkpoint, prefix)
        else:
            write_increment(checkpoint, prefix, base=str(base), changed=changed)

    def saved(self, directory: Path) -> None:
        """The checkpoint last written is on disk, in this directory beside that of the one before."""
        self._changes.saved()
        self._base = directory
        self._since_whole = self._since_whole + 1 if increments.is_incremental(directory / CHECKPOINT_NAME) else 0


def write_increment(checkpoint: Any, prefix: str, *, base: str, changed: Mapping[str, np.ndarray]) -> None:
    """Writes a `tf.train.Checkpoint` with only those rows of its tables that changed; whole only at the end.

    A table is whole if all its rows changed; if all are, the checkpoint is a whole one.

    Args:
        base: prefix of the checkpoint since which the rows changed; the path to it from the new one is recorded.
        changed: by table, bool [rows]; tables that are left out are written whole.
    """
    tables = streaming.streamed_in(checkpoint)
    with bypass(tables, Bypass.SAVING):
        checkpoint.write(prefix)
    by_key = streaming.keys(tf.train.CheckpointView(prefix), checkpoint)
    some = {name: np.flatnonzero(mask) for name, mask in changed.items() if not mask.all()}
    with contextlib.closing(BundleWriter(Path(prefix), adding=True)) as writer:
        for name in sorted({table.table for table in by_key.values()} & some.keys()):
            writer.add_numbers(f"{_NUMBERS}{name}", some[name])
        matrices = {}
        for key, table in by_key.items():
            rows, dim = table.shape.as_list()
            if table.table not in some:
                writer.add(key, (rows, dim), table.blocks())
                continue
            numbers = some[table.table]
            writer.add(f"{_ROWS}{key}", (len(numbers), dim), table.some_blocks(numbers))
            matrices[key] = SomeRows((rows, dim), f"{_NUMBERS}{table.table}", f"{_ROWS}{key}")
        writer.finish()
    if matrices:
        increments.describe(Path(prefix), Path(base), matrices)
