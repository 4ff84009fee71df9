"""Finding the index of a checkpoint: by its prefix, one of its files, or its folder, where a file names the latest."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from embexp.errors import DataError
from embexp.system import files
from embexp.system.tensor_bundle import first_format, index

_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
STATE = "checkpoint"
_LONGEST = 1 << 20


def index_of(path: Path, *, cache: Path | None = None) -> Path | None:
    """The `.index` file of a checkpoint named by its prefix, its index or its folder; None: it is no checkpoint.

    Args:
        path: of the checkpoint; one of TensorFlow's first format (V1) is converted.
        cache: folder of what was converted before; None: the user's.

    Raises:
        DataError: a folder with several checkpoints, of which none is marked as the latest; or one of the first format
            is damaged.
    """
    found = find(path)
    return None if found is None else first_format.index_of(found, cache=cache)


def find(path: Path) -> Path | None:
    """As `index_of`; of a checkpoint of the first format its path, as it is not converted."""
    if path.name.endswith(".index"):
        return path
    beside = path.parent / f"{path.name}.index"
    if beside.is_file():
        return beside
    if first_format.is_first_format(path):
        return path
    found = indexes_in(path)
    if not found:
        return marked_first_format(path)
    if len(found) == 1:
        return found[0]
    if (marked := marked_latest(path)) is not None:
        return marked
    listed = ", ".join(each.name.removesuffix(".index") for each in found)
    raise DataError(f"{path}: found {len(found)} checkpoints, expected the one to read: {listed}")


def indexes_in(folder: Path) -> list[Path]:
    """The indexes in a folder, by name; none where it is no folder."""
    return sorted(path for path in folder.glob("*.index") if path.is_file()) if folder.is_dir() else []


def marked_latest(folder: Path) -> Path | None:
    """The index of the checkpoint that TensorFlow's file `checkpoint` names as the latest; None: there is no such file.

    Of the path in the file only the last part counts, so that a folder can be moved.
    """
    for word, name in _marked(folder):
        if word == b"model_checkpoint_path":
            return folder / f"{Path(name).name}.index"
    return None


def marked_first_format(folder: Path) -> Path | None:
    """The latest checkpoint by TensorFlow's file `checkpoint`, if it is of the first format (V1)."""
    latest = marked_latest(folder)
    found = None if latest is None else index.prefix_of(latest)
    return found if found is not None and first_format.is_first_format(found) else None


def marked(folder: Path) -> list[Path]:
    """The prefixes of all checkpoints that TensorFlow's file `checkpoint` names and that are there, oldest first.

    Of an absolute path only the last part counts, so that a folder can be moved.
    """
    names = [Path(name) for word, name in _marked(folder) if word == b"all_model_checkpoint_paths"]
    prefixes = [folder / (each.name if each.is_absolute() else each) for each in names]
    return [prefix for prefix in prefixes if index.index_of(prefix).is_file()]


def mark_latest(folder: Path, prefixes: Sequence[Path]) -> None:
    """Writes TensorFlow's file `checkpoint`, in which `tf.train.latest_checkpoint` finds the last of some checkpoints.

    Args:
        prefixes: of all checkpoints that are kept, the oldest first, in the folder or below it.
    """
    paths = [_escaped(os.fsencode(prefix.relative_to(folder))) for prefix in prefixes]
    lines = [f'model_checkpoint_path: "{paths[-1]}"', *(f'all_model_checkpoint_paths: "{path}"' for path in paths)]
    files.write_text(folder / STATE, "".join(f"{line}\n" for line in lines))


def unmark(folder: Path) -> None:
    """Removes TensorFlow's file `checkpoint`, where no checkpoint is left."""
    (folder / STATE).unlink(missing_ok=True)


def _marked(folder: Path) -> Iterator[tuple[bytes, str]]:
    """The fields of TensorFlow's file `checkpoint` and their values; none if there is no such file."""
    state = folder / STATE
    if not state.is_file():
        return
    with files.opened(state) as file:
        content = file.read(_LONGEST)  # the latest is named at its beginning
    for line in content.splitlines():
        word, _, value = line.partition(b":")
        yield word.strip(), os.fsdecode(_ESCAPE.sub(_unescaped, value.strip().strip(b'"')))


def _escaped(value: bytes) -> str:
    """A string in the text form of a protocol buffer."""
    return "".join(chr(byte) if 0x20 <= byte < 0x7F and byte not in b"\"'\\" else f"\\{byte:03o}" for byte in value)


def _unescaped(escape: re.Match[bytes]) -> bytes:
    """The character that an escape in the text form of a protocol buffer stands for."""
    return bytes([int(escape[1], 8) & 0xFF]) if escape[1][:1] in b"01234567" else escape[1]
