"""Reads the files of a source as a stream of Arrow columns, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from embexp.data.files import ParquetTable, Side, Source
from embexp.data.text_table import NUMBER, TextTable, first_fault
from embexp.data.wanted import Wanted
from embexp.errors import DataError

_BLOCK_BYTES = 8 * 1024 * 1024
_PARQUET_ROWS = 131_072


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


@dataclass(frozen=True)
class Chunk:
    """Consecutive examples of one file.

    Attributes:
        file: where they are from.
        count: how many.
        done: part of the whole source that has been read with this chunk, 0 to 1.
        tokens: columns of tokens, by name.
        numbers: columns of finite numbers, by name.
    """

    file: Path
    count: int
    done: float
    tokens: Mapping[str, Column]
    numbers: Mapping[str, Column]


class _BadValue(Exception):  # noqa: N818 - turned into a DataError that names the line
    """A value that can't be read, in the example `row` of its chunk."""

    def __init__(self, row: int, found: str, expected: str) -> None:
        super().__init__(found)
        self.row, self.found, self.expected = row, found, expected


_Arrays = tuple[dict[str, pa.Array], dict[str, pa.Array]]


def chunks(source: Source, wanted: Sequence[Wanted]) -> Iterator[Chunk]:
    """The examples of all files, in order.

    Raises:
        DataError: a line or value can't be read; names the file, the line, what was found and what was expected.
    """
    sides = [_joined(side, number, source, wanted) for number, side in enumerate(source.sides)]
    beside = source.side_of or {}
    keys = [Wanted(side.key, "", tokens=True) for side in source.sides]
    main = [one for one in wanted if one.name not in beside]
    read = main + [key for key in keys if not any(one.name == key.name and one.tokens for one in main)]
    sizes = [table.path.stat().st_size for table in source.tables]
    before = 0
    for table, size in zip(source.tables, sizes, strict=True):
        first = 0
        stream = _text(table, read) if isinstance(table, TextTable) else _parquet(table, read)
        while True:
            try:
                item = next(stream, None)
                if item is None:
                    break
                count, part, (tokens, numbers) = item
                for join in sides:
                    join.add(tokens, numbers)
                yield Chunk(
                    table.path,
                    count,
                    (before + part * size) / sum(sizes),
                    {one.name: _flat(tokens[one.name]) for one in wanted if one.tokens},
                    _numbers(numbers, wanted, _lengths(tokens)),
                )
            except (pa.ArrowInvalid, _BadValue) as error:
                raise _explained(table, wanted, error, first) from error
            first += count
        before += size


def parquet_head_fault(table: ParquetTable, wanted: Sequence[Wanted], *, rows: int) -> str:
    """What is wrong with the first rows of a Parquet file, or ""."""
    names = [one.name for one in wanted if one.name in table.names]
    try:
        with pyarrow.parquet.ParquetFile(table.path, pre_buffer=False, memory_map=True) as file:
            for batch in file.iter_batches(batch_size=rows, columns=names):
                tokens, numbers = _parquet_arrays(batch, wanted)
                _numbers(numbers, wanted, _lengths(tokens))
                break
    except _BadValue as error:
        return f"row {error.row + 1}: found {error.found}, expected {error.expected}"
    except (pa.ArrowInvalid, OSError) as error:
        return f"the file can't be read as Parquet: {error}"
    return ""


def _explained(table: TextTable | ParquetTable, wanted: Sequence[Wanted], error: Exception, first: int) -> DataError:
    if isinstance(table, TextTable) and (fault := first_fault(table, wanted)) is not None:
        return DataError(str(fault))
    if isinstance(error, _BadValue):
        place = f"{table.path}, row {first + error.row + 1}"
        return DataError(f"{place}: found {error.found}, expected {error.expected}")
    return DataError(f"{table.path}, after row {first}: {error}")


def _text(table: TextTable, wanted: Sequence[Wanted]) -> Iterator[tuple[int, float, _Arrays]]:
    header = dict(zip(table.names, table.header, strict=True))
    types = {header[one.name]: pa.string() if one.tokens or one.name in table.lists else pa.float64() for one in wanted}
    size = table.path.stat().st_size
    read = 0
    with pyarrow.csv.open_csv(
        table.path,
        read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES),
        parse_options=pyarrow.csv.ParseOptions(
            delimiter=table.dialect.delimiter,
            quote_char='"' if table.dialect.quoted else False,
            newlines_in_values=table.dialect.quoted,
        ),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=types, include_columns=list(types), null_values=[""], strings_can_be_null=False
        ),
    ) as reader:
        for batch in reader:
            tokens, numbers = {}, {}
            for one in wanted:
                array = batch[header[one.name]]
                if one.name in table.lists:
                    array = _split(array, table.dialect.list_separator)
                if one.tokens:
                    tokens[one.name] = array
                if one.numbers:
                    numbers[one.name] = _as_float64(array)
            read += _BLOCK_BYTES  # a batch is what a block held
            yield batch.num_rows, min(1.0, read / size), (tokens, numbers)


def _parquet(table: ParquetTable, wanted: Sequence[Wanted]) -> Iterator[tuple[int, float, _Arrays]]:
    try:
        with pyarrow.parquet.ParquetFile(table.path, pre_buffer=False, memory_map=True) as file:
            rows, read = file.metadata.num_rows, 0
            for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=[one.name for one in wanted]):
                read += batch.num_rows
                yield batch.num_rows, read / rows, _parquet_arrays(batch, wanted)
    except OSError as error:
        raise DataError(f"{table.path} can't be read as Parquet: {error}") from error


