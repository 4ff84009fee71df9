"""Text tables (CSV, TSV, RecBole atomic files): header, a careful check line by line, and a fast reader.

The fast reader, Arrow's, does not report which line is at fault. The check looks at the first lines before a run, and
at all of them once a fast read has failed; it needs the standard library only, so Arrow is imported only to read.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING

from embexp.data.bounded_lines import LONGEST, TOO_LONG, bounded
from embexp.data.files import unreadable
from embexp.data.wanted import NUMBER, Wanted
from embexp.system import regular

if TYPE_CHECKING:
    from embexp.data.arrow_columns import Block

_SHOWN = 60
_BLOCK_BYTES = 2 * 1024 * 1024
_LARGEST = 3.4028235e38
NULLS = ("", "NA", "N/A", "n/a", "null", "NULL", "None", "NaN", "nan")
"""What fields of columns of numbers hold where there is no number."""


@dataclass(frozen=True)
class Dialect:
    """How a text table is written.

    Attributes:
        delimiter: one character between fields.
        quoted: fields may stand in double quotes, and then hold delimiters and line ends.
        list_separator: between the values of a field that holds several.
    """

    delimiter: str
    quoted: bool
    list_separator: str


@dataclass(frozen=True)
class TextTable:
    """One text file with a header line.

    Attributes:
        path: of the file.
        dialect: how it is written.
        header: names as they stand in the header line.
        names: names of the columns, in their order (without the types that RecBole puts there).
        lists: names of the columns whose fields hold several values.
    """

    path: Path
    dialect: Dialect
    header: tuple[str, ...]
    names: tuple[str, ...]
    lists: frozenset[str]

    def head_fault(self, wanted: Sequence[Wanted], *, rows: int) -> str:
        """The first of so many lines whose wanted columns can't be read; "" for none."""
        return _first_fault(self, wanted, lines=rows + 1)

    def explain(self, wanted: Sequence[Wanted]) -> str:
        """The first line of all whose wanted columns can't be read; "" for none."""
        return _first_fault(self, wanted, lines=None)

    def blocks(self, wanted: Sequence[Wanted]) -> Iterator[Block]:
        """All lines; see `files.Table`."""
        import pyarrow as pa
        import pyarrow.csv

        from embexp.data.arrow_columns import Block, as_float64, split_lists

        header = dict(zip(self.names, self.header, strict=True))
        types = {
            header[one.name]: pa.string() if one.tokens or one.name in self.lists else pa.float64() for one in wanted
        }
        size, read = self.path.stat().st_size, 0
        with pyarrow.csv.open_csv(
            pa.OSFile(str(self.path)),  # a path would be decompressed by its suffix
            read_options=pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES),
            parse_options=pyarrow.csv.ParseOptions(
                delimiter=self.dialect.delimiter,
                quote_char='"' if self.dialect.quoted else False,
                newlines_in_values=self.dialect.quoted,
            ),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types,
                include_columns=list(types),
                null_values=NULLS,
                strings_can_be_null=False,
            ),
        ) as reader:
            for batch in reader:
                tokens, numbers = {}, {}
                for one in wanted:
                    array = batch[header[one.name]]
                    if one.name in self.lists:
                        array = split_lists(array, self.dialect.list_separator)
                    if one.tokens:
                        tokens[one.name] = array
                    if one.numbers:
                        numbers[one.name] = as_float64(array)
                read += _BLOCK_BYTES  # a batch is what a block held
                yield Block(batch.num_rows, min(1.0, read / size), tokens, numbers)


def header_fields(path: Path, dialect: Dialect) -> list[str]:
    """The fields of the first line.

    Raises:
        Unreadable: there is none, or it is not UTF-8.
    """
    if fault := regular.fault_of(path):
        raise unreadable(path, fault)
    if path.stat().st_size == 0:
        raise unreadable(path, "the file is empty; its first line must name the columns")
    for _, fields in _readable_lines(path, dialect):
        try:
            return [field.encode("utf-8", "surrogateescape").decode("utf-8") for field in fields]
        except UnicodeDecodeError as error:
            rule = "line 1: found bytes that are not UTF-8, expected the names of the columns"
            raise unreadable(path, rule) from error
    raise unreadable(path, "the file holds empty lines only; its first line must name the columns")


