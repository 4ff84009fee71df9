"""Data in memory: dicts of columns, Arrow tables and data frames, as Arrow tables whose types Parquet files have, too.

Data frames come by the Arrow PyCapsule interface (`__arrow_c_stream__`), which pandas and Polars offer; neither library
is imported. https://arrow.apache.org/docs/format/CDataInterface/PyCapsuleInterface.html
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from embexp.data.columns import Wanted
from embexp.data.files.arrow_columns import BadValue, split_lists
from embexp.errors import DataError, UsageError

NAME = Path("the data")
"""What stands in messages for the path of a file."""
TAKES = "a dict of columns (lists or NumPy arrays), an Arrow table, or a data frame of pandas or Polars"
_ROWS = 65_536
_ROW = "; a list of rows becomes one by {name: [row[name] for row in rows] for name in rows[0]}"


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
    name: Path = NAME


def is_in_memory(data: object) -> bool:
    """Whether it is data itself, and not the path of a file."""
    return not isinstance(data, str | PathLike)


def in_memory(data: Any, wanted: Collection[str] | None = None, name: Path = NAME) -> InMemory:
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
        remedy = "give each column a name of its own and values of one type"
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
        raise DataError(f"{called} has columns of different lengths, expected one value for each row in all: {listed}")
    return InMemory(tuple(map(str, data)), _plain_table(columns), called)


def _column(values: Any) -> pa.ChunkedArray:
    """A column of a dict; raises any of several errors if it is none."""
    if isinstance(values, str | bytes | Mapping) or not (isinstance(values, Iterable) or hasattr(values, "__array__")):
        shown = repr(values) if len(repr(values)) <= 40 else f"a {type(values).__name__}"
        raise TypeError(f"found {shown}, expected a list or an array with a value for each row, such as [{shown}]")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return pa.chunked_array(values) if isinstance(values, pa.Array) else values
    if hasattr(values, "__arrow_c_stream__"):
        return pa.chunked_array(values)
    if not isinstance(values, list | tuple) and hasattr(values, "__array__"):
        array = np.asarray(values)
        if array.ndim == 0 or array.ndim > 2:
            raise TypeError(
                f"found an array of shape {list(array.shape)}, expected one value, or one list, for each row"
            )
        values = array if array.ndim == 1 else list(array)
    elif not isinstance(values, list | tuple):
        values = list(values)
    try:
        return pa.chunked_array([pa.array(values, from_pandas=True)])
    except pa.ArrowException as error:
        raise TypeError(f"{str(error).splitlines()[0]}; give it values of one type") from error


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
