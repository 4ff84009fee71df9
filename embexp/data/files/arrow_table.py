"""Tables whose reader gives Arrow arrays of the types that the file's values have: Parquet, JSON Lines, rows in memory.

List columns of Parquet hold several values per example. pyarrow is imported once there is a file to open.
"""

from __future__ import annotations

import contextlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Self

from embexp.data.columns import Wanted
from embexp.data.files import table_files, text_table
from embexp.data.files.dialect import NULLS
from embexp.data.files.table_files import Files
from embexp.data.files.text_table import is_missing, is_number
from embexp.errors import DataError, Fault, excerpt, read_by_library

if TYPE_CHECKING:
    import pyarrow as pa

    from embexp.data.files.arrow_columns import InMemory
    from embexp.data.files.table_files import Block

BATCH_ROWS = 32_768


@dataclass(frozen=True)
class ArrowTable(ABC):
    """One file, or rows in memory; a `files.Table`.

    Attributes:
        path: of the file, or what stands for it in messages.
        names: of its columns.
        lists: those that hold several values per row.
        tokens: those whose values may be tokens.
        numbers: those whose type is one of numbers, truth values or times; text may hold numbers, too.
        unreadable: how messages about damaged files begin.
    """

    path: Path
    names: tuple[str, ...]
    lists: frozenset[str]
    tokens: frozenset[str]
    numbers: frozenset[str]
    unreadable: ClassVar[str]

    @property
    @abstractmethod
    def first(self) -> int:
        """See `files.Table`, as of `cuts` and `piece`."""

    @abstractmethod
    def cuts(self) -> Sequence[int]:
        """Rows at which the file may be cut."""

    @abstractmethod
    def piece(self, start: int, stop: int) -> Self:
        """The rows from one cut to another."""

    @abstractmethod
    def batches(self, wanted: Sequence[Wanted], rows: int) -> Iterator[tuple[float, pa.RecordBatch]]:
        """Fraction of the file that is read, and the rows, at most so many at once, of some columns."""

    def holds_numbers(self, column: str, *, rows: int) -> bool:
        """Whether the type of a column is one of numbers; or text, which all are numbers in the first rows."""
        if column in self.numbers or column not in self.tokens:
            return column in self.numbers
        from embexp.data.files.arrow_columns import flat

        one = Wanted(column, "", tokens=True, names=True)
        with contextlib.suppress(DataError):
            for block in self._blocks([one], rows):
                texts = [text for text in flat(block.tokens[column]).values.to_pylist() if not is_missing(str(text))]
                return bool(texts) and all(is_number(str(text)) for text in texts)
        return False

    def head_fault(self, wanted: Sequence[Wanted], *, rows: int) -> str:
        """What is wrong with the first rows, or ""."""
        from embexp.data.files.arrow_columns import BadValue, finite_numbers, row_splits

        here = [one for one in wanted if one.name in self.names]
        try:
            for block in self._blocks(here, rows):
                finite_numbers(block.numbers, here, row_splits(block.tokens))
                break
        except BadValue as error:
            return f"row {error.row + 1}: found {error.found}, expected {error.expected}"
        except DataError as error:
            return str(error).removeprefix(f"{self.path}").lstrip(":, ")
        return ""

    def blocks(self, wanted: Sequence[Wanted]) -> Iterator[Block]:
        """All rows; see `files.Table`."""
        yield from self._blocks(wanted, BATCH_ROWS)

    def explain(self, wanted: Sequence[Wanted]) -> str:
        """Nothing: the reader knows the row."""
        return ""

    def _blocks(self, wanted: Sequence[Wanted], rows: int) -> Iterator[Block]:
        from embexp.data.files.table_files import Block

        batches = self.batches(wanted, rows)
        while True:
            with read_by_library(f"{self.path}: {self.unreadable}"):
                if (following := next(batches, None)) is None:
                    return
                done, batch = following
                batch.validate(full=True)  # neither Parquet nor Arrow checks that text is UTF-8
                tokens = {one.name: _whole(batch[one.name], one) for one in wanted if one.tokens}
            numbers = {one.name: self._numbers(batch[one.name], one) for one in wanted if one.numbers}
            yield Block(batch.num_rows, done, tokens, numbers)

    def _numbers(self, array: pa.Array, wanted: Wanted) -> pa.Array:
        """float64, or lists of it; text is read as it is in CSV.

        Raises:
            BadValue: a text is no number, or no date.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        from embexp.data.files.arrow_columns import BadValue, as_float64

        if pa.types.is_dictionary(array.type):
            array = array.dictionary_decode()
        if not is_text(array.type):
            with read_by_library(f"{self.path}: {self.unreadable}"):
                return as_float64(array)
        texts = pc.utf8_trim_whitespace(array.cast(pa.string()))
        texts = pc.if_else(pc.is_in(texts, pa.array(NULLS)), None, texts)
        dated = wanted.time and _has_dates(texts)
        with contextlib.suppress(pa.ArrowInvalid):
            return text_table.seconds(texts, None) if dated else as_float64(texts)
        for row, text in enumerate(texts.to_pylist()):
            if text is not None and (text_table.seconds_of(text, None) is None if dated else not is_number(text)):
                expected = text_table.ISO if dated else wanted.expected(missing=False)
                raise BadValue(row, f"{excerpt(text)} in column {wanted.name!r}", expected)
        raise DataError(f"{self.path}: {self.unreadable}: column {wanted.name!r} can't be read as numbers")


def _whole(array: pa.Array, wanted: Wanted) -> pa.Array:
    """Truth values as 0 and 1, unless they are names of classes."""
    import pyarrow as pa

    if pa.types.is_string_view(array.type):
        return array.cast(pa.string())
    return array.cast(pa.int8()) if pa.types.is_boolean(array.type) and not wanted.names else array


def _has_dates(texts: pa.Array) -> bool:
    """Whether the first text that there is is a date."""
    first = next((text for text in texts.to_pylist() if text is not None), None)
    return first is not None and text_table.seconds_of(first, None) is not None


def is_text(kind: Any) -> bool:
    """Whether an Arrow type is one of text."""
    import pyarrow as pa

    return any(is_kind(kind) for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


def checked(tables: tuple[ArrowTable, ...], wanted: Sequence[Wanted]) -> Files:
    """The files, their columns checked; raises `ConfigError` with every fault found."""
    located = Files(tables)
    faults = [fault for each in tables for fault in table_files.missing(each.path, each.names, wanted)]
    table_files.stop_at(faults + [fault for each in tables for fault in type_faults(each, wanted)])
    table_files.stop_at(table_files.shape_faults(located, wanted) + table_files.single_faults(located, wanted))
    return located


def type_faults(table: ArrowTable, wanted: Sequence[Wanted]) -> list[Fault]:
    """Columns of types that can't be tokens, or numbers."""
    faults = []
    for one in wanted:
        if table.names.count(one.name) != 1:
            continue
        if one.tokens and not one.names and one.name not in table.tokens:
            rule = f"its values must be text or integers in {table.path}"
            faults.append(Fault(one.asked_by, repr(one.name), rule, "convert them to text"))
        if one.numbers and one.name not in table.numbers | table.tokens:
            rule = f"the column must hold numbers in {table.path}"
            faults.append(Fault(one.asked_by, repr(one.name), rule, "convert its values to numbers"))
    return faults


