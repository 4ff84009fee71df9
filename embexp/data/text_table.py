"""Text tables (CSV, TSV, RecBole atomic files): header, and a careful check line by line.

Reading whole files is the business of `readers`, which is fast but can't tell which line is at fault; this module looks
at the first lines before a run, and at all of them once a fast read has failed. Standard library only.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from embexp.data.wanted import Wanted

NUMBER = "a finite number"
_SHOWN = 60
_LARGEST = 3.4028235e38


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


@dataclass(frozen=True)
class LineFault:
    """A line that can't be read."""

    path: Path
    line: int
    found: str
    expected: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: found {self.found}, expected {self.expected}"


def header_fields(path: Path, dialect: Dialect) -> list[str]:
    """The fields of the first line; empty for an empty file.

    Raises:
        UnicodeDecodeError: the line is not UTF-8.
    """
    for _, fields in _lines(path, dialect):
        return [field.encode("utf-8", "surrogateescape").decode("utf-8") for field in fields]
    return []


def holds_examples(table: TextTable) -> bool:
    """Whether there is a line below the header."""
    lines = _lines(table.path, table.dialect)
    next(lines, None)
    return next(lines, None) is not None


def first_fault(table: TextTable, wanted: Sequence[Wanted], *, lines: int | None = None) -> LineFault | None:
    """The first line whose wanted columns can't be read.

    Args:
        table: the file.
        wanted: columns to look at; those that the file lacks are passed over.
        lines: how many lines to look at; None: all.
    """
    here = [one for one in wanted if one.name in table.names]
    for count, (line, fields) in enumerate(_lines(table.path, table.dialect)):
        if count == lines:
            return None
        if count and (wrong := _wrong(table, here, fields)):
            return LineFault(table.path, line, *wrong)
    return None


def is_number(text: str) -> bool:
    """Whether a field holds a number that float32 can hold, by the grammar of the fast reader."""
    try:
        return text.isascii() and "_" not in text and abs(float(text)) <= _LARGEST
    except ValueError:
        return False


def parts(text: str, separator: str) -> list[str]:
    """The values in a field that holds several; separators in a row count once."""
    return [part for part in text.split(separator) if part]


def _wrong(table: TextTable, wanted: Sequence[Wanted], fields: list[str]) -> tuple[str, str] | None:
    """What was found and what was expected, or None for a good line."""
    if len(fields) != len(table.names):
        return _count(len(fields), "field"), _count(len(table.names), "field")
    place = {name: number for number, name in enumerate(table.names)}
    for one in wanted:
        text = fields[place[one.name]]
        several = one.name in table.lists
        values = parts(text, table.dialect.list_separator) if several else [text]
        if one.tokens and not text.isascii():
            try:
                text.encode("utf-8", "surrogateescape").decode("utf-8")
            except UnicodeDecodeError:
                return f"bytes that are not UTF-8 in column {one.name!r}", "text in UTF-8"
        if one.numbers:
            for value in values:
                if not is_number(value):
                    return f"{_shown(value)} in column {one.name!r}", NUMBER
        if several and one.weighs in place:
            weighed = len(parts(fields[place[one.weighs]], table.dialect.list_separator))
            if one.weighs in table.lists and len(values) != weighed:
                return (
                    f"{_count(len(values), 'weight')} in column {one.name!r}",
                    f"{weighed}, one for each value in column {one.weighs!r}",
                )
    return None


def _lines(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Number of the line on which a record begins, from 1, and its fields; empty lines are left out."""
    limit = csv.field_size_limit(sys.maxsize)
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
            reader = csv.reader(
                file,
                delimiter=dialect.delimiter,
                quoting=csv.QUOTE_MINIMAL if dialect.quoted else csv.QUOTE_NONE,
                quotechar='"' if dialect.quoted else None,
            )
            line = 1
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1
    finally:
        csv.field_size_limit(limit)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _shown(text: str) -> str:
    if not text:
        return "nothing"
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
