"""Parquet and Arrow files as parts that are read by ranges of rows: row groups, and batches.

Both libraries trust much of what a file says. What comes from Arrow is validated before it is used, since reading past
the end of a buffer ends the process; Parquet is decoded a few rows at a time, so that memory follows what is asked for.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from embexp.errors import DataError, read_by_library


class ParquetParts:
    """The row groups of a Parquet file. To read their rows in order decodes each once.

    Attributes:
        schema: its columns.
        rows: in each row group.

    Raises:
        DataError: it can't be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
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
            start: the first row.
            stop: the row behind the last.
            columns: their names.
            step: rows that are decoded at a time.

        Raises:
            DataError: they can't be read.
        """
        where = f"{self._path}: row group {part + 1} can't be read"
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


class ArrowParts:
    """The batches of an Arrow file (IPC), mapped.

    Attributes:
        schema: its columns.
        rows: in each batch.

    Raises:
        DataError: it can't be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
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
        """Rows start to stop of some columns of a batch; see `ParquetParts.read`. All of a batch is read at once."""
        with self._lock, read_by_library(f"{self._path}: batch {part + 1} can't be read"):
            if self._of != (part, columns):
                batch = self._opened([self.schema.get_field_index(name) for name in columns]).get_batch(part)
                batch.validate(full=True)
                self._of, self._batch = (part, columns), batch
            return pa.Table.from_batches([self._batch]).select(columns).slice(start, stop - start)

    def _opened(self, fields: list[int]) -> pa.ipc.RecordBatchFileReader:
        options = pa.ipc.IpcReadOptions(included_fields=fields)
        return pa.ipc.open_file(pa.memory_map(str(self._path)), options=options)