def with_examples(table: TextTable) -> TextTable:
    """The table, which has a line below its header.

    Raises:
        Unreadable: it has none.
    """
    lines = _readable_lines(table.path, table.dialect)
    next(lines, None)
    if next(lines, None) is None:
        raise unreadable(table.path, "the file has a header line but no examples below it")
    return table


def _first_fault(table: TextTable, wanted: Sequence[Wanted], *, lines: int | None) -> str:
    """What is wrong with the first line that can't be read; wanted columns that the file lacks are passed over."""
    here = [one for one in wanted if one.name in table.names]
    try:
        for count, (line, fields) in enumerate(_lines(table.path, table.dialect)):
            if count == lines:
                break
            if count and (wrong := _wrong(table, here, fields)):
                found, expected = wrong
                return f"line {line}: found {found}, expected {expected}"
    except _BadLine as error:
        return str(error)
    return ""


def is_number(text: str) -> bool:
    """Whether a field holds a number that float32 can hold, by the grammar of the fast reader."""
    try:
        return text.isascii() and "_" not in text and abs(float(text)) <= _LARGEST
    except ValueError:
        return False


def is_missing(text: str) -> bool:
    """Whether a field of a column of numbers holds none, by the grammar of the fast reader."""
    return text in NULLS or text.strip().lower().lstrip("+-") == "nan"


def _values(text: str, separator: str) -> list[str]:
    """The values in a field that holds several; separators in a row count once."""
    return [value for value in text.split(separator) if value]


def _wrong(table: TextTable, wanted: Sequence[Wanted], fields: list[str]) -> tuple[str, str] | None:
    """What was found and what was expected, or None for a good line."""
    if len(fields) != len(table.names):
        return _count(len(fields), "field"), _count(len(table.names), "field")
    place = {name: number for number, name in enumerate(table.names)}
    for one in wanted:
        text = fields[place[one.name]]
        several = one.name in table.lists
        values = _values(text, table.dialect.list_separator) if several else [text]
        if one.tokens and not text.isascii():
            try:
                text.encode("utf-8", "surrogateescape").decode("utf-8")
            except UnicodeDecodeError:
                return f"bytes that are not UTF-8 in column {one.name!r}", "text in UTF-8"
        if one.numbers:
            for value in values:
                if not (is_number(value) or (one.may_be_missing and is_missing(value))):
                    return f"{_shown(value)} in column {one.name!r}", NUMBER
        if several and one.weighs in place:
            weighed = len(_values(fields[place[one.weighs]], table.dialect.list_separator))
            if one.weighs in table.lists and len(values) != weighed:
                return (
                    f"{_count(len(values), 'weight')} in column {one.name!r}",
                    f"{weighed}, one for each value in column {one.weighs!r}",
                )
    return None


class _BadLine(Exception):  # noqa: N818 - becomes the words of a fault
    """A line that can't be taken apart into fields."""


def _readable_lines(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    try:
        yield from _lines(path, dialect)
    except _BadLine as error:
        raise unreadable(path, str(error)) from None


def _lines(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Number of the line on which a record begins, from 1, and its fields; empty lines are skipped.

    Raises:
        _BadLine: a line, or a field, is too long.
    """
    limit = csv.field_size_limit(LONGEST)
    line = 1
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(
                _short(file),
                delimiter=dialect.delimiter,
                quoting=csv.QUOTE_MINIMAL if dialect.quoted else csv.QUOTE_NONE,
                quotechar='"' if dialect.quoted else None,
            )
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1
    except csv.Error as error:
        raise _BadLine(f"line {line}: {error}") from None
    finally:
        csv.field_size_limit(limit)


def _short(file: IO[str]) -> Iterator[str]:
    for line in bounded(file):
        if len(line) > LONGEST:
            raise csv.Error(f"found {TOO_LONG}")
        yield line


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shown(text: str) -> str:
    if not text:
        return "nothing"
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
