"""Checkpoints that several processes write and read: each its own data file, and each its rows of a matrix.

Each process writes its slices with a `BundleWriter` for its file. One of them merges their entries into the index when
all files are on disk. To read, it sends the others the `description` of what they read their rows of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from embexp.system import files
from embexp.system.tensor_bundle.increments import ChangedMatrix, Values
from embexp.system.tensor_bundle.index import Entry, Piece, entries_of_table, read_encoded, slice_key
from embexp.system.tensor_bundle.tensor import Tensor
from embexp.system.tensor_bundle.writer import index_content, renumber, sliced_entry

Matrix = tuple[int, tuple[int, int], Sequence[tuple[int, int]]]
"""Of a matrix in slices: the number of its type, its shape, and the rows [start, stop) of each slice, rising."""


def merge(index: Path, others: Sequence[bytes], matrices: Mapping[str, Matrix]) -> None:
    """Adds to a checkpoint the data files behind its own, which other processes have written; its own are renamed.

    Args:
        index: of the checkpoint.
        others: what `finish_shard` has returned, in the order of the files.
        matrices: those that they have slices of.

    Raises:
        DataError: the index is damaged.
        ValueError: slices are missing.
    """
    entries, shards = read_encoded(index)
    for content in others:
        entries |= {key: value for key, value in entries_of_table(content) if key}
    for key, (kind, shape, slices) in matrices.items():
        extents = [((start, stop - start), (0, shape[1])) for start, stop in slices]
        if lacking := sum(slice_key(key.encode(), extent) not in entries for extent in extents):
            raise ValueError(f"{index}: {lacking} of {len(extents)} slices of {key} are missing")
        entries[key.encode()] = sliced_entry(kind, shape, extents)
    renumber(index, shards, shards + len(others))
    with files.atomic_write(index) as written:
        written.write(index_content(entries, shards + len(others)))


def description(values: Values) -> list[Any]:
    """What another process needs to read a tensor, as JSON: see `described`. Paths are absolute."""
    if isinstance(values, ChangedMatrix):
        changes = [[_described(each) for each in change] for change in values.changes]
        return [_described(values.whole), changes]
    return [_described(values), None]


def described(description: Sequence[Any]) -> Values:
    """The tensor of a description."""
    whole, changes = description
    if changes is None:
        return _tensor(whole)
    return ChangedMatrix(_tensor(whole), [(_tensor(numbers), _tensor(rows)) for numbers, rows in changes])


def verify_share(values: Values, number: int, count: int) -> None:
    """Compares the checksums of every `count`-th piece of a tensor of numbers, from the one of this number on.

    Raises:
        DataError: one is wrong, or a data file is missing or cut short.
    """
    for at, (tensor, piece) in enumerate(_pieces(values)):
        if at % count == number:
            tensor.verify_piece(piece)


def paths_of(values: Values) -> list[str]:
    """The data files that a tensor is in, absolute, as another machine knows them."""
    return sorted({str(piece.path.resolve()) for _, piece in _pieces(values)})


def _pieces(values: Values) -> Iterator[tuple[Tensor, Piece]]:
    tensors = [values]
    if isinstance(values, ChangedMatrix):
        tensors = [values.whole, *(tensor for change in values.changes for tensor in change)]
    for tensor in tensors:
        assert isinstance(tensor, Tensor)
        for piece in tensor.entry.pieces:
            yield tensor, piece


def _described(tensor: Tensor) -> list[Any]:
    entry, paths = tensor.entry, paths_of(tensor)
    numbers = {Path(path): number for number, path in enumerate(paths)}
    pieces = [
        [each.shape, each.start, numbers[each.path.resolve()], each.offset, each.size, each.checksum]
        for each in entry.pieces
    ]
    return [tensor.name, tensor.key, entry.shape, entry.kind, paths, pieces]


def _tensor(described: Sequence[Any]) -> Tensor:
    name, key, shape, kind, paths, pieces = described
    found = [
        Piece(tuple(of), tuple(start), Path(paths[path]), offset, size, checksum)
        for of, start, path, offset, size, checksum in pieces
    ]
    return Tensor(name, key, Entry(tuple(shape), kind, tuple(found)))
