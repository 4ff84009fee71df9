"""The rows of files with columns as chunks of examples: tokens and numbers, joined, converted and checked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.columns import OF_LABELLED, Wanted
from embexp.data.files.dialect import BRACKETS, expected_list, values_of_list
from embexp.data.files.table_files import Files, Side, Table
from embexp.data.vocabularies.spelling import normalized
from embexp.errors import DataError, excerpt
from embexp.specs.vocabularies import Steps


@dataclass(frozen=True)
class Column:
    """Values of consecutive examples.

    Attributes:
        values: the values of all examples, one after the other: Arrow text, integers or dictionary where they are
            tokens, float64 NumPy where they are numbers.
        splits: int64 [examples + 1], where each example's values begin; None: each has one.
    """

    values: Any
    splits: np.ndarray | None


class BadValue(Exception):  # noqa: N818 - turned into a DataError that names the line
    """A value that can't be read, in the example `row` of its chunk."""

    def __init__(self, row: int, found: str, expected: str) -> None:
        super().__init__(found)
        self.row, self.found, self.expected = row, found, expected


def split_lists(array: pa.Array, separator: str) -> pa.Array:
    """Text -> list of its parts that are not empty; of lists that are printed, see `dialect`, of their values.

    Raises:
        BadValue: a text is no list that is printed.
    """
    if separator == BRACKETS:
        return _printed_lists(array)
    lists = flat(pc.split_pattern(array, separator))
    kept = pc.not_equal(lists.values, "")
    places = np.concatenate([[0], np.cumsum(kept.to_numpy(zero_copy_only=False))])
    return pa.LargeListArray.from_arrays(pa.array(places[lists.splits]), lists.values.filter(kept))


def _printed_lists(array: pa.Array) -> pa.Array:
    """Each different text is read once."""
    used = pc.dictionary_encode(array)
    texts = used.dictionary.to_pylist()
    lists = list(map(values_of_list, texts))
    if None in lists:
        place = lists.index(None)
        raise BadValue(pc.index(used.indices, place).as_py(), excerpt(texts[place]), expected_list(texts[place]))
    return pa.array(lists, pa.large_list(pa.large_string())).take(used.indices)


_PER_SECOND = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}
_SECONDS_OF_A_DAY = 86_400.0


def as_float64(array: pa.Array) -> pa.Array:
    """Numbers, or lists of numbers, as float64, or as lists of it.

    Dates and times are seconds since 1970, as those of text files are, whatever their unit.
    """
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        inner = flat(array)
        return pa.LargeListArray.from_arrays(pa.array(inner.splits), as_float64(inner.values))
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        units = array.cast(pa.int64()).cast(pa.float64(), safe=False)
        return pc.divide(units, _PER_SECOND[kind.unit if pa.types.is_timestamp(kind) else "ms"])
    if pa.types.is_date32(kind):
        return pc.multiply(array.cast(pa.int32()).cast(pa.float64()), _SECONDS_OF_A_DAY)
    if pa.types.is_string(kind):
        array = pc.utf8_trim_whitespace(array)
    return array.cast(pa.float64(), safe=False)


def flat(array: pa.Array) -> Column:
    """The values of all rows one after the other, and where each row's begin if it holds lists."""
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.large_list(kind.value_type))
    elif not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return Column(array, None)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    splits = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    return Column(array.flatten(), splits)


def row_splits(tokens: Mapping[str, pa.Array]) -> dict[str, np.ndarray | None]:
    """int64 [rows + 1] of each column that holds lists, see `Column.splits`."""
    return {name: flat(array).splits for name, array in tokens.items()}


def finite_numbers(
    numbers: Mapping[str, pa.Array], wanted: Sequence[Wanted], ids: Mapping[str, np.ndarray | None]
) -> dict[str, Column]:
    """The number columns, every value finite, or NaN where it may be missing; weights as many as ids."""
    result = {}
    for one in wanted:
        if not one.numbers:
            continue
        column = flat(numbers[one.name])
        values = column.values.to_numpy(zero_copy_only=False)  # a null becomes NaN
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = values.astype(np.float32)
        bad = np.flatnonzero(np.isinf(rounded) if one.may_be_missing else ~np.isfinite(rounded))
        if bad.size:
            place = int(bad[0])
            row = place if column.splits is None else int(np.searchsorted(column.splits, place, "right")) - 1
            found = column.values[place].as_py()
            what = f"{'nothing' if found is None else found} in column {one.name!r}"
            is_missing, is_beyond = bool(np.isnan(values[place])), bool(np.isinf(rounded[place]))
            raise BadValue(row, what, one.expected(missing=is_missing, beyond=is_beyond))
        if one.least is not None and (below := np.flatnonzero(values < one.least)).size:
            row, found = int(below[0]), column.values[int(below[0])].as_py()
            raise BadValue(row, f"{found} in column {one.name!r}", f"a weight of at least {one.least:g}")
        if one.weighs is not None and column.splits is not None and (splits := ids.get(one.weighs)) is not None:
            unequal = np.flatnonzero(np.diff(column.splits) != np.diff(splits))
            if unequal.size:
                row = int(unequal[0])
                raise BadValue(
                    row,
                    f"{int(np.diff(column.splits)[row])} weights in column {one.name!r}",
                    f"{int(np.diff(splits)[row])}, one for each value in column {one.weighs!r}",
                )
        result[one.name] = Column(values, column.splits)
    return result


