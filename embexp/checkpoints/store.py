r"""Checkpoints on disk: found from what users name, as TensorFlow takes their paths, and written whole or not at all.

Those of a training are in one directory per step, the newest of which are kept. Each is TensorFlow's object-based one,
with the tables under the keys that `TPUEmbedding` writes: `embedding/<table>` and `embedding/<table>.S<slot>`.
`writer.to_names` makes it name-based; `naming` has the names. `streaming` writes it, and `restoring` reads it. Imports
no TensorFlow before that.

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
import errno
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embexp.errors import CheckpointError, DataError, EmbexpError
from embexp.system import files, machine_faults
from embexp.system.tensor_bundle import increments
from embexp.system.tensor_bundle import index as bundle_index
from embexp.system.tensor_bundle.increments import is_incremental, require_whole
from embexp.system.tensor_bundle.index import data_file, index_of, prefix_of, read_encoded
from embexp.system.tensor_bundle.writer import hard_linked, index_content, object_index

CHECKPOINT_NAME = "checkpoint"
"""Prefix of a checkpoint in a folder of its own."""
EXPECTED = (
    "a run's directory, a checkpoint's prefix, folder or .index file, a SavedModel, or a .weights.h5 or .keras file"
)
ZIP = b"PK\x03\x04"
_HDF5 = b"\x89HDF\r\n\x1a\n"
_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_STEP_FOLDER = re.compile(r"step_(\d+)$")
_PATTERN = frozenset("*?[\\")
_DATA = re.compile(r"\.data-[0-9]{5}-of-([0-9]{5})")
STATE = "state.json"
_STEP = re.compile(r"step_(\d{8,})")
Whole = Callable[[Path], AbstractContextManager[Path]]
"""Makes a directory whole or not at all: see `files.directory_written_whole`."""


def find_index(path: Path | str, *, as_objects: bool = True, whole: bool = False) -> Path:
    """The index of a TensorFlow checkpoint.

    Args:
        path: see `contents.open_checkpoint`; of no other format.
        as_objects: whether the object-based one is taken where a run saved both kinds over the same data files.
        whole: whether it must not be incremental.

    Raises:
        CheckpointError: it is incremental, and must not be.
        DataError: there is none.
    """
    index = find(Path(path))
    if whole:
        require_whole(index)
    return object_index(index.parent) if as_objects and index.name == f"{CHECKPOINT_NAME}.index" else index


def files_of(index: Path) -> tuple[Path, ...]:
    """The files of a checkpoint, and of those that it is based on if it is incremental.

    Raises:
        CheckpointError: it is incremental, and what it is based on is missing or has changed.
        DataError: the index is damaged.
    """
    return tuple(increments.files_of(increments.chain(prefix_of(index))))


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
        raise DataError(f"{path}: it is not a file of weights; give {EXPECTED}")
    if is_saved_model(path):
        variables = path / "variables" / "variables.index"
        if not variables.is_file():
            raise DataError(f"{path}: found a SavedModel without variables")
        return variables
    for folder in (path, *_of_run(path / "checkpoints"), *_of_run(path)):
        if (found := _newest(folder)) is not None:
            return found
    runs = sorted(each.parent.name for each in path.glob("*/checkpoints"))
    hint = f"its folders {', '.join(runs[:5])} have checkpoints" if runs else f"give {EXPECTED}"
    raise DataError(f"{path}: found no checkpoint in this folder; {hint}")


def _of_run(checkpoints: Path) -> list[Path]:
    """Folders in which a run may have a checkpoint, the best first."""
    steps = [(int(found[1]), path) for path in checkpoints.glob("step_*") if (found := _STEP_FOLDER.search(path.name))]
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
        f"{directory}: TensorFlow reads * ? [ and \\ in a path as a pattern, but every directory for temporary "
        f"files has such a character. Set TMPDIR to a directory without them"
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


def mark_published(prefix: Path, *, only_first: bool = False) -> None:
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
            raise DataError(f"{directory}: {name} {words}, but was written with {size}")
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
    try:
        if directory.exists():
            _replace(write_to, directory, finish)
        else:
            _write_new(write_to, directory, finish, whole)
    except Exception as error:
        # TensorFlow's are known by name: what only lists checkpoints imports none.
        if not isinstance(error, OSError) and "OpError" not in {kind.__name__ for kind in type(error).__mro__}:
            raise
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
        CheckpointError: there is no checkpoint, or it is incremental and its base would be elsewhere; or the copy can't
            be written.
    """
    prefix = prefix_in(directory)
    if directory.parent != target.parent and is_incremental(Path(prefix)):
        raise CheckpointError(f"{directory} is an incremental checkpoint, but a full one is needed")
    return write_by(lambda to: copy(prefix, to), target, finish=finish)


