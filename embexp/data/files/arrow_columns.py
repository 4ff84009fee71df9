"""The rows of files with columns as chunks of examples: tokens and numbers, joined, converted and checked.

Data in memory, dicts of columns, Arrow tables and data frames, become Arrow tables whose types Parquet files have, too.
Data frames come by the Arrow PyCapsule interface (`__arrow_c_stream__`), which pandas and Polars offer; neither library
is imported. https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from embexp.data.columns import OF_LABELLED, Wanted
from embexp.data.files.dialect import BRACKETS, expected_list, values_of_list
from embexp.data.files.table_files import Files, Side, Table
from embexp.data.vocabularies.spelling import normalized
from embexp.errors import DataError, UsageError, excerpt
from embexp.specs.vocabularies import Steps

IN_MEMORY = Path("the data")
"""What stands in messages for the path of a file."""
TAKES = "a dict of columns (lists or NumPy arrays), an Arrow table, or a data frame of pandas or Polars"
_ROWS = 65_536
_ROW = "; to convert a list of rows, use {name: [row[name] for row in rows] for name in rows[0]}"


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
                    f"{int(np.diff(splits)[row])}, one per value in column {one.weighs!r}",
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


@dataclass(frozen=True)
class InMemory:
    """Data in memory.

    Attributes:
        names: of all its columns.
        table: those that were asked for, without columns whose name is not unique.
        name: what stands in messages for its path.
    """

    names: tuple[str, ...]
    table: pa.Table
    name: Path = IN_MEMORY


def is_in_memory(data: object) -> bool:
    """Whether it is data itself, and not the path of a file."""
    return not isinstance(data, str | PathLike)


def in_memory(data: Any, wanted: Collection[str] | None = None, name: Path = IN_MEMORY) -> InMemory:
    """Data as an Arrow table, without a copy of columns that Arrow can share.

    Text becomes `string` or `large_string`, missing values (None, NaN in text, NaT, NA) nulls; a column without any
    value becomes text. The index of a pandas frame is a column only if it has a name.

    Args:
        wanted: names of columns; others are left out. None: all are kept.
        name: what stands in messages for its path.

    Raises:
        UsageError: it is none of `TAKES`.
        DataError: a column can't be converted, or columns differ in length.
    """
    if isinstance(data, Mapping):
        return _of_columns(data, wanted, name)
    if not hasattr(data, "__arrow_c_stream__") and not hasattr(data, "__arrow_c_array__"):
        hint = _ROW if isinstance(data, list) and data and isinstance(data[0], Mapping) else ""
        raise UsageError(f"{name} must be {TAKES}, not {type(data).__name__}{hint}")
    names, some = _chosen(data, wanted)
    try:
        table = pa.table(some)
    except (TypeError, ValueError, pa.ArrowException) as error:
        if not hasattr(data, "columns"):
            raise UsageError(f"{name} must be {TAKES}, not {type(data).__name__}") from error
        words = "; ".join(str(each) for each in reversed(error.args)) if error.args else type(error).__name__
        remedy = "give each column a unique name and values of one type"
        raise DataError(f"{name} can't be converted to Arrow: {words.splitlines()[0]}; {remedy}") from error
    names = table.column_names if names is None else names
    kept = [each for each in dict.fromkeys(table.column_names) if names.count(each) == 1]
    kept = kept if wanted is None else [each for each in kept if each in wanted]
    return InMemory(tuple(names), _plain_table({each: table[each] for each in kept}), name)


def _chosen(data: Any, wanted: Collection[str] | None) -> tuple[list[str] | None, Any]:
    """The names of all columns, and a frame of the wanted ones; None and all of it where it can't be cut."""
    if isinstance(data, pa.Table | pa.RecordBatch) or wanted is None or not hasattr(data, "columns"):
        return None, data
    columns = list(data.columns)
    names = [str(column) for column in columns]
    cut = [column for column, name in zip(columns, names, strict=True) if name in wanted and names.count(name) == 1]
    index = [str(name) for name in getattr(getattr(data, "index", None), "names", ()) if name is not None]
    try:
        return names + index, data[cut]
    except Exception:  # a frame of some other library
        return None, data


def _of_columns(data: Mapping[Any, Any], wanted: Collection[str] | None, called: Path) -> InMemory:
    columns: dict[str, pa.ChunkedArray] = {}
    wrong = []
    for name, values in data.items():
        if wanted is None or str(name) in wanted:
            try:
                columns[str(name)] = _column(values)
            except (TypeError, ValueError, pa.ArrowException) as error:
                wrong.append(f"column {str(name)!r}: {' '.join(str(error).split())}")
    if wrong:
        raise DataError(f"{called} can't be converted to Arrow: {'; '.join(wrong)}")
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) > 1:
        listed = ", ".join(f"{name!r} has {length:,}" for name, length in lengths.items())
        raise DataError(
            f"{called} has columns of different lengths, expected one value per row in each column: {listed}"
        )
    return InMemory(tuple(map(str, data)), _plain_table(columns), called)


