"""Finding the index of a checkpoint: by its prefix, one of its files, or its folder."""

from __future__ import annotations

import re
from pathlib import Path

from embexp.errors import DataError
from embexp.system import regular

_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)", re.DOTALL)
_LONGEST = 1 << 20


def index_of(path: Path) -> Path | None:
    """The `.index` file of a checkpoint named by its prefix, its index or its folder; None: it is no checkpoint.

    Raises:
        DataError: a folder with several checkpoints, of which none is marked as the latest.
    """
    if path.name.endswith(".index"):
        return path
    beside = path.parent / f"{path.name}.index"
    if beside.is_file():
        return beside
    found = indexes_in(path)
    if len(found) < 2:
        return found[0] if found else None
    if (marked := marked_latest(path)) is not None:
        return marked
    listed = ", ".join(each.name.removesuffix(".index") for each in found)
    raise DataError(f"{path}: found {len(found)} checkpoints, expected the one to read: {listed}")


def indexes_in(folder: Path) -> list[Path]:
    """The indexes in a folder, by name; none where it is no folder."""
    return sorted(each for each in folder.glob("*.index") if each.is_file()) if folder.is_dir() else []


def marked_latest(folder: Path) -> Path | None:
    """The index of the checkpoint that TensorFlow's file `checkpoint` names as the latest; None: there is no such file.

    Of the path in the file only the last part counts, so that a folder can be moved.
    """
    state = folder / "checkpoint"
    if not state.is_file():
        return None
    with regular.opened(state) as file:
        content = file.read(_LONGEST)  # the latest is named at its beginning
    for line in content.splitlines():
        word, _, value = line.partition(b":")
        if word == b"model_checkpoint_path":
            name = _unescaped(value.strip().strip(b'"')).decode("utf-8", "surrogateescape")
            return folder / f"{Path(name).name}.index"
    return None


def _unescaped(value: bytes) -> bytes:
    """The string that the text form of a protocol buffer stands for."""
    return _ESCAPE.sub(_character, value)


def _character(escape: re.Match[bytes]) -> bytes:
    return bytes([int(escape[1], 8) & 0xFF]) if escape[1][:1] in b"01234567" else escape[1]
