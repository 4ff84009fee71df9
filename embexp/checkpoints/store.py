"""The checkpoints of a training on disk: one directory per step, written whole or not at all, the newest kept.

A checkpoint is TensorFlow's object-based one, with the tables under the keys that `TPUEmbedding` writes:
`embedding/<table>` and `embedding/<table>.S<slot>`. `writer.to_names` makes it name-based; `naming` has the names.
`streaming` writes it, and `restoring` reads it. Imports no TensorFlow before that.
"""

from __future__ import annotations

import errno
import json
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.checkpoints.paths import CHECKPOINT_NAME, plain_path
from embexp.errors import CheckpointError, DataError, EmbexpError
from embexp.system import files, machine_faults
from embexp.system.tensor_bundle import increments
from embexp.system.tensor_bundle import index as bundle_index
from embexp.system.tensor_bundle.increments import is_incremental
from embexp.system.tensor_bundle.index import index_of, prefix_of
from embexp.system.tensor_bundle.writer import hard_linked, object_index

STATE = "state.json"
_STEP = re.compile(r"step_(\d{8,})")
Whole = Callable[[Path], AbstractContextManager[Path]]
"""Makes a directory whole or not at all: see `files.directory_written_whole`."""


@dataclass(frozen=True)
class SavedStep:
    """The checkpoint of a step, of which `state.json` tells how the training stood.

    Attributes:
        state: the content of `state.json`.
    """

    directory: Path
    state: dict[str, Any]

    @property
    def step(self) -> int:
        """Number of steps done."""
        return int(self.state["outcome"]["steps"])


def step_directory(checkpoints: Path, step: int) -> Path:
    """Directory of the checkpoint of a step."""
    return checkpoints / f"step_{step:08d}"


def step_directories(checkpoints: Path) -> list[Path]:
    """Directories of the checkpoints of steps, oldest first."""
    if not checkpoints.is_dir():
        return []
    found = {match[1]: path for path in checkpoints.iterdir() if (match := _STEP.fullmatch(path.name))}
    return [found[step] for step in sorted(found, key=int)]


def read_state(directory: Path) -> SavedStep:
    """Reads `state.json` and checks that all files of the checkpoint are there, with their sizes.

    Raises:
        DataError: the checkpoint is torn, or holds no state to continue from.
    """
    path = directory / STATE
    try:
        state = json.loads(path.read_bytes())
        sizes = dict(state["files"])
        int(state["outcome"]["steps"])
    except FileNotFoundError:
        raise DataError(f"{directory}: there is no {STATE} in it") from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is damaged: {error}") from None
    for name, size in sizes.items():
        file = directory / name
        found = file.stat().st_size if file.is_file() else None
        if found != size:
            words = "is missing" if found is None else f"has {found} bytes"
            raise DataError(f"{directory}: {name} {words}, and was written with {size}")
    return SavedStep(directory, state)


def check_content(directory: Path) -> None:
    """Reads every tensor once, also of those that an incremental checkpoint needs, and compares checksums.

    Raises:
        CheckpointError: a checkpoint that an incremental one needs is missing, or has changed.
        DataError: a tensor, or an index, is damaged.
    """
    for link in increments.chain(directory / CHECKPOINT_NAME):
        for key in link.entries:
            link.tensor(key).verify()


def newest_first(checkpoints: Path, torn: list[str], *, checked: bool = True) -> Iterator[SavedStep]:
    """The whole checkpoints of a training, newest first; a torn one is skipped.

    Args:
        torn: receives a sentence about each that is skipped.
        checked: whether every tensor is read and checked.
    """
    for directory in reversed(step_directories(checkpoints)):
        try:
            saved = read_state(directory)
            if checked:
                check_content(directory)
        except EmbexpError as error:
            torn.append(f"skipped the checkpoint {directory.name}: {error}")
        else:
            yield saved


def prune(checkpoints: Path, keep: int | None, *, latest: Path) -> None:
    """Removes all but the `keep` newest checkpoints of steps, and those that these need; None keeps all.

    Args:
        latest: the newest checkpoint, of a step or another one, as TensorFlow is to find it: see `mark_latest`.
    """
    directories = step_directories(checkpoints)
    kept = set(directories)
    if keep is not None:
        kept = increments.needed(directories[max(0, len(directories) - keep) :])
    mark_latest(checkpoints, [each for each in directories if each in kept], latest)
    for directory in directories:
        if directory not in kept:
            remove(directory)


def mark_latest(checkpoints: Path, kept: Sequence[Path], latest: Path) -> None:
    """Has `tf.train.latest_checkpoint` find a checkpoint, and `tf.train.get_checkpoint_state` the others that are kept.

    To be called before others are removed: what the file names is always there. Incremental ones are not named, as
    TensorFlow can't restore them.
    """
    prefixes = [each / CHECKPOINT_NAME for each in (*(each for each in kept if each != latest), latest)]
    whole = [each for each in prefixes if index_of(each).is_file() and not is_incremental(each)]
    if whole:
        bundle_index.mark_latest(checkpoints, whole)
    else:
        bundle_index.unmark(checkpoints)


def remove(directory: Path) -> None:
    """Removes a checkpoint, which is gone for readers at once: renamed first, then deleted."""
    gone = directory.with_name(f".{directory.name}{files.REMOVED}")
    shutil.rmtree(gone, ignore_errors=True)
    try:
        directory.rename(gone)
    except FileNotFoundError:
        return
    files.to_disk(directory.parent)  # else it may come back when the power is lost, after the run has ended
    shutil.rmtree(gone, ignore_errors=True)
    files.to_disk(directory.parent)  # likewise, what is left under the other name


def write_by(
    write_to: Callable[[str], object],
    directory: Path,
    *,
    finish: Callable[[Path], object] = lambda temporary: None,
    whole: Whole = files.atomic_directory,
) -> Path:
    """Has `write_to(prefix)` write a checkpoint into `directory`, which appears whole or not at all, and returns it.

    An older checkpoint of that name is replaced.

    Args:
        write_to: writes the files of a prefix whose path TensorFlow takes as it is.
        finish: called with the temporary directory, before it becomes `directory`; it may add files.

    Raises:
        CheckpointError: a file can't be written; what was there before is whole.
    """
    import tensorflow as tf  # not above: what only lists checkpoints needs none

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


def _reason(error: Any) -> str:
    """Why a file can't be written, of an `OSError` or an error of TensorFlow, and what helps."""
    text = machine_faults.reason(error)
    is_full = machine_faults.is_full(error, (errno.ENOSPC, errno.EDQUOT))
    return f"{text}; checkpoint.keep=1 keeps fewer" if is_full else text


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
            hard_linked(file, copied)


def prefix_in(directory: Path) -> str:
    """Prefix of the checkpoint in a directory: of the object-based one, if it has both kinds.

    Raises:
        CheckpointError: there is none.
    """
    if not (directory / f"{CHECKPOINT_NAME}.index").exists():
        raise CheckpointError(f"{directory} holds no checkpoint: there is no {CHECKPOINT_NAME}.index in it")
    return str(prefix_of(object_index(directory)))
