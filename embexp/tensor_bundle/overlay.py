"""The matrices of a checkpoint, whole or incremental, a block of rows at a time in memory."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from embexp.errors import CheckpointError, DataError
from embexp.system import arrays
from embexp.tensor_bundle import increments
from embexp.tensor_bundle.increments import SomeRows
from embexp.tensor_bundle.index import Entry
from embexp.tensor_bundle.rows import FLOAT32, INT64, PieceReader, read_blocks, read_content

_CHUNK_BYTES = 1 << 24


class Matrices:
    """The matrices that a checkpoint stands for: those of its base with the rows that changed since in their place."""

    def __init__(self, prefix: Path) -> None:
        """Reads the indexes of a checkpoint and of all that it is based on.

        Args:
            prefix: of the checkpoint.

        Raises:
            CheckpointError: a base is missing or has changed.
            DataError: an index is damaged.
        """
        self._links = increments.chain(prefix)
        self._entries = [link.entries() for link in self._links]

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of all tensors, by key."""
        some = {key: each.shape for key, each in self._links[0].matrices.items()}
        return {key: entry.shape for key, entry in self._entries[0].items()} | some

    def blocks(self, key: str, rows: int) -> Iterator[np.ndarray]:
        """The rows of a float32 matrix in order; each checksum is compared at the end of what it is of.

        Args:
            key: of the matrix.
            rows: of a block, at most.

        Yields:
            float32 [n, dim], possibly read-only.

        Raises:
            CheckpointError: the chain does not fit together.
            DataError: a data file is missing, cut short, or damaged.
        """
        whole, changed = self._parts(key)
        with contextlib.ExitStack() as stack:
            changes = [
                stack.enter_context(contextlib.closing(_ChangedRows(some, entries))) for some, entries in changed
            ]
            start = 0
            for block in read_blocks(key, whole, rows):
                for change in changes:
                    block = change.into(block, start)
                yield block
                start += len(block)
            for change in changes:
                change.check()

    def _parts(self, key: str) -> tuple[Entry, list[tuple[SomeRows, Mapping[str, Entry]]]]:
        """The last checkpoint's matrix that is whole, and rows that changed since, the earliest first."""
        changed: list[tuple[SomeRows, Mapping[str, Entry]]] = []
        shape = self.shapes().get(key)
        for link, entries in zip(self._links, self._entries, strict=True):
            some, entry = link.matrices.get(key), entries.get(key)
            found = some or entry
            if found is None or found.shape != shape:
                raise CheckpointError(
                    f"{self._links[0].prefix.parent} needs {key} of {shape}: {link.prefix.parent} has none"
                )
            if some is None:
                assert entry is not None
                return entry, changed[::-1]
            changed.append((some, entries))
        raise AssertionError("a chain ends with a whole checkpoint")


class _ChangedRows:
    """Rows that changed, to be put into the blocks of the matrix in their order."""

    def __init__(self, some: SomeRows, entries: Mapping[str, Entry]) -> None:
        self._numbers = _numbers(some, entries)
        self._dim, self._at = some.shape[1], 0
        rows = entries.get(some.rows)
        if (
            rows is None
            or rows.kind != FLOAT32
            or rows.shape != (len(self._numbers), self._dim)
            or len(rows.pieces) > 1
        ):
            raise CheckpointError(f"found no {some.rows} of float32 ({len(self._numbers)}, {self._dim}) in one piece")
        self._reader = PieceReader(some.rows, rows.pieces[0])

    def into(self, block: np.ndarray, start: int) -> np.ndarray:
        """The block of rows from `start`, with those that changed in their place; blocks come in order."""
        stop = self._at + int(np.searchsorted(self._numbers[self._at : self._at + len(block)], start + len(block)))
        numbers, self._at = self._numbers[self._at : stop], stop
        if not len(numbers):
            return block
        if not block.flags.writeable:
            read, block = block, arrays.empty(block.shape, np.float32)
            block[:] = read
        data = self._reader.read(4 * len(numbers) * self._dim)
        block[numbers - start] = np.frombuffer(data, "<f4").reshape(-1, self._dim)
        return block

    def check(self) -> None:
        self._reader.check()

    def close(self) -> None:
        self._reader.close()


def _numbers(some: SomeRows, entries: Mapping[str, Entry]) -> np.ndarray:
    """The numbers of changed rows, mapped: together they may be as large as a table's rows."""
    entry = entries.get(some.numbers)
    if entry is None or entry.kind != INT64 or len(entry.shape) != 1 or len(entry.pieces) > 1:
        raise CheckpointError(f"found no {some.numbers} of int64 in one piece")
    (piece,) = entry.pieces
    for _ in read_content(some.numbers, piece, _CHUNK_BYTES):
        pass  # compares the checksum
    if not piece.size:
        return np.empty(0, np.int64)
    numbers = np.asarray(np.memmap(piece.path, "<i8", "r", piece.offset, entry.shape))
    if numbers[0] < 0 or numbers[-1] >= some.shape[0]:
        raise DataError(f"{piece.path}: found rows {numbers[0]} to {numbers[-1]} of a table of {some.shape[0]}")
    return numbers
