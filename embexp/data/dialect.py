"""How a text table is written, and its records one by one. Standard library only."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from embexp.data import decompressed
from embexp.data.bounded_lines import LONGEST, TOO_LONG, bounded

WHITESPACE = "whitespace"
"""The delimiter that is any number of blanks and tabs."""
_BLANKS = re.compile("[ \t]+")


@dataclass(frozen=True)
class Dialect:
    """How a text table is written.

    Attributes:
        delimiter: between fields: some characters, or `WHITESPACE`.
        quoted: fields may stand in double quotes, and then hold delimiters and line ends; needs a delimiter of one
            character.
        list_separator: between the values of a field that holds several.
        encoding: of the text, by the name that Python has for it.
        remedy: what to do where the text is not UTF-8, as the end of a sentence.
    """

    delimiter: str
    quoted: bool
    list_separator: str
    encoding: str = "utf-8"
    remedy: str = ""

    @property
    def utf8(self) -> bool:
        """Whether the text is UTF-8 (or ASCII)."""
        return self.encoding == "utf-8"

    @property
    def simple(self) -> bool:
        """Whether the delimiter is one character."""
        return len(self.delimiter) == 1


class BadLine(Exception):  # noqa: N818 - becomes the words of a fault
    """A line that can't be taken apart into fields."""


def records(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Number of the line on which a record begins, from 1, and its fields; empty lines are skipped.

    Bytes that are not UTF-8 are in the fields as lone surrogates (PEP 383).

    Raises:
        BadLine: a line, or a field, is too long, or not in the encoding.
        DataError: compressed data is damaged.
    """
    limit = csv.field_size_limit(LONGEST)
    line = 1
    try:
        with decompressed.opened(path) as (data, _), _decoded(data, dialect) as text:
            if not dialect.simple:
                for line, whole in enumerate(_short(text), 1):
                    content = whole.rstrip("\r\n")
                    if content.strip(" \t") if dialect.delimiter == WHITESPACE else content:
                        yield line, _fields(content, dialect.delimiter)
                return
            reader = csv.reader(
                _short(text),
                delimiter=dialect.delimiter,
                quoting=csv.QUOTE_MINIMAL if dialect.quoted else csv.QUOTE_NONE,
                quotechar='"' if dialect.quoted else None,
            )
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1
    except csv.Error as error:
        raise BadLine(f"line {line}: {error}") from None
    except UnicodeError:
        raise BadLine(f"near line {line}: found bytes that are not {dialect.encoding}, expected such text") from None
    finally:
        csv.field_size_limit(limit)


def _decoded(data: IO[bytes], dialect: Dialect) -> io.TextIOWrapper:
    encoding, errors = ("utf-8-sig", "surrogateescape") if dialect.utf8 else (dialect.encoding, "strict")
    return io.TextIOWrapper(data, encoding=encoding, errors=errors, newline="")


def _fields(line: str, delimiter: str) -> list[str]:
    return _BLANKS.split(line.strip(" \t")) if delimiter == WHITESPACE else line.split(delimiter)


def _short(file: IO[str]) -> Iterator[str]:
    for line in bounded(file):
        if len(line) > LONGEST:
            raise csv.Error(f"found {TOO_LONG}")
        yield line
