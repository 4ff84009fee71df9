"""Tables in stacks, as `TPUEmbeddingV2` of TensorFlow saves them: dealt out to SparseCores, one after the other.

A stack is one matrix of the parts of all SparseCores. In each part, every table of the stack has a range of rows. The
rows of a table go to the SparseCores in turn, from one that differs by table; columns are padded. The checkpoint has a
record of it, `_sparse_core_table_layouts`, beside the stacks and their slots `<stack>.S<slot>`. Sources:
tensorflow/core/tpu/kernels/sparse_core_layout.proto, tensorflow/python/tpu/tpu_embedding_v3_checkpoint_adapter.py
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from embexp.errors import DataError
from embexp.system import arrays
from embexp.system.tensor_bundle.index import Entry, Fields, escaped, unescaped, varint, wire_fields, wire_number
from embexp.system.tensor_bundle.tensor import MATRICES, Tensor, read_strings

RECORD = "_sparse_core_table_layouts"
"""The edge from a `TPUEmbeddingV2` to the record of its layouts."""
_NUMBERS = (3, 5, 8, 9)
"""The fields of a layout with the number of SparseCores, the rows of each, the first of them, and the rotation."""


def place_of(rows: Any, cores: int, rows_per_core: int, offset: int, rotation: int) -> Any:
    """The places in a stack of rows of a table, int64 [n], or of one row; see `Layout`."""
    return (rows + rotation) % cores * rows_per_core + offset + rows // cores


@dataclass(frozen=True)
class Layout:
    """Where the rows of a table, or of one of its slots, are in a stack.

    Attributes:
        record: key of the record that says so.
        stack: key of the stack.
        table: name of the table.
        slot: name of the slot; "": the table itself.
        shape: rows and dim of the table.
        cores: number of SparseCores.
        rows_per_core: of the stack, on each of them.
        offset: the table's first row on each of them.
        rotation: the SparseCore of its first row.
    """

    record: str
    stack: str
    table: str
    slot: str
    shape: tuple[int, int]
    cores: int
    rows_per_core: int
    offset: int
    rotation: int

    @property
    def edge(self) -> str:
        """Name of the edge from a `TPUEmbedding` to the table, or the slot."""
        return f"{self.table}/{self.slot}" if self.slot else self.table

    def entry(self, stack: Entry) -> Entry:
        """Shape and type of the table, or slot; the pieces are those of the stack."""
        return Entry(self.shape, stack.kind, stack.pieces)

    def ranges(self, start: int, stop: int) -> Iterator[tuple[slice, int, int]]:
        """Rows start to stop: which of them are one after the other in the stack, from which row on to which."""
        for first in range(start, min(stop, start + self.cores)):
            place = place_of(first, self.cores, self.rows_per_core, self.offset, self.rotation)
            yield slice(first - start, None, self.cores), place, place + -(-(stop - first) // self.cores)

    def fits(self, stack: Entry) -> bool:
        """Whether a stack has these rows."""
        rows, dim = self.shape
        inside = min(rows, dim, self.cores, self.rows_per_core) > 0 <= min(self.offset, self.rotation)
        return (
            inside
            and stack.kind in MATRICES
            and len(stack.shape) == 2
            and stack.shape[0] == self.cores * self.rows_per_core
            and stack.shape[1] >= dim
            and self.offset + -(-rows // self.cores) <= self.rows_per_core
        )


def layouts(entries: Mapping[str, Entry], source: object) -> dict[str, Layout]:
    """The tables in stacks, and their slots, by the keys that they have where they are not in stacks.

    Args:
        entries: of a checkpoint, by key.
        source: what errors call it.

    Raises:
        DataError: a record is damaged, or does not fit the stacks.
    """
    found: dict[str, Layout] = {}
    for record in entries:
        path, _, end = record.partition("/.ATTRIBUTES/")
        parent, _, edge = path.rpartition("/")
        if edge == RECORD and end:
            start = f"{parent}/" if parent else ""
            for key, layout in _of_record(record, start, f"/.ATTRIBUTES/{end}", entries, source):
                if key in found or not layout.fits(entries[layout.stack]):
                    raise DataError(
                        f"{source}: found {list(entries[layout.stack].shape)} for {layout.stack}, which is not the"
                        f" stack that {record} describes: {layout.edge} of {list(layout.shape)} from row"
                        f" {layout.offset} of {layout.rows_per_core} on each of {layout.cores} SparseCores"
                    )
                found[key] = layout
    if doubled := sorted(found.keys() & (entries.keys() - replaced(found))):
        raise DataError(f"{source}: found {', '.join(doubled)} both in a stack and beside it")
    return found


def _of_record(
    record: str, start: str, end: str, entries: Mapping[str, Entry], source: object
) -> Iterator[tuple[str, Layout]]:
    try:
        (content,) = read_strings(record, entries[record])
        tables = [
            (_text(each, 1), _text(each, 2), _shape(each), [wire_number(each, field) for field in _NUMBERS])
            for each in map(wire_fields, wire_fields(content).get(1, []))
        ]
    except (ValueError, IndexError) as error:
        raise DataError(f"{source}: found no layouts of tables in {record}: {error}") from None
    slots: dict[str, list[tuple[str, str]]] = {escaped(stack): [] for _, stack, *_ in tables}
    for key in entries:
        if key.startswith(start) and key.endswith(end):
            edge = key[len(start) : -len(end)]
            # A stack may be called like another one and a slot.
            of = max((each for each in slots if edge == each or edge.startswith(f"{each}.S")), key=len, default=None)
            if of is not None:
                slots[of].append((key, edge.removeprefix(of)))
    for table, stack, shape, numbers in tables:
        for key, slot in slots[escaped(stack)]:
            yield (
                f"{start}{escaped(table)}{slot}{end}",
                Layout(record, key, table, unescaped(slot)[1:], shape, *numbers),
            )


def _text(fields: Fields, field: int) -> str:
    (value, *_) = fields.get(field, [b""])
    if not isinstance(value, bytes) or not value:
        raise ValueError("a table has no name")
    return value.decode("utf-8")


def _shape(fields: Fields) -> tuple[int, int]:
    """Rows and dim of a table: numbers one by one, or packed into bytes."""
    found: list[int] = []
    for value in fields.get(6, []):
        if isinstance(value, int):
            found.append(value)
            continue
        at = 0
        while at < len(value):
            number, at = varint(value, at)
            found.append(number)
    rows, dim = found
    return rows, dim


def replaced(tables: Mapping[str, Layout]) -> set[str]:
    """Keys of the stacks and records that tables take the place of."""
    return {key for each in tables.values() for key in (each.stack, each.record)}


class Stack:
    """A stack, whose checksum is compared once for all tables in it."""

    def __init__(self, tensor: Tensor) -> None:
        """Reads nothing yet."""
        self.tensor, self._verified = tensor, False

    def verify(self) -> None:
        """Reads all of it, unless that was done, and compares its checksum.

        Raises:
            DataError: it is wrong, or a data file is missing or cut short.
        """
        if not self._verified:
            self.tensor.verify()
            self._verified = True


@dataclass(frozen=True)
class StackedMatrix:
    """A table in a stack, or one of its slots."""

    key: str
    stack: Stack
    layout: Layout

    @property
    def entry(self) -> Entry:
        """Shape and type of the matrix; the pieces are those of the stack."""
        return self.layout.entry(self.stack.tensor.entry)

    @property
    def dtype(self) -> np.dtype | None:
        """NumPy's type of its numbers."""
        return self.stack.tensor.dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, in memory of their own; no checksum is compared, see `Tensor.read`.

        Raises:
            DataError: there are no such rows, or a data file is missing or cut short.
        """
        rows, dim = self.layout.shape
        if not 0 <= start <= stop <= rows:
            raise DataError(
                f"{self.stack.tensor.name}: there are no rows {start:,} to {stop:,} of {self.layout.edge}, it has"
                f" {rows:,}"
            )
        assert self.dtype is not None
        values = arrays.empty((stop - start, dim), self.dtype)
        for places, first, last in self.layout.ranges(start, stop):
            values[places] = self.stack.tensor.read(first, last)[:, :dim]
        return values

    def value(self) -> np.ndarray:
        """All rows, see `read`."""
        return self.read(0, self.layout.shape[0])

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """All rows in order, [n, dim], once the checksum of the stack is compared.

        Args:
            rows: of a block, at most.

        Raises:
            DataError: a data file is missing, cut short or damaged.
        """
        self.verify()
        for start in range(0, self.layout.shape[0], rows):
            yield self.read(start, min(start + rows, self.layout.shape[0]))

    def verify(self) -> None:
        """Verifies the stack, see there."""
        self.stack.verify()


def apart(tensors: Mapping[str, Tensor], source: object) -> dict[str, Tensor | StackedMatrix]:
    """The tensors of a checkpoint, with the tables in place of their stacks.

    Raises:
        DataError: see `layouts`.
    """
    tables = layouts({key: each.entry for key, each in tensors.items()}, source)
    gone = replaced(tables)
    stacks = {key: Stack(tensors[key]) for key in {each.stack for each in tables.values()}}
    return {
        **{key: each for key, each in tensors.items() if key not in gone},
        **{key: StackedMatrix(key, stacks[layout.stack], layout) for key, layout in tables.items()},
    }
