"""How a text file of columns is written, from its first bytes: encoding, delimiter, header line or none."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from embexp.data import decompressed
from embexp.data.dialect import WHITESPACE
from embexp.data.text_fields import is_number
from embexp.errors import DataError
from embexp.system import regular

HEAD_BYTES = 1 << 23
_DELIMITERS = (",", "\t", ";", "|", "::", WHITESPACE)
_LINES = 50
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}


@dataclass(frozen=True)
class Head:
    """The beginning of a text file.

    Attributes:
        text: its first lines.
        ended: whether these are all.
        share: of the file's bytes, compressed ones if it is compressed, from 0 to 1.
        encoding: of the text.
        delimiter: between fields; `WHITESPACE` for any number of blanks and tabs.
        names: of the columns: those of the header line, or `column_1` and so on.
        headed: whether the first line is a header.
    """

    text: str
    ended: bool
    share: float
    encoding: str
    delimiter: str
    names: tuple[str, ...]
    headed: bool

    def rows(self) -> Iterator[list[str]]:
        """The rows of these lines, without the header."""
        return itertools.islice(records(self.text, self.delimiter), int(self.headed), None)


def head(file: Path, names: Sequence[str] | None = None) -> Head:
    """The beginning of a file.

    Args:
        file: of text, perhaps compressed.
        names: of its columns, if it has no header line; None: the first line shows whether it has one.

    Raises:
        DataError: it holds no rows of columns.
    """
    if fault := regular.fault_of(file):
        raise DataError(f"{file}: {fault}")
    with decompressed.opened(file) as (data, itself):
        content = data.read(HEAD_BYTES)
        ended = not data.read(1)
        share = 1.0 if ended else itself.tell() / max(1, file.stat().st_size)
    text, encoding = _decoded(content if ended else content[: content.rfind(b"\n") + 1])
    if not text.strip():
        raise DataError(f"{file}: the file is empty, expected rows of columns")
    delimiter = _delimiter(text)
    first = [field.strip() for field in next(records(text, delimiter))]
    headed = names is None and not any(map(is_number, first))
    if names is None:
        names = first if headed else [f"column_{number + 1}" for number in range(len(first))]
    if len(names) != len(first):
        raise DataError(f"{file}: its first line has {len(first)} fields, and --names has {len(names)}")
    if len(set(names)) < len(names) or not all(names):
        raise DataError(f"{file}: each column must have a name of its own, and the names are {', '.join(names[:9])}")
    found = Head(text, ended, share, encoding, delimiter, tuple(names), headed)
    if next(found.rows(), None) is None:
        raise DataError(f"{file}: found a header line, expected rows below it")
    return found


def records(text: str, delimiter: str) -> Iterator[list[str]]:
    """The fields of each record; those of a field without an end, at the end of a block, are left out."""
    if len(delimiter) > 1:
        for line in text.splitlines():
            if line.strip():
                yield re.split(r"[ \t]+", line.strip(" \t")) if delimiter == WHITESPACE else line.split(delimiter)
        return
    try:
        yield from filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))
    except csv.Error:
        return


def _decoded(content: bytes) -> tuple[str, str]:
    """The text, and its encoding: that of a byte order mark, UTF-8, or else Latin-1."""
    marked = next((encoding for mark, encoding in _MARKS.items() if content.startswith(mark)), "utf-8")
    for encoding in (marked, "latin-1"):
        try:
            return content.decode("utf-8-sig" if encoding == "utf-8" else encoding), encoding
        except UnicodeDecodeError:
            continue
    raise AssertionError("every byte is a character of Latin-1")


def _delimiter(text: str) -> str:
    """The one by which the first lines have the most fields, and all the same number; a comma if none has several."""
    best, most = ",", 1
    for delimiter in _DELIMITERS:
        lines = list(itertools.islice(records(text, delimiter), _LINES))
        widths = {len(fields) for fields in lines}
        if (
            len(widths) == 1
            and len(lines[0]) > (1 if delimiter == "::" else most)
            and (delimiter != WHITESPACE or most == 1)
        ):
            best, most = delimiter, len(lines[0])
    return best
