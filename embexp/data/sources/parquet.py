"""Parquet files; list columns hold several values per example. pyarrow is imported once there is a file to open."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Wanted
from embexp.data.files import table_files
from embexp.data.files.arrow_table import BATCH_ROWS, ArrowTable, checked, is_text
from embexp.data.files.dates import dated
from embexp.data.files.table_files import Files
from embexp.data.sources.columnar import ColumnarSource
from embexp.errors import DataError, read_by_library
from embexp.specs.data import Parquet

if TYPE_CHECKING:
    import pyarrow as pa

    from embexp.data.files.frames import InMemory

_BATCH_BYTES = 1 << 24


def source(data: Parquet) -> ColumnarSource:
    """The source that a config describes."""
    return ColumnarSource(data, data.kind, dated(locate, data.dates), ["times in seconds"])


@dataclass(frozen=True)
class ParquetTable(ArrowTable):
    """One Parquet file, or rows in memory, whose tokens are text or integers."""

    unreadable = "the file can't be read as Parquet"

    rows: pa.Table | None = None
    """Rows in memory; None: they are in the file."""

    def batches(self, wanted: Sequence[Wanted], rows: int) -> Iterator[tuple[float, pa.RecordBatch]]:
        """Batches of rows that take little memory."""
        import pyarrow.parquet

        names, read = [one.name for one in wanted], 0
        if self.rows is not None:
            some = self.rows.select(names)
            rows = max(1, min(rows, int(_BATCH_BYTES * some.num_rows / max(1, some.nbytes))))
            for batch in some.to_batches(max_chunksize=rows):
                read += batch.num_rows
                yield read / some.num_rows, batch
            return
        with pyarrow.parquet.ParquetFile(self.path, pre_buffer=False, memory_map=True) as file:
            metadata, size = file.metadata, min(rows, _batch_rows(file.metadata))
            for batch in file.iter_batches(batch_size=size, columns=names):
                read += batch.num_rows
                yield read / metadata.num_rows, batch


def _batch_rows(metadata: Any) -> int:
    return max(1, min(BATCH_ROWS, int(_BATCH_BYTES / _row_bytes(metadata))))


def _row_bytes(metadata: Any) -> float:
    """Of all columns together: lists in them may hold millions of values."""
    # Not by column: to ask for one ends the process where its statistics are damaged.
    size = sum(metadata.row_group(number).total_byte_size for number in range(metadata.num_row_groups))
    return max(1.0, float(size / metadata.num_rows))


def locate(paths: Sequence[Path], wanted: Sequence[Wanted]) -> Files:
    """The files, their headers read; raises `ConfigError` with every fault found."""
    return checked(tuple(map(table, table_files.data_files(paths))), wanted)


def locate_in_memory(data: InMemory, separators: Mapping[str, str], wanted: Sequence[Wanted]) -> Files:
    """Data in memory as a file; raises `ConfigError` with every fault found.

    Args:
        separators: of the values of a text that holds several, by column.
    """
    from embexp.data.files import frames

    rows = frames.as_written(data, wanted, separators)
    if data.table.num_columns and not rows.num_rows:
        raise table_files.unreadable(data.name, "it has columns but no examples")
    lists, tokens, numbers = _kinds(rows.schema)
    return checked((ParquetTable(data.name, data.names, lists, tokens, numbers, rows),), wanted)


def table(path: Path) -> ParquetTable:
    """A file, its columns read; raises `ConfigError` if it can't be."""
    import pyarrow.parquet as pq

    if path.stat().st_size == 0:
        raise table_files.unreadable(path, "the file is empty")
    try:
        with read_by_library(ParquetTable.unreadable):
            metadata = pq.read_metadata(path)
            schema = metadata.schema.to_arrow_schema()
            schema.names  # noqa: B018  raises if one is not UTF-8
    except DataError as error:
        raise table_files.unreadable(path, str(error)) from error
    if metadata.num_rows <= 0:
        raise table_files.unreadable(path, "the file has columns but no examples")
    return ParquetTable(path, tuple(schema.names), *_kinds(schema))


def _kinds(schema: pa.Schema) -> tuple[frozenset[str], frozenset[str], frozenset[str]]:
    """The columns that hold lists, those whose values may be tokens, and those of numbers."""
    import pyarrow as pa

    lists, tokens, numbers = set(), set(), set()
    for field in schema:
        kind: Any = field.type
        if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
            lists.add(field.name)
            kind = kind.value_type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if is_text(kind) or pa.types.is_integer(kind):
            tokens.add(field.name)
        if pa.types.is_boolean(field.type):  # as 0 and 1
            tokens.add(field.name)
        if pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind):
            numbers.add(field.name)
        if pa.types.is_decimal(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind):
            numbers.add(field.name)
    return frozenset(lists), frozenset(tokens), frozenset(numbers)
