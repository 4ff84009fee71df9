r"""Paths of checkpoints: found from what users name, as TensorFlow takes them, and written whole or not at all.

Directories whose names TensorFlow would read as patterns, by an alias that it takes as it is. TensorFlow writes to any
path. It looks for a checkpoint's files by `Env::GetMatchingPaths`, for which `*`, `?`, `[` and `\` in the whole path,
directories included, are a pattern. A path with `[64]` or `\` does not match itself, so that `RestoreV2` and
`CheckpointReader`, and with them `tf.train.Checkpoint`, `tf.train.latest_checkpoint` and `Saver.restore`, report a
checkpoint that is there as missing, and `CheckpointManager` deletes no old ones. A path with `*` or `?` matches others
too, whose files it would delete. No other character does harm. Sources: tensorflow/core/kernels/save_restore_v2_ops.cc,
tensorflow/c/checkpoint_reader.cc, tensorflow/python/checkpoint/checkpoint_management.py,
tsl/platform/file_system_helper.cc
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from embexp.checkpoints.opening import find_index, starts_as_keras
from embexp.errors import CheckpointError
from embexp.system import files
from embexp.tensor_bundle import location
from embexp.tensor_bundle.increments import require_whole
from embexp.tensor_bundle.index import data_file, read_encoded, read_index
from embexp.tensor_bundle.rekeying import object_index
from embexp.tensor_bundle.writer import index_content

CHECKPOINT_NAME = "checkpoint"
"""Prefix of a checkpoint in a folder of its own."""
_PATTERN = frozenset("*?[\\")
_DATA = re.compile(r"\.data-[0-9]{5}-of-([0-9]{5})")


def index_of(path: Path | str, *, as_objects: bool = True) -> Path:
    """The index of a TensorFlow checkpoint.

    Args:
        path: see `opening.open_checkpoint`; of no other format.
        as_objects: whether the object-based one is taken where a run saved both kinds over the same data files.

    Raises:
        CheckpointError: it is incremental.
        DataError: there is none.
    """
    index = find_index(Path(path))
    require_whole(index)
    return object_index(index.parent) if as_objects and index.name == f"{CHECKPOINT_NAME}.index" else index


def files_of(index: Path) -> tuple[Path, ...]:
    """The files of a checkpoint: its index, and all data files that it names.

    Raises:
        DataError: the index is damaged.
    """
    return (index, *sorted({piece.path for entry in read_index(index).values() for piece in entry.pieces}))


def is_keras_file(path: Path | str) -> bool:
    """Whether this is a `.weights.h5` or `.keras` file, by how it begins."""
    return Path(path).is_file() and starts_as_keras(Path(path))


def prefix_for(path: Path | str) -> Path:
    """The prefix of a checkpoint to write: the path itself, or `checkpoint` in it if it is a folder."""
    path = Path(path)
    return path / CHECKPOINT_NAME if path.is_dir() else path


def is_plain(path: Path) -> bool:
    """Whether TensorFlow takes a path, made absolute, as it is."""
    return not _PATTERN & set(str(path.absolute()))


@contextlib.contextmanager
def plain_path(directory: Path) -> Iterator[Path]:
    """A path of an existing directory that TensorFlow takes as it is, as long as the block lasts.

    That is the directory's own path if it is plain, otherwise a symbolic link to it in a temporary directory. Files
    that are written through it are in `directory`. What TensorFlow reads later, such as values of variables that are
    created later, must be read inside the block.

    Raises:
        CheckpointError: there is no plain temporary directory either.
    """
    if is_plain(directory):
        yield directory
        return
    with tempfile.TemporaryDirectory(prefix="embexp-", dir=plain_temporary(directory)) as folder:
        alias = Path(folder) / "alias"
        alias.symlink_to(directory.absolute(), target_is_directory=True)
        yield alias


def plain_temporary(directory: Path) -> str:
    """A directory for temporary files that TensorFlow takes as it is; `directory` is for the error.

    Raises:
        CheckpointError: there is none.
    """
    for candidate in (tempfile.gettempdir(), "/tmp", "/var/tmp", "/dev/shm"):
        if is_plain(Path(candidate)) and os.access(candidate, os.W_OK | os.X_OK):
            return candidate
    raise CheckpointError(
        f"{directory}: TensorFlow reads * ? [ and \\ in a path as a pattern, and no directory for temporary files is"
        " without them. Set TMPDIR to one that is"
    )


@contextlib.contextmanager
def published(prefix: Path) -> Iterator[Path]:
    """A temporary folder; the checkpoint `checkpoint` in it gets its prefix when the block ends without an error.

    Its files are on disk (fsync) before that. The index is renamed last. A checkpoint of that prefix is replaced: until
    then it is whole, as the number of data files, which is in the names of all, differs from its own.

    Raises:
        CheckpointError: a file can't be written; what was there before is whole.
    """
    try:
        prefix.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=prefix.parent, prefix=f".{prefix.name}.", suffix=".part") as folder:
            yield Path(folder)
            _publish(Path(folder) / f"{CHECKPOINT_NAME}.index", prefix)
    except OSError as error:
        raise CheckpointError(f"{prefix}: the checkpoint can't be written: {error.strerror or error}") from error


def mark_latest(prefix: Path, *, only_first: bool = False) -> None:
    """Has `tf.train.latest_checkpoint` find a published checkpoint in its folder, beside those that it names already.

    Args:
        only_first: nothing is written where another checkpoint is named: a program may go on from that.

    Raises:
        CheckpointError: the file can't be written; the checkpoint is whole.
    """
    folder = prefix.parent
    if only_first and location.marked_latest(folder) is not None:
        return
    try:
        location.mark_latest(folder, [*(each for each in location.marked(folder) if each != prefix), prefix])
    except OSError as error:
        reason = error.strerror or error
        raise CheckpointError(
            f"{prefix}: TensorFlow's file that names the latest can't be written: {reason}"
        ) from error


def _publish(index: Path, prefix: Path) -> None:
    entries, shards = read_encoded(index)
    target = prefix.with_name(f"{prefix.name}.index")
    old = {each: int(count) for each, count in _data_files(prefix)}
    total = shards
    while total in old.values():
        total += 1
    for shard in range(shards):
        file = data_file(index, shard, shards)
        if file.exists():
            files.to_disk(file)
            os.replace(file, data_file(target, shard, total))
    files.to_disk(prefix.parent)
    with files.atomic_write(target) as written:
        written.write(index_content(entries, total))
    files.to_disk(prefix.parent)
    for each in old:
        each.unlink(missing_ok=True)


def _data_files(prefix: Path) -> Iterator[tuple[Path, str]]:
    for each in prefix.parent.iterdir():
        if each.name.startswith(f"{prefix.name}.data-"):
            found = _DATA.fullmatch(each.name.removeprefix(prefix.name))
            if found is not None:
                yield each, found[1]