def copy(prefix: str, target: str) -> None:
    """Copies the files of a checkpoint to another prefix, by hard links where the file system has them.

    The copy of an incremental one belongs into a folder beside that of its base.
    """
    for ending, file in _files(Path(prefix)):
        copied = Path(f"{target}{ending}")
        copied.unlink(missing_ok=True)
        hard_linked(file, copied)


def _files(prefix: Path) -> Iterator[tuple[str, Path]]:
    """The files of a checkpoint, each with how its name ends."""
    for file in sorted(prefix.parent.iterdir()):
        ending = file.name.removeprefix(prefix.name)
        if ending.startswith((".index", ".data-", increments.ENDING)) and file.name.startswith(prefix.name):
            yield ending, file


def link_earlier(index: Path, checkpoints: Path) -> Path | None:
    """Makes the final checkpoint of another run, with all that it is based on, one that those of a run may be based on.

    Its files have further names in folders beside these checkpoints (hard links), which take no room as long as the
    other run is there. It may be removed: its files stay under these names.

    Args:
        index: of the final checkpoint of the other run.
        checkpoints: folder of the run's checkpoints. What it has of such folders already is kept, or replaced.

    Returns:
        The prefix of the last of them; None: the file system can't do that, or the checkpoint is not in one folder.

    Raises:
        CheckpointError: what the checkpoint is based on is missing or has changed; or no folder can be made.
    """
    links = increments.chain(prefix_of(index))[::-1]
    in_place = all(path.parent == each.prefix.parent for each in links for path in increments.files_of([each]))
    names = [f"{increments.EARLIER}{number}" for number in range(1, len(links) + 1)]
    if not in_place or [each.base and each.base.parent.name for each in links[1:]] != names[:-1]:
        return None
    for name, each in zip(names, links, strict=True):
        target = checkpoints / name
        if target.exists():
            if increments.digest_of(target / CHECKPOINT_NAME) == increments.digest_of(each.prefix):
                continue
            remove(target)
        try:
            with files.atomic_directory(target) as temporary:
                for ending, file in _files(each.prefix):
                    (temporary / f"{CHECKPOINT_NAME}{ending}").hardlink_to(file.resolve())
        except OSError:
            return None
    return checkpoints / names[-1] / CHECKPOINT_NAME


def follows_step(directory: Path) -> bool:
    """Whether a checkpoint has only what changed since another one of the same training."""
    base = increments.link(directory / CHECKPOINT_NAME).base
    return base is not None and not base.parent.name.startswith(increments.EARLIER)


def remove_unneeded(checkpoints: Path) -> None:
    """Removes checkpoints of earlier runs that none of a run's is based on."""
    own = [each.parent for each in checkpoints.glob(f"*/{CHECKPOINT_NAME}.index")]
    needed = increments.needed(each for each in own if not each.name.startswith((increments.EARLIER, ".")))
    for directory in checkpoints.glob(f"{increments.EARLIER}*"):
        if directory not in needed:
            remove(directory)


def prefix_in(directory: Path) -> str:
    """Prefix of the checkpoint in a directory: of the object-based one, if it has both kinds.

    Raises:
        CheckpointError: there is none.
    """
    if not (directory / f"{CHECKPOINT_NAME}.index").exists():
        raise CheckpointError(f"{directory} holds no checkpoint: there is no {CHECKPOINT_NAME}.index in it")
    return str(prefix_of(object_index(directory)))