def _parquet_arrays(batch: pa.RecordBatch, wanted: Sequence[Wanted]) -> _Arrays:
    tokens = {one.name: batch[one.name] for one in wanted if one.tokens}
    return tokens, {one.name: _as_float64(batch[one.name]) for one in wanted if one.numbers}


class _Join:
    """Columns of a file beside the interactions, looked up by its key."""

    def __init__(self, key: str, keys: pa.Array, columns: _Arrays) -> None:
        self._key, self._keys, self._columns = key, keys, columns

    def add(self, tokens: dict[str, pa.Array], numbers: dict[str, pa.Array]) -> None:
        """Adds the columns to those of a chunk; null where the file has no line for the key."""
        used = pc.dictionary_encode(tokens[self._key])
        place = pc.index_in(used.dictionary, value_set=self._keys).take(used.indices)
        for found, mine in zip((tokens, numbers), self._columns, strict=True):
            found.update({name: array.take(place) for name, array in mine.items()})


def _joined(side: Side, number: int, source: Source, wanted: Sequence[Wanted]) -> _Join:
    mine = [one for one in wanted if (source.side_of or {}).get(one.name) == number]
    key = next((one for one in mine if one.name == side.key), Wanted(side.key, ""))
    others = [one for one in mine if one.name != side.key]
    read = [*others, replace(key, tokens=True)]
    own = [replace(one, weighs=one.weighs if one.weighs in side.table.names else None) for one in read]
    try:
        batches = [arrays for _, _, arrays in _text(side.table, read)]
        tokens, numbers = (
            {name: pa.concat_arrays([batch[kind][name] for batch in batches]) for name in batches[0][kind]}
            for kind in (0, 1)
        )
        _numbers(numbers, own, _lengths(tokens))
    except (pa.ArrowInvalid, _BadValue) as error:
        raise _explained(side.table, own, error, 0) from error
    keys = tokens.pop(side.key)
    counts = pc.value_counts(keys)
    if len(counts) < len(keys):
        repeated = counts.field("values").filter(pc.greater(counts.field("counts"), 1))[0].as_py()
        raise DataError(f"{side.table.path}: {side.key} {repeated!r} has more than one line, expected one")
    return _Join(side.key, keys, (tokens, numbers))


def _split(array: pa.Array, separator: str) -> pa.Array:
    """Text -> list of its parts, empty parts left out."""
    lists = _flat(pc.split_pattern(array, separator))
    kept = pc.not_equal(lists.values, "")
    places = np.concatenate([[0], np.cumsum(kept.to_numpy(zero_copy_only=False))])
    return pa.LargeListArray.from_arrays(pa.array(places[lists.splits]), lists.values.filter(kept))


def _as_float64(array: pa.Array) -> pa.Array:
    """Numbers, or lists of numbers, as float64, or as lists of it."""
    kind = array.type
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        flat = _flat(array)
        return pa.LargeListArray.from_arrays(pa.array(flat.splits), _as_float64(flat.values))
    if pa.types.is_dictionary(kind):
        array = array.dictionary_decode()
    if pa.types.is_timestamp(kind) or pa.types.is_date64(kind):
        array = array.cast(pa.int64())
    elif pa.types.is_date32(kind):
        array = array.cast(pa.int32())
    elif pa.types.is_string(kind):
        array = pc.utf8_trim_whitespace(array)
    return array.cast(pa.float64(), safe=False)


def _flat(array: pa.Array) -> Column:
    kind = array.type
    if pa.types.is_fixed_size_list(kind):
        array = array.cast(pa.large_list(kind.value_type))
    elif not pa.types.is_list(kind) and not pa.types.is_large_list(kind):
        return Column(array, None)
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    splits = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=splits[1:])
    return Column(array.flatten(), splits)


def _lengths(tokens: Mapping[str, pa.Array]) -> dict[str, np.ndarray | None]:
    return {name: _flat(array).splits for name, array in tokens.items()}


def _numbers(
    numbers: Mapping[str, pa.Array], wanted: Sequence[Wanted], ids: Mapping[str, np.ndarray | None]
) -> dict[str, Column]:
    """The number columns, every value finite, weights as many as ids."""
    result = {}
    for one in wanted:
        if not one.numbers:
            continue
        flat = _flat(numbers[one.name])
        values = pc.fill_null(flat.values, np.nan).to_numpy(zero_copy_only=False)
        with np.errstate(over="ignore"):
            bad = np.flatnonzero(~np.isfinite(values.astype(np.float32)))
        if bad.size:
            place = int(bad[0])
            row = place if flat.splits is None else int(np.searchsorted(flat.splits, place, "right")) - 1
            found = flat.values[place].as_py()
            raise _BadValue(row, f"{'nothing' if found is None else found} in column {one.name!r}", NUMBER)
        if one.weighs is not None and flat.splits is not None and (splits := ids.get(one.weighs)) is not None:
            unequal = np.flatnonzero(np.diff(flat.splits) != np.diff(splits))
            if unequal.size:
                row = int(unequal[0])
                raise _BadValue(
                    row,
                    f"{int(np.diff(flat.splits)[row])} weights in column {one.name!r}",
                    f"{int(np.diff(splits)[row])}, one for each value in column {one.weighs!r}",
                )
        result[one.name] = Column(values, flat.splits)
    return result
