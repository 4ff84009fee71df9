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

from embexp.errors import CheckpointError, DataError
from embexp.system import files
from embexp.system.tensor_bundle import index as bundle_index
from embexp.system.tensor_bundle.increments import require_whole
from embexp.system.tensor_bundle.index import data_file, data_files, read_encoded, read_index
from embexp.system.tensor_bundle.writer import index_content, object_index

CHECKPOINT_NAME = "checkpoint"
"""Prefix of a checkpoint in a folder of its own."""
EXPECTED = (
    "a run's directory, a checkpoint's prefix, folder or .index file, a SavedModel, or a .weights.h5 or .keras file"
)
ZIP = b"PK\x03\x04"
_HDF5 = b"\x89HDF\r\n\x1a\n"
_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_STEP = re.compile(r"step_(\d+)$")
_PATTERN = frozenset("*?[\\")
_DATA = re.compile(r"\.data-[0-9]{5}-of-([0-9]{5})")


def index_of(path: Path | str, *, as_objects: bool = True) -> Path:
    """The index of a TensorFlow checkpoint.

    Args:
        path: see `contents.open_checkpoint`; of no other format.
        as_objects: whether the object-based one is taken where a run saved both kinds over the same data files.

    Raises:
        CheckpointError: it is incremental.
        DataError: there is none.
    """
    index = find(Path(path))
    require_whole(index)
    return object_index(index.parent) if as_objects and index.name == f"{CHECKPOINT_NAME}.index" else index


def files_of(index: Path) -> tuple[Path, ...]:
    """The files of a checkpoint: its index, and all data files that it names.

    Raises:
        DataError: the index is damaged.
    """
    return (index, *data_files(read_index(index).values()))


def find(path: Path) -> Path:
    """The `.index` file of the TensorFlow checkpoint that a path stands for, see `open_checkpoint`.

    Raises:
        DataError: there is none.
    """
    prefix = _ENDING.sub("", path.name)
    beside = path.parent / f"{prefix}.index"
    if beside.is_file() or prefix != path.name:
        return beside
    if not path.is_dir():
        if fault := files.fault_of(path):
            raise DataError(f"{path}: {fault.replace('no such file', 'no such file or folder')}; give {EXPECTED}")
        raise DataError(f"{path}: it is no file of weights; give {EXPECTED}")
    if is_saved_model(path):
        variables = path / "variables" / "variables.index"
        if not variables.is_file():
            raise DataError(f"{path}: found a SavedModel without variables")
        return variables
    for folder in (path, *_of_run(path / "checkpoints"), *_of_run(path)):
        if (found := _newest(folder)) is not None:
            return found
    runs = sorted(each.parent.name for each in path.glob("*/checkpoints"))
    hint = f"its folders {', '.join(runs[:5])} have some" if runs else f"give {EXPECTED}"
    raise DataError(f"{path}: found no checkpoint in this folder; {hint}")


def _of_run(checkpoints: Path) -> list[Path]:
    """Folders in which a run may have a checkpoint, the best first."""
    steps = [(int(found[1]), path) for path in checkpoints.glob("step_*") if (found := _STEP.search(path.name))]
    newest_first = [each for _, each in sorted(steps, reverse=True)]
    return [checkpoints / "final", *newest_first, checkpoints / "estimator", checkpoints / "best"]


def _newest(folder: Path) -> Path | None:
    """The index of the newest checkpoint in a folder; None: it has none."""
    found = bundle_index.indexes_in(folder)
    if len(found) > 1 and (marked := bundle_index.marked_latest(folder)) in found:
        return marked
    return max(found, key=lambda index: index.stat().st_mtime_ns, default=None)


def is_saved_model(folder: Path) -> bool:
    """Whether this is the folder of a SavedModel."""
    return any((folder / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt"))


def is_keras_file(path: Path | str) -> bool:
    """Whether this is a `.weights.h5` or `.keras` file: it begins as HDF5 or as a zip."""
    return Path(path).is_file() and first_bytes(Path(path)).startswith((_HDF5, ZIP))


def first_bytes(path: Path) -> bytes:
    """The first 8 bytes of a file."""
    with files.opened(path) as file:
        return file.read(8)


def prefix_for(path: Path | str) -> Path:
    """The prefix of a checkpoint to write: the path itself, or `checkpoint` in it if it is a folder."""
    path = Path(path)
    return path / CHECKPOINT_NAME if path.is_dir() else path


def files_at(prefix: Path) -> list[Path]:
    """Files of a checkpoint with this prefix that are there, also without its index."""
    if not prefix.parent.is_dir():
        return []
    index = prefix.with_name(f"{prefix.name}.index")
    return sorted([*(path for path, _ in _data_files(prefix)), *([index] if os.path.lexists(index) else [])])


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
        only_first: nothing is written where such a file is: a program may go on from what it names, or it is no such
            file.

    Raises:
        CheckpointError: the file can't be written; the checkpoint is whole.
    """
    folder = prefix.parent
    if only_first and os.path.lexists(folder / bundle_index.STATE):
        return
    try:
        bundle_index.mark_latest(folder, [*(each for each in bundle_index.marked(folder) if each != prefix), prefix])
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
    for path in prefix.parent.iterdir():
        if path.name.startswith(f"{prefix.name}.data-"):
            found = _DATA.fullmatch(path.name.removeprefix(prefix.name))
            if found is not None:
                yield path, found[1]
