"""Vectors in TensorFlow checkpoints, name-based or object-based, read without TensorFlow."""

from __future__ import annotations

import bisect
from collections.abc import Mapping
from itertools import accumulate
from pathlib import Path

import numpy as np

from embexp.errors import DataError
from embexp.tensor_bundle import increments
from embexp.tensor_bundle.index import Entry, read_index
from embexp.tensor_bundle.rows import read_content
from embexp.vectors.stored import BFLOAT16, Place, Stored, checked_shape, only_key

_TYPES = {1: np.dtype("<f4"), 2: np.dtype("<f8"), 14: BFLOAT16, 19: np.dtype("<f2")}
KEY_END = "/.ATTRIBUTES/VARIABLE_VALUE"
"""How all keys of an object-based checkpoint end."""
_CHUNK_BYTES = 1 << 24


def index_of(path: Path) -> Path | None:
    """The `.index` file of a checkpoint named by its prefix, its index or its folder; None: it is no checkpoint.

    Raises:
        DataError: a folder with several checkpoints, of which none is marked as the latest.
    """
    if path.name.endswith(".index"):
        return path
    beside = path.with_name(f"{path.name}.index")
    if beside.is_file():
        return beside
    if not path.is_dir():
        return None
    found = sorted(path.glob("*.index"))
    if len(found) < 2:
        return found[0] if found else None
    state = path / "checkpoint"
    if state.is_file():
        for line in state.read_text("utf-8").splitlines():
            word, _, value = line.partition(":")
            if word == "model_checkpoint_path":
                return path / f"{Path(value.strip().strip(chr(34))).name}.index"
    listed = ", ".join(each.name.removesuffix(".index") for each in found)
    raise DataError(f"{path}: found {len(found)} checkpoints, expected the one to read: {listed}")


def read(index: Path, key: str | None) -> Stored:
    """One tensor of a checkpoint; see `stored_tensor`.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    if not index.is_file():
        raise DataError(f"{index}: found no such file, expected the index of a checkpoint")
    return stored_tensor(index, tensors(index), key)


def tensors(index: Path) -> dict[str, Entry]:
    """All tensors of a checkpoint, by their keys without the end that all keys of an object-based one share.

    Raises:
        DataError: its index can't be read, or it is incremental, so that it has some rows of its matrices only.
    """
    if (base := increments.link(index.with_name(index.name.removesuffix(".index"))).base) is not None:
        raise DataError(
            f"{index.parent}: found an incremental checkpoint, with the rows that changed since {base.parent.name},"
            " expected a whole one, as runs write at their end"
        )
    return {key.removesuffix(KEY_END): entry for key, entry in read_index(index).items()}


def stored_tensor(index: Path, tensors: Mapping[str, Entry], key: str | None) -> Stored:
    """One tensor of a checkpoint whose index has been read, mapped. Its checksum is compared by `Stored.check`.

    Args:
        index: the `.index` file.
        tensors: what it holds, see `tensors`.
        key: of the tensor, with or without the end that all keys of an object-based one share; None: the only matrix.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    shapes = {each: entry.shape for each, entry in tensors.items()}
    key = only_key(index, shapes, None if key is None else key.removesuffix(KEY_END), "tensor")
    entry, name = tensors[key], f"{index}: {key}"
    dtype = _TYPES.get(entry.kind)
    if dtype is None:
        expected = "float16, bfloat16, float32 or float64"
        raise DataError(f"{name}: found a tensor of TensorFlow's type {entry.kind}, expected {expected}")
    rows, dim = checked_shape(name, entry.shape, dtype)
    for piece in entry.pieces:
        if len(piece.shape) != 2 or piece.shape[1] != dim or piece.size != piece.shape[0] * dim * dtype.itemsize:
            raise DataError(f"{name}: found a piece of shape {list(piece.shape)}, expected whole rows of {dim}")
        if not piece.path.is_file():
            raise DataError(f"{name}: found no file {piece.path.name} beside the index, which names it")
        size = piece.path.stat().st_size
        if size < piece.offset + piece.size:
            found = f"{size:,} bytes in {piece.path.name}"
            raise DataError(f"{name}: found {found}, expected {piece.offset + piece.size:,}: the file is cut short")
    ends = list(accumulate(piece.shape[0] for piece in entry.pieces))
    if not ends or ends[-1] != rows:
        raise DataError(f"{name}: found pieces of {ends[-1] if ends else 0} rows together, expected {rows}")
    maps = [np.memmap(each.path, dtype, "r", each.offset, each.shape) for each in entry.pieces if each.shape[0]]

    def rows_of(start: int, stop: int) -> np.ndarray:
        if len(maps) == 1:
            return maps[0][start:stop]
        values = np.empty((stop - start, dim), dtype)
        at, part = start, bisect.bisect_right(ends, start)
        while at < stop:
            first, until = ends[part] - len(maps[part]), min(stop, ends[part])
            values[at - start : until - start] = maps[part][at - first : until - first]
            at, part = until, part + 1
        return values

    whole = len(entry.pieces) == 1 and entry.kind == 1
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=dtype,
        read=rows_of,
        files=[index, *sorted({piece.path for piece in entry.pieces})],
        place=Place(entry.pieces[0].path, entry.pieces[0].offset) if whole else None,
        check=lambda: _check(key, entry),
    )


def _check(key: str, entry: Entry) -> None:
    """Compares the stored checksums, which mapping a tensor does not.

    Raises:
        DataError: one differs, or a file has been cut short.
    """
    for piece in entry.pieces:
        for _ in read_content(key, piece, _CHUNK_BYTES):
            pass