def _column(values: Any) -> pa.ChunkedArray:
    """A column of a dict; raises any of several errors if it is none."""
    if isinstance(values, str | bytes | Mapping) or not (isinstance(values, Iterable) or hasattr(values, "__array__")):
        shown = repr(values) if len(repr(values)) <= 40 else f"a {type(values).__name__}"
        raise TypeError(f"found {shown}, expected a list or an array with one value per row, such as [{shown}]")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return pa.chunked_array(values) if isinstance(values, pa.Array) else values
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    if not isinstance(values, list | tuple) and hasattr(values, "__array__"):
        array = np.asarray(values)
        if array.ndim == 0 or array.ndim > 2:
            raise TypeError(f"found an array of shape {list(array.shape)}, expected one value or one list per row")
        values = array if array.ndim == 1 else list(array)
    elif not isinstance(values, list | tuple):
        values = list(values)
    try:
        return pa.chunked_array([pa.array(values, from_pandas=True)])
    except pa.ArrowException as error:
        raise TypeError(f"{str(error).splitlines()[0]}; use values of one type") from error


def _plain_table(columns: Mapping[str, pa.ChunkedArray]) -> pa.Table:
    found = {
        name: pa.chunked_array(list(map(_plain, column.chunks)), _plain_type(column.type))
        for name, column in columns.items()
    }
    return pa.table(found)


def _plain_type(kind: Any) -> Any:
    """The type that stands for a type which Parquet files do not have, or not for these values."""
    if _is_list(kind):
        inner = _plain_type(kind.value_type)
        return kind if inner == kind.value_type and not pa.types.is_fixed_size_list(kind) else pa.large_list(inner)
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _plain_type(kind.value_type), kind.ordered)
    if pa.types.is_null(kind) or pa.types.is_string_view(kind):
        return pa.large_string()
    return kind


def _plain(array: pa.Array) -> pa.Array:
    kind = array.type
    plain = _plain_type(kind)
    if plain == kind:
        return array
    if pa.types.is_dictionary(kind):
        return pa.DictionaryArray.from_arrays(array.indices, _plain(array.dictionary), ordered=kind.ordered)
    return array.cast(plain)


def _is_list(kind: Any) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def write(table: pa.Table, path: Path) -> None:
    """Writes a new Parquet file, with the same bytes for the same values, however they lie in memory."""
    fields = [(field.name, _without_dictionary(field.type)) for field in table.schema]
    schema = pa.schema(fields)
    with path.open("xb") as file:
        # Without the schema of Arrow, which tells short from long offsets.
        with pq.ParquetWriter(file, schema, store_schema=False) as writer:
            for start in range(0, table.num_rows, _ROWS):
                writer.write_table(table.slice(start, _ROWS).cast(schema).combine_chunks(), row_group_size=_ROWS)
        file.flush()
        os.fsync(file.fileno())


def _without_dictionary(kind: Any) -> Any:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def as_written(found: InMemory, wanted: Collection[Wanted], separators: Mapping[str, str]) -> pa.Table:
    """The columns as files of the run's own form have them, as far as a frame that was read from such a file differs.

    pandas reads whole numbers with missing values as floats: as tokens, those are whole numbers again. Text of a column
    of lists is split, and a column without any value is one of numbers where numbers are wanted.

    Args:
        separators: of the values of a text that holds several, by column.
    """
    table = found.table
    for one in wanted:
        if one.name in table.column_names:
            column = _as_written(table[one.name], one, separators.get(one.name))
            table = table.set_column(table.column_names.index(one.name), one.name, column)
    return table


def _lists(texts: pa.Array, separator: str, name: str) -> pa.Array:
    try:
        return split_lists(texts, separator)
    except BadValue as error:
        raise DataError(f"found {error.found} in column {name!r}, expected {error.expected}") from error


def _as_written(column: pa.ChunkedArray, one: Wanted, separator: str | None) -> pa.ChunkedArray:
    kind = column.type
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    if is_text and separator is not None:
        lists = [_lists(chunk.cast(pa.large_string()), separator, one.name) for chunk in column.chunks]
        inner = pa.large_string() if one.tokens else pa.float64()
        return pa.chunked_array([each.cast(pa.large_list(inner)) for each in lists], pa.large_list(inner))
    if is_text and one.numbers and not one.tokens and column.null_count == len(column):
        return column.cast(pa.float64())
    if pa.types.is_floating(kind) and one.tokens and not one.names and not one.numbers:
        values = pc.if_else(pc.is_nan(column), pa.scalar(None, kind), column)
        whole = pc.all(pc.equal(pc.round(values), values)).as_py()
        return values.cast(pa.int64()) if whole is not False else column
    return column
