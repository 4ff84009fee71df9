"""Adjacency lists: text files with a line for each user, the user first and then all its items, blanks between them.

The form in which LightGCN, NGCF and their successors publish interactions. A user without items has a line of one
field. There is no header line. Each file may be compressed.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Wanted
from embexp.data.files import table_files
from embexp.data.files.table_files import Files, lines_of
from embexp.data.sources.columnar import ColumnarSource
from embexp.errors import DataError, Fault
from embexp.specs.data import Adjacency

if TYPE_CHECKING:
    from embexp.data.files.table_files import Block

_COLUMNS = ("user", "item")
_BLOCK_BYTES = 1 << 20
_LOOKED_AT = 20
"""Lines, to see whether a file has this form."""


def source(data: Adjacency) -> ColumnarSource:
    """The source that a config describes."""
    return ColumnarSource(data, data.kind, _locate)


@dataclass(frozen=True)
class AdjacencyTable(table_files.UncutTable):
    """One file; a `table_files.Table` with a row for each item of each line."""

    path: Path
    names: tuple[str, ...] = _COLUMNS
    lists: frozenset[str] = frozenset()

    def holds_numbers(self, column: str, *, rows: int) -> bool:
        """Never: it has no label."""
        return False

    def head_fault(self, wanted: Sequence[Wanted], *, rows: int) -> str:
        """The first of so many lines that is not UTF-8; "" for none."""
        try:
            return self._fault(itertools.islice(lines_of(self.path), rows))
        except DataError as error:
            return str(error).removeprefix(f"{self.path}, ").removeprefix(f"{self.path}: ")

    def explain(self, wanted: Sequence[Wanted]) -> str:
        """The first line of all that is not UTF-8; "" for none."""
        return self._fault(lines_of(self.path))

    def blocks(self, wanted: Sequence[Wanted]) -> Iterator[Block]:
        """All interactions; see `table_files.Table`."""
        size, read = max(1, self.path.stat().st_size), 0
        lines: list[bytes] = []
        held = 0
        for line in lines_of(self.path):
            lines.append(line if read or held else line.removeprefix(b"\xef\xbb\xbf"))
            held += len(line)
            if held >= _BLOCK_BYTES:
                read += held
                yield _block(lines, min(1.0, read / size), wanted)
                lines, held = [], 0
        yield _block(lines, 1.0, wanted)

    def _fault(self, lines: Iterator[bytes]) -> str:
        for number, line in enumerate(lines, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                return f"line {number}: found the byte 0x{line[error.start]:02X}, expected text in UTF-8"
        return ""


def _block(lines: Sequence[bytes], done: float, wanted: Sequence[Wanted]) -> Block:
    """The interactions of some lines.

    Raises:
        ArrowInvalid: a line is not UTF-8.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from embexp.data.files.arrow_columns import flat
    from embexp.data.files.table_files import Block

    text: Any = pa.array(lines, pa.large_binary()).cast(pa.large_string())
    fields = flat(pc.ascii_split_whitespace(text))
    filled = pc.not_equal(fields.values, "")  # what stands before the first blank, or behind the last
    ends = np.concatenate([[0], np.cumsum(filled.to_numpy(zero_copy_only=False))])[fields.splits]
    values, lengths = fields.values.filter(filled), np.diff(ends)
    first = ends[:-1][lengths > 0]
    holds_item = np.ones(len(values), bool)
    holds_item[first] = False
    columns = {
        "user": values.take(pa.array(np.repeat(first, lengths[lengths > 0] - 1), pa.int64())),
        "item": values.filter(pa.array(holds_item)),
    }
    return Block(int(holds_item.sum()), done, {one.name: columns[one.name] for one in wanted}, {})


def _locate(paths: Sequence[Path], wanted: Sequence[Wanted]) -> Files:
    """The files; raises `ConfigError` with every fault found."""
    files = table_files.data_files(paths)
    for file in files:
        if file.stat().st_size == 0:
            raise table_files.unreadable(file, "the file is empty; each line must hold a user and its items")
    located = Files(tuple(map(AdjacencyTable, files)))
    faults = table_files.missing(files[0], _COLUMNS, wanted)
    faults += [
        Fault(one.asked_by, repr(one.name), "adjacency lists hold only ids, not numbers")
        for one in wanted
        if one.numbers and one.name in _COLUMNS
    ]
    table_files.stop_at(faults)
    table_files.stop_at(table_files.single_faults(located, wanted))
    return located


def looks_like(path: Path) -> bool:
    """Whether a file seems to hold adjacency lists: whole numbers, in lines of different lengths."""
    try:
        lines = [line.split() for line in itertools.islice(lines_of(path), _LOOKED_AT)]
    except DataError:
        return False
    numbers = all(field.isdigit() for fields in lines for field in fields)
    return numbers and len({len(fields) for fields in lines if fields}) > 1