LIBRARY_ERRORS = (BadValue, pa.ArrowException, UnicodeError, OverflowError, MemoryError)
"""What a value, or bytes, that can't be read lead to."""


@dataclass(frozen=True)
class Chunk:
    """Consecutive examples of one file.

    Attributes:
        done: fraction of the whole source that has been read with this chunk, 0 to 1.
        tokens: columns of tokens, by name.
        numbers: columns of finite numbers, by name.
        skipped: rows between them that have no label, and were left out.
    """

    file: Path
    count: int
    done: float
    tokens: Mapping[str, Column]
    numbers: Mapping[str, Column]
    skipped: int = 0


def chunks_of_files(files: Files, wanted: Sequence[Wanted], steps: Steps = ()) -> Iterator[Chunk]:
    """The examples of all files, in order.

    Args:
        steps: by which tokens are normalised, also those by which files are joined.

    Raises:
        DataError: a line or value can't be read; names the file, the line, what was found and what was expected.
    """
    sides = [_joined(side, number, files, wanted, steps) for number, side in enumerate(files.sides)]
    joined = files.side_of or {}
    keys = [Wanted(side.key, "", tokens=True) for side in files.sides]
    main = [one for one in wanted if one.name not in joined]
    read = main + [key for key in keys if not any(one.name == key.name and one.tokens for one in main)]
    sizes = [table.path.stat().st_size if len(files.tables) > 1 else 1 for table in files.tables]
    before = 0
    for table, size in zip(files.tables, sizes, strict=True):
        first = table.first
        try:
            for block in table.blocks(read):
                block.tokens.update({name: normalized(array, steps) for name, array in block.tokens.items()})
                for side in sides:
                    side.join(block.tokens, block.numbers)
                kept = block.with_labels(wanted)
                yield Chunk(
                    table.path,
                    kept.count,
                    (before + block.done * size) / sum(sizes),
                    {one.name: flat(kept.tokens[one.name]) for one in wanted if one.tokens},
                    finite_numbers(kept.numbers, wanted, row_splits(kept.tokens)),
                    skipped=block.count - kept.count,
                )
                first += kept.count
        except LIBRARY_ERRORS as error:
            raise _explained(table, wanted, error, first) from error
        before += size


def _explained(table: Table, wanted: Sequence[Wanted], error: Exception, first: int) -> DataError:
    if text := table.explain(wanted):
        return DataError(f"{table.path}, {text}")
    if isinstance(error, BadValue):
        place = f"{table.path}, row {first + error.row + 1}{OF_LABELLED if any(one.skips for one in wanted) else ''}"
        return DataError(f"{place}: found {error.found}, expected {error.expected}")
    return DataError(f"{table.path}, after row {first}: {' '.join(str(error).split())}")


class _SideColumns:
    """Columns of a file joined to the examples' own, looked up by its key."""

    def __init__(self, key: str, keys: pa.Array, columns: tuple[dict[str, pa.Array], dict[str, pa.Array]]) -> None:
        self._key, self._keys, self._columns = key, keys, columns

    def join(self, tokens: dict[str, pa.Array], numbers: dict[str, pa.Array]) -> None:
        """Adds the columns to those of a chunk; null where the file has no line for the key."""
        used = pc.dictionary_encode(tokens[self._key])
        place = pc.index_in(used.dictionary, value_set=self._keys).take(used.indices)
        for found, mine in zip((tokens, numbers), self._columns, strict=True):
            found.update({name: array.take(place) for name, array in mine.items()})


def _joined(side: Side, number: int, files: Files, wanted: Sequence[Wanted], steps: Steps) -> _SideColumns:
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
        tokens = {name: normalized(array, steps) for name, array in tokens.items()}
        finite_numbers(numbers, own, row_splits(tokens))
    except LIBRARY_ERRORS as error:
        raise _explained(side.table, own, error, 0) from error
    keys = tokens.pop(side.key)
    counts = pc.value_counts(keys)
    if len(counts) < len(keys):
        repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))[0].as_py()
        raise DataError(f"{side.table.path}: {side.key} {repeated!r} has more than one line, expected one")
    return _SideColumns(side.key, keys, (tokens, numbers))