_BATCH_BYTES = 1 << 24


@dataclass(frozen=True)
class ParquetTable(ArrowTable):
    """One Parquet file, or rows in memory, whose tokens are text or integers."""

    unreadable = "the file can't be read as Parquet"

    rows: pa.Table | None = None
    """Rows in memory; None: they are in the file."""
    span: tuple[int, int] | None = None
    """Of a piece, where its rows begin and end; None: all."""

    @property
    def first(self) -> int:
        """The number of the first row."""
        return 0 if self.span is None else self.span[0]

    def cuts(self) -> Sequence[int]:
        """Where a batch begins, in each group of rows that is large enough."""
        import pyarrow.parquet as pq

        metadata = pq.read_metadata(self.path)
        if any("dictionary" in str(field.type) for field in metadata.schema.to_arrow_schema()):
            return ()  # their batches end with a group, too
        rows = _batch_rows(metadata)
        found = {-(-start // rows) * rows for start in _group_starts(metadata)}
        return sorted({*(cut for cut in found if cut < metadata.num_rows), metadata.num_rows})

    def piece(self, start: int, stop: int) -> Self:
        """The rows from one cut to another."""
        return replace(self, span=(start, stop))

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
            if self.span is None:
                for batch in file.iter_batches(batch_size=size, columns=names):
                    read += batch.num_rows
                    yield read / metadata.num_rows, batch
                return
            (start, stop), starts = self.span, _group_starts(metadata)
            groups = [n for n, (a, b) in enumerate(itertools.pairwise([*starts, stop])) if a < stop and b > start]
            count, batches = stop - start, file.iter_batches(batch_size=size, columns=names, row_groups=groups)
            for batch in _shifted(batches, start - starts[groups[0]], size):
                some = batch.slice(0, count - read)
                read += some.num_rows
                yield read / count, some
                if read >= count:
                    return


def _shifted(batches: Iterator[pa.RecordBatch], skipped: int, size: int) -> Iterator[pa.RecordBatch]:
    """Rows without the first ones, in batches of `size` again."""
    import pyarrow as pa

    held: list[pa.RecordBatch] = []
    for batch in batches:
        some = batch.slice(min(skipped, batch.num_rows))
        skipped -= batch.num_rows - some.num_rows
        table = pa.Table.from_batches([*held, some])
        if table.num_rows >= size:
            yield from table.slice(0, size).combine_chunks().to_batches()
            table = table.slice(size)
        held = table.to_batches()
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _group_starts(metadata: Any) -> list[int]:
    """The numbers of the first rows of the groups of rows."""
    sizes = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    return [0, *itertools.accumulate(sizes)][:-1]


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
    from embexp.data.files import arrow_columns

    rows = arrow_columns.as_written(data, wanted, separators)
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
