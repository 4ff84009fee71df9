"""Reads files of columns as a stream of examples, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.arrow_columns import BadValue, Column, finite_numbers, flat, row_splits
from embexp.data.files import Files, Side, Table
from embexp.data.wanted import Wanted
from embexp.errors import DataError

LIBRARY_ERRORS = (BadValue, pa.ArrowException, UnicodeError, OverflowError, MemoryError)
"""What a value, or bytes, that can't be read lead to."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive examples of one file.

    Attributes:
        file: where they are from.
        count: how many.
        done: fraction of the whole source that has been read with this chunk, 0 to 1.
        tokens: columns of tokens, by name.
        numbers: columns of finite numbers, by name.
    """

    file: Path
    count: int
    done: float
    tokens: Mapping[str, Column]
    numbers: Mapping[str, Column]


def chunks(files: Files, wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    """The examples of all files, in order.

    Raises:
        DataError: a line or value can't be read; names the file, the line, what was found and what was expected.
    """
    sides = [_joined(side, number, files, wanted) for number, side in enumerate(files.sides)]
    beside = files.side_of or {}
    keys = [Wanted(side.key, "", tokens=True) for side in files.sides]
    main = [one for one in wanted if one.name not in beside]
    read = main + [key for key in keys if not any(one.name == key.name and one.tokens for one in main)]
    sizes = [table.path.stat().st_size for table in files.tables]
    before = 0
    for table, size in zip(files.tables, sizes, strict=True):
        first = 0
        try:
            for block in table.blocks(read):
                for side in sides:
                    side.join(block.tokens, block.numbers)
                yield Chunk(
                    table.path,
                    block.count,
                    (before + block.done * size) / sum(sizes),
                    {one.name: flat(block.tokens[one.name]) for one in wanted if one.tokens},
                    finite_numbers(block.numbers, wanted, row_splits(block.tokens)),
                )
                first += block.count
        except LIBRARY_ERRORS as error:
            raise _explained(table, wanted, error, first) from error
        before += size


def _explained(table: Table, wanted: Sequence[Wanted], error: Exception, first: int) -> DataError:
    if text := table.explain(wanted):
        return DataError(f"{table.path}, {text}")
    if isinstance(error, BadValue):
        place = f"{table.path}, row {first + error.row + 1}"
        return DataError(f"{place}: found {error.found}, expected {error.expected}")
    return DataError(f"{table.path}, after row {first}: {' '.join(str(error).split())}")


class _SideColumns:
    """Columns of a file beside the examples' own, looked up by its key."""

    def __init__(self, key: str, keys: pa.Array, columns: tuple[dict[str, pa.Array], dict[str, pa.Array]]) -> None:
        self._key, self._keys, self._columns = key, keys, columns

    def join(self, tokens: dict[str, pa.Array], numbers: dict[str, pa.Array]) -> None:
        """Adds the columns to those of a chunk; null where the file has no line for the key."""
        used = pc.dictionary_encode(tokens[self._key])
        place = pc.index_in(used.dictionary, value_set=self._keys).take(used.indices)
        for found, mine in zip((tokens, numbers), self._columns, strict=True):
            found.update({name: array.take(place) for name, array in mine.items()})


def _joined(side: Side, number: int, files: Files, wanted: Sequence[Wanted]) -> _SideColumns:
    mine = [one for one in wanted if (files.side_of or {}).get(one.name) == number]
    key = next((one for one in mine if one.name == side.key), Wanted(side.key, ""))
    others = [one for one in mine if one.name != side.key]
    read = [*others, replace(key, tokens=True)]
    own = [replace(one, weighs=one.weighs if one.weighs in side.table.names else None) for one in read]
    try:
        blocks = list(side.table.blocks(read))
        tokens, numbers = (
            {name: pa.concat_arrays([part[name] for part in parts]) for name in parts[0]}
            for parts in ([block.tokens for block in blocks], [block.numbers for block in blocks])
        )
        finite_numbers(numbers, own, row_splits(tokens))
    except LIBRARY_ERRORS as error:
        raise _explained(side.table, own, error, 0) from error
    keys = tokens.pop(side.key)
    counts = pc.value_counts(keys)
    if len(counts) < len(keys):
        repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))[0].as_py()
        raise DataError(f"{side.table.path}: {side.key} {repeated!r} has more than one line, expected one")
    return _SideColumns(side.key, keys, (tokens, numbers))
