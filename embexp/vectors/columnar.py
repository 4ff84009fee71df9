"""Vectors in Parquet and Arrow files, by ranges of rows: a column of lists, or a column for each dimension.

Parquet and Arrow files as parts that are read by ranges of rows: row groups, and batches. Both libraries trust much of
what a file says. What comes from Arrow is validated before it is used, since reading past the end of a buffer ends the
process; Parquet is decoded a few rows at a time, so that memory follows what is asked for.
"""

from __future__ import annotations

import bisect
import threading
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from embexp.errors import DataError, read_by_library
from embexp.vectors.stored import Stored, Wanted, checked_shape

_LARGEST_DIM = 1 << 20
_BATCH_BYTES = 4 << 20
_BATCH_ROWS = 1 << 14


def read_parquet(path: Path, wanted: Wanted) -> Stored:
    """A Parquet file, read by row groups.

    The key is a column of lists; without one, the only such column, or else every column of floating-point numbers is a
    dimension. Without a token column, the only one of text has the tokens, if there is one.

    Raises:
        DataError: it can't be read, or its columns are no vectors.
    """
    return _read(_ParquetParts(path), wanted.key, wanted.token_column)


def read_arrow(path: Path, wanted: Wanted) -> Stored:
    """An Arrow file (IPC, also named Feather), mapped and read by batches; the rest as in `read_parquet`."""
    return _read(_ArrowParts(path), wanted.key, wanted.token_column)


