"""Writing and reading a run's checkpoint: tables, slots, dense model, dense optimizer and step counter.

The checkpoint is TensorFlow's object-based one, with the tables under the keys that `TPUEmbedding` writes:
`embedding/<table>` and `embedding/<table>.S<slot>`. `rekeying.to_names` makes it name-based; `naming` has the names.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from embexp.checkpoints import planning, streaming
from embexp.checkpoints.by_name import as_objects
from embexp.checkpoints.locating import NAME
from embexp.checkpoints.plain_paths import plain_path
from embexp.errors import CheckpointError
from embexp.system import files, machine_faults
from embexp.tensor_bundle.increments import Matrices, is_incremental
from embexp.tensor_bundle.rekeying import KEY_END, object_index

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
    whole: Whole = files.directory_written_whole,
) -> Path:
    """Has `write_to(prefix)` write a checkpoint into `directory`, as `write` does.

    Args:
        write_to: writes the files of a prefix whose path TensorFlow takes as it is.
        directory: of the checkpoint.
        finish: called with the temporary directory, before it becomes `directory`; it may add files.
        whole: makes a new directory.

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
    whole: Whole = files.directory_written_whole,
) -> None:
    with whole(directory) as temporary:
        with plain_path(temporary) as plain:
            write_to(str(plain / NAME))
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
        directory: of the checkpoint.
        target: of the copy.
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
    faults = planning.account(str(directory), checkpoint, Path(f"{prefix}.index")).faults()
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
    if not (directory / f"{NAME}.index").exists():
        raise CheckpointError(f"{directory} holds no checkpoint: there is no {NAME}.index in it")
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
