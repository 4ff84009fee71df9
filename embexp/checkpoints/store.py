"""Writing and reading a run's checkpoint: tables, slots, dense model, dense optimizer and step counter.

The checkpoint is TensorFlow's object-based one, with the tables under the keys that `TPUEmbedding` writes:
`embedding/<table>` and `embedding/<table>.S<slot>`.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import tensorflow as tf

from embexp.checkpoints import streaming
from embexp.errors import CheckpointError
from embexp.system import files
from embexp.tensor_bundle.overlay import Matrices

_PREFIX = "checkpoint"
KEY_END = "/.ATTRIBUTES/VARIABLE_VALUE"
"""The end of the key of every variable in an object-based checkpoint."""


def write(checkpoint: Any, directory: Path) -> Path:
    """Writes a `tf.train.Checkpoint` into `directory`, which appears whole or not at all, and returns it.

    An older checkpoint of that name is replaced.
    """
    return write_by(partial(streaming.write, checkpoint), directory)


def write_by(write_to: Callable[[str], object], directory: Path) -> Path:
    """Has `write_to(prefix)` write a checkpoint into `directory`, as `write` does."""
    if not directory.exists():
        with files.directory_written_whole(directory) as temporary:
            write_to(str(temporary / _PREFIX))
        return directory
    beside = Path(tempfile.mkdtemp(dir=directory.parent, prefix=f".{directory.name}.", suffix=".part"))
    new, old = beside / "new", beside / "old"
    try:
        with files.directory_written_whole(new) as temporary:
            write_to(str(temporary / _PREFIX))
        # The old one is renamed only when the new one is complete, and deleted only when that is in its place.
        directory.rename(old)
        new.rename(directory)
    except BaseException:
        if old.exists():
            old.rename(directory)
        shutil.rmtree(beside, ignore_errors=True)
        raise
    shutil.rmtree(beside, ignore_errors=True)
    return directory


def keys(directory: Path) -> dict[str, tuple[int, ...]]:
    """Shapes of all variables in a checkpoint, by key without `KEY_END`."""
    stored = Matrices(Path(prefix_in(directory)))
    return {key.removesuffix(KEY_END): shape for key, shape in stored.shapes().items() if key.endswith(KEY_END)}


def read(checkpoint: Any, directory: Path) -> None:
    """Restores all of a checkpoint into a like object.

    Raises:
        CheckpointError: there is no checkpoint, or it is damaged; or a variable is missing, extra or of another shape,
            which TensorFlow's own checks detect only in part.
        DataError: rows of a table are damaged.
    """
    prefix = prefix_in(directory)
    with _damage_reported(prefix):
        stored = tf.train.CheckpointView(prefix)
    _, extra, missing = stored.diff(checkpoint)
    names = stored.children(0)
    faults = sorted(f"lacks {_describe(entry)}" for entry in missing if _is_value(entry))
    faults += sorted(f"has an extra {name}" for name in _names_of(stored, extra))
    if faults:
        raise CheckpointError(
            f"{directory} does not fit: it {'; it '.join(faults)}. It holds {', '.join(sorted(names))}."
        )
    try:
        with _damage_reported(prefix):
            streaming.read(checkpoint, prefix)
    except (ValueError, AssertionError, tf.errors.InvalidArgumentError) as error:
        raise CheckpointError(f"{directory} does not fit what it is restored into: {error}") from error


def copy(prefix: str, target: str) -> None:
    """Copies the files of a checkpoint to another prefix, by hard links where the file system has them."""
    for file in Path(prefix).parent.glob(f"{Path(prefix).name}.*"):
        ending = file.name.removeprefix(Path(prefix).name)
        if ending != ".meta":
            copied = Path(f"{target}{ending}")
            copied.unlink(missing_ok=True)
            try:
                copied.hardlink_to(file)
            except OSError:
                shutil.copy2(file, copied)


def prefix_in(directory: Path) -> str:
    """Prefix of the checkpoint in a directory.

    Raises:
        CheckpointError: there is none.
    """
    if not (directory / f"{_PREFIX}.index").exists():
        raise CheckpointError(f"{directory} holds no checkpoint: there is no {_PREFIX}.index in it")
    return str(directory / _PREFIX)


@contextlib.contextmanager
def _damage_reported(prefix: str) -> Iterator[None]:
    """Turns TensorFlow's errors about damaged, truncated or missing files into a `CheckpointError`."""
    try:
        yield
    except tf.errors.InvalidArgumentError:
        raise
    except (tf.errors.OpError, IndexError) as error:
        raise CheckpointError(f"{prefix} is damaged: {error}") from error


def _is_value(entry: Any) -> bool:
    """Whether this is a variable, or several that are written as one."""
    return isinstance(entry, tf.Variable) or hasattr(entry, "covered")


def _describe(entry: Any) -> str:
    return f"{entry.name.split(':')[0]} {tuple(entry.shape)}"


def _names_of(view: Any, nodes: Any) -> list[str]:
    values = set(nodes)
    names: list[str] = []
    reached: set[int] = set()
    pending: list[tuple[int, str]] = [(0, "")]
    while pending:
        node, path = pending.pop()
        if node in reached:
            continue
        reached.add(node)
        children = view.children(node)
        if node in values and not children:
            names.append(path.lstrip("/"))
        pending.extend((child, f"{path}/{name}") for name, child in children.items())
    return names