def _read(table: _ParquetParts | _ArrowParts, key: str | None, token_column: str | None) -> Stored:
    names = table.schema.names
    if len(set(names)) != len(names):
        raise DataError(
            f"{table.path}: found several columns with the same name, expected distinct ones: {', '.join(names)}"
        )
    if token_column is None:
        words = [name for name in names if _is_text(table.schema.field(name).type)]
        if len(words) > 1:
            raise DataError(f"{table.path}: found {len(words)} columns of text; set token_column"
                            f" to the one that holds the tokens: {', '.join(words)}")  # fmt: skip
        token_column = words[0] if words else None
    elif token_column not in names or not _is_text(table.schema.field(token_column).type):
        raise DataError(f"{table.path}: found no column of text {token_column!r}; it has {', '.join(names)}")
    columns, lists = _vector_columns(table, key)
    ends = list(accumulate(table.rows))
    total = ends[-1] if ends else 0
    number = table.schema.field(columns[0]).type
    number = number.value_type if lists else number
    dtype = np.dtype(number.to_pandas_dtype())
    dim = _width(table, columns[0]) if lists else len(columns)
    name = f"{table.path}: {columns[0]}" if lists else str(table.path)
    rows, dim = checked_shape(name, (total, dim), dtype)
    if dim > _LARGEST_DIM:
        raise DataError(f"{name}: found the dimension {dim:,}, expected at most {_LARGEST_DIM:,}")
    step = max(1, min(_BATCH_ROWS, _BATCH_BYTES // (dim * dtype.itemsize)))

    def read(start: int, stop: int) -> np.ndarray:
        values = [np.empty((0, dim), dtype)]
        part = bisect.bisect_right(ends, start)
        at = start
        while at < stop:
            first = ends[part] - table.rows[part]
            until = min(stop, ends[part])
            piece = table.read(part, at - first, until - first, columns, step)
            values += _matrices(name, piece, lists, dim, at)
            at, part = until, part + 1
        return np.concatenate(values)

    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=dtype,
        read=read,
        files=[table.path],
        tokens=(lambda: _tokens(table, token_column)) if token_column is not None else None,
    )


def _vector_columns(table: _ParquetParts | _ArrowParts, key: str | None) -> tuple[list[str], bool]:
    """The columns of the numbers, and whether it is one of lists."""
    types = {name: table.schema.field(name).type for name in table.schema.names}
    lists = [name for name, type_ in types.items() if _is_list(type_)]
    if key is not None:
        if key in lists:
            return [key], True
        raise DataError(f"{table.path}: found no column of lists {key!r}; those in it are {', '.join(lists) or 'none'}")
    if len(lists) == 1:
        return lists, True
    if len(lists) > 1:
        listed = ", ".join(lists)
        raise DataError(f"{table.path}: found {len(lists)} columns of lists, expected a key that says which: {listed}")
    numbers = [name for name, type_ in types.items() if pa.types.is_floating(type_)]
    if not numbers:
        raise DataError(f"{table.path}: found no column of lists or of floating-point numbers: {table.schema.names}")
    if len({types[name] for name in numbers}) > 1:
        listed = ", ".join(f"{name} {types[name]}" for name in numbers)
        raise DataError(f"{table.path}: found columns of several types, expected one for all dimensions: {listed}")
    return numbers, False


def _width(table: _ParquetParts | _ArrowParts, column: str) -> int:
    """Numbers in each list; of lists of any length, in the first."""
    type_ = table.schema.field(column).type
    if pa.types.is_fixed_size_list(type_):
        return int(type_.list_size)
    for part, rows in enumerate(table.rows):
        if rows:
            first = table.read(part, 0, 1, [column], 1).column(0)
            return 0 if first.null_count else int(pc.list_value_length(first)[0].as_py())
    return 0


def _matrices(name: str, piece: pa.Table, lists: bool, dim: int, first: int) -> list[np.ndarray]:
    """The numbers of a piece as arrays [n, dim] one below the other; `first` is its first row in the file, from 0."""
    for column in piece.columns:
        if column.null_count:
            row = first + int(np.flatnonzero(column.is_null().to_numpy())[0])
            raise DataError(f"{name}, row {row + 1}: found null, expected {dim} numbers")
    if not lists:
        return [np.stack([column.to_numpy() for column in piece.columns], axis=1)]
    parts: list[np.ndarray] = []
    done = 0
    for chunk in piece.column(0).chunks:
        if not pa.types.is_fixed_size_list(chunk.type):
            lengths = np.asarray(chunk.value_lengths())
            wrong = np.flatnonzero(lengths != dim)
            if wrong.size:
                row = first + done + int(wrong[0])
                raise DataError(f"{name}, row {row + 1}: found {lengths[wrong[0]]} numbers, expected {dim}")
        flat = chunk.flatten()
        if flat.null_count:
            place = int(np.flatnonzero(flat.is_null().to_numpy(zero_copy_only=False))[0])
            row = first + done + place // dim
            raise DataError(f"{name}, row {row + 1}: found null at place {place % dim + 1}, expected {dim} numbers")
        parts.append(flat.to_numpy(zero_copy_only=False).reshape(-1, dim))
        done += len(chunk)
    return parts


def _tokens(table: _ParquetParts | _ArrowParts, column: str) -> pa.LargeStringArray:
    parts = [pa.array([], pa.large_string())]
    with read_by_library(f"{table.path}: column {column!r} can't be read"):
        for part in np.flatnonzero(table.rows).tolist():
            for chunk in table.read(part, 0, table.rows[part], [column], _BATCH_ROWS).column(0).chunks:
                chunk = chunk.cast(pa.large_string())
                chunk.validate(full=True)  # Parquet does not check that text is UTF-8
                parts.append(chunk)
    tokens = pa.concat_arrays(parts)
    if tokens.null_count:
        row = int(np.flatnonzero(tokens.is_null().to_numpy(zero_copy_only=False))[0])
        raise DataError(f"{table.path}, row {row + 1}: found null in column {column!r}, expected a token")
    return tokens


def _is_text(type_: pa.DataType) -> bool:
    if pa.types.is_dictionary(type_):
        type_ = type_.value_type
    return bool(pa.types.is_string(type_) or pa.types.is_large_string(type_) or pa.types.is_string_view(type_))


def _is_list(type_: pa.DataType) -> bool:
    known = pa.types.is_fixed_size_list(type_) or pa.types.is_list(type_) or pa.types.is_large_list(type_)
    return bool(known and pa.types.is_floating(type_.value_type))


class _ParquetParts:
    """The row groups of a Parquet file, and how many rows each has. To read their rows in order decodes each once.

    Raises:
        DataError: it can't be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with read_by_library(f"{path}: found no whole Parquet file"):
            self._file = pq.ParquetFile(path, memory_map=True)
            metadata = self._file.metadata
            self.schema: pa.Schema = self._file.schema_arrow
            self.schema.names  # noqa: B018  raises if one is not UTF-8
            self.rows: list[int] = [metadata.row_group(part).num_rows for part in range(metadata.num_row_groups)]
        if any(rows < 0 for rows in self.rows):
            raise DataError(f"{path}: found a row group of {min(self.rows):,} rows")
        self._lock = threading.Lock()
        self._of: tuple[int, list[str], int] | None = None
        self._batches: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None  # of the last batch, what begins at row `_next`
        self._next = 0

    def read(self, part: int, start: int, stop: int, columns: list[str], step: int) -> pa.Table:
        """Rows start to stop of some columns of a row group.

        Args:
            part: number of the row group.
            step: rows that are decoded at a time.

        Raises:
            DataError: they can't be read.
        """
        where = f"{self.path}: row group {part + 1} can't be read"
        with self._lock, read_by_library(where):
            if self._of != (part, columns, step) or start < self._next:
                self._of, self._next, self._rest = (part, columns, step), 0, None
                self._batches = self._file.iter_batches(step, row_groups=[part], columns=columns)
            found: list[pa.RecordBatch] = []
            while self._next < stop:
                batch = next(self._batches, None) if self._rest is None else self._rest
                if batch is None:
                    raise DataError(f"{where}: found {self._next:,} rows, expected {self.rows[part]:,}")
                first, until = max(0, start - self._next), min(batch.num_rows, stop - self._next)
                if first < until:
                    found.append(batch.slice(first, until - first))
                self._rest = batch.slice(until) if until < batch.num_rows else None
                self._next += until
            return pa.Table.from_batches(found)


class _ArrowParts:
    """The batches of an Arrow file (IPC), mapped, and how many rows each has.

    Raises:
        DataError: it can't be read.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with read_by_library(f"{path}: found no whole Arrow file"):
            with pa.ipc.open_file(pa.memory_map(str(path))) as file:
                self.schema: pa.Schema = file.schema
            self.schema.names  # noqa: B018  raises if one is not UTF-8
            file = self._opened([0])  # others may be compressed, and reading a batch decompresses it
            self.rows: list[int] = [file.get_batch(part).num_rows for part in range(file.num_record_batches)]
        if any(rows < 0 for rows in self.rows):
            raise DataError(f"{path}: found a batch of {min(self.rows):,} rows")
        self._lock = threading.Lock()
        self._of: tuple[int, list[str]] | None = None
        self._batch: pa.RecordBatch | None = None

    def read(self, part: int, start: int, stop: int, columns: list[str], step: int) -> pa.Table:
        """Rows start to stop of some columns of a batch; see `_ParquetParts.read`. All of a batch is read at once."""
        with self._lock, read_by_library(f"{self.path}: batch {part + 1} can't be read"):
            if self._of != (part, columns):
                batch = self._opened([self.schema.get_field_index(name) for name in columns]).get_batch(part)
                batch.validate(full=True)
                self._of, self._batch = (part, columns), batch
            return pa.Table.from_batches([self._batch]).select(columns).slice(start, stop - start)

    def _opened(self, fields: list[int]) -> pa.ipc.RecordBatchFileReader:
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        return pa.ipc.open_file(pa.memory_map(str(self.path)), options=options)
