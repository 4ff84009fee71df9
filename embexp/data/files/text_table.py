"""Text tables (CSV, TSV, RecBole atomic files): their columns, a careful check line by line, and a fast reader.

The fast reader, Arrow's, does not report which line is at fault. The check looks at the first lines before a run, and
at all of them once a fast read has failed; it needs the standard library only, so Arrow is imported only to read.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from embexp.data.columns import Wanted
from embexp.data.files import text_lines
from embexp.data.files.dialect import (
    NULLS,
    WHITESPACE,
    BadLine,
    Dialect,
    is_number,
    no_utf8,
    plural,
    records,
    wrong_field,
)
from embexp.data.files.table_files import unreadable
from embexp.data.files.text_lines import LONGEST
from embexp.errors import DataError
from embexp.system import files

if TYPE_CHECKING:
    from embexp.data.files.arrow_columns import Block

_BLOCK_BYTES = 2 * 1024 * 1024
_LARGEST_BLOCK = 2 * LONGEST
_STRADDLES = "straddl"  # in Arrow's words for a record that is larger than a block
_SEPARATOR = "\x1f"
"""What stands for a delimiter of several characters: the control character of ASCII that is made for it."""
_PIECE_BYTES = 1 << 20
_BLANKS = re.compile(rb"[ \t]+")


@dataclass(frozen=True)
class TextTable:
    """One text file of columns.

    Attributes:
        header: names as they stand in the header line; those of the columns where there is none.
        names: names of the columns, in their order (without the types that RecBole puts there).
        lists: names of the columns whose fields hold several values.
        headed: whether the first line is a header.
        dates: columns of numbers that hold dates, and their format; see `dialect.seconds_of`.
    """

    path: Path
    dialect: Dialect
    header: tuple[str, ...]
    names: tuple[str, ...]
    lists: frozenset[str]
    headed: bool = True
    dates: Mapping[str, str | None] = field(default_factory=dict)

    def head_fault(self, wanted: Sequence[Wanted], *, rows: int) -> str:
        """The first of so many lines whose wanted columns can't be read; "" for none."""
        try:
            return self._first_fault(wanted, lines=rows + self.headed)
        except DataError as error:
            return str(error).removeprefix(f"{self.path}: ")

    def explain(self, wanted: Sequence[Wanted]) -> str:
        """The first line of all whose wanted columns can't be read; "" for none."""
        return self._first_fault(wanted, lines=None)

    def blocks(self, wanted: Sequence[Wanted]) -> Iterator[Block]:
        """All lines; see `files.Table`."""
        import pyarrow as pa

        rows = 0
        # Small blocks stay in the processor's cache; few files have records that are larger.
        for size in (_BLOCK_BYTES, max(_BLOCK_BYTES, _LARGEST_BLOCK)):
            known = rows
            try:
                for block in self._blocks(wanted, size):
                    if known >= block.count:
                        known -= block.count
                        continue
                    rows += block.count - known
                    yield block.after(known)
                    known = 0
                return
            except pa.ArrowInvalid as error:
                if _STRADDLES not in str(error) or size >= _LARGEST_BLOCK:
                    raise

    def _blocks(self, wanted: Sequence[Wanted], size: int) -> Iterator[Block]:
        import pyarrow as pa
        import pyarrow.csv

        from embexp.data.files.arrow_columns import Block, as_float64, split_lists
        from embexp.data.files.dialect import seconds

        header = dict(zip(self.names, self.header, strict=True))
        types = {
            header[one.name]: pa.float64() if not one.tokens and self._plain_number(one.name) else pa.string()
            for one in wanted
        }
        whole = max(1, self.path.stat().st_size)
        with text_lines.opened(self.path) as (data, file):
            plain = data is file and self.dialect.utf8 and self.dialect.simple
            source: Any = pa.OSFile(str(self.path)) if plain else pa.PythonFile(Rewritten(data, self.dialect), "r")
            read = 0
            with pyarrow.csv.open_csv(
                source,
                read_options=pyarrow.csv.ReadOptions(
                    block_size=size, column_names=None if self.headed else list(self.header)
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=self.dialect.delimiter if self.dialect.simple else _SEPARATOR,
                    quote_char='"' if self.dialect.quoted else False,
                    newlines_in_values=self.dialect.quoted,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types, include_columns=list(types), null_values=NULLS, strings_can_be_null=False
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
                            dated = one.name in self.dates
                            numbers[one.name] = seconds(array, self.dates[one.name]) if dated else as_float64(array)
                    read += size  # a batch is what a block held
                    yield Block(batch.num_rows, min(1.0, (read if plain else file.tell()) / whole), tokens, numbers)

    def _plain_number(self, name: str) -> bool:
        return name not in self.lists and name not in self.dates

    def _first_fault(self, wanted: Sequence[Wanted], *, lines: int | None) -> str:
        """What is wrong with the first line that can't be read; wanted columns that the file lacks are passed over."""
        here = [one for one in wanted if one.name in self.names]
        try:
            for count, (line, fields) in enumerate(records(self.path, self.dialect)):
                if count == lines:
                    break
                if self.headed and not count:
                    continue
                if len(fields) != len(self.names):
                    expected = plural(len(self.names), "field")
                    return f"line {line}: found {plural(len(fields), 'field')}, expected {expected}"
                found = dict(zip(self.names, fields, strict=True))
                wrong = wrong_field(found, here, lists=self.lists, dates=self.dates, dialect=self.dialect)
                if wrong is not None:
                    return f"line {line}: found {wrong[0]}, expected {wrong[1]}"
        except BadLine as error:
            return str(error)
        return ""


def header_fields(path: Path, dialect: Dialect, *, what: str = "its first line must name the columns") -> list[str]:
    """The fields of the first line.

    Args:
        what: a file without lines lacks, for its fault.

    Raises:
        Unreadable: there is none, or it is not in the encoding.
    """
    if fault := files.fault_of(path):
        raise unreadable(path, fault)
    if path.stat().st_size == 0:
        raise unreadable(path, f"the file is empty; {what}")
    for _, fields in _readable(path, dialect):
        if (byte := no_utf8("".join(fields))) is not None:
            rule = f"line 1: found the byte 0x{byte:02X}, expected text in UTF-8{dialect.remedy}"
            raise unreadable(path, rule)
        return fields
    raise unreadable(path, f"the file holds empty lines only; {what}")


def with_examples(table: TextTable, dated: Mapping[str, str | None] | None = None) -> TextTable:
    """The table, which has a line of examples.

    Args:
        dated: columns that may hold dates, and their format; without one, the first line shows whether they do.

    Raises:
        Unreadable: it has none.
    """
    lines = _readable(table.path, table.dialect)
    if table.headed:
        next(lines, None)
    first = next(lines, None)
    if first is None:
        raise unreadable(table.path, "the file has a header line but no examples below it")
    values = dict(zip(table.names, first[1], strict=False))
    dates = {
        name: form
        for name, form in (dated or {}).items()
        if name in values and (form is not None or not is_number(values[name]))
    }
    return replace(table, dates={name: form for name, form in dates.items() if _is_date(values[name], form)})


def _is_date(text: str, form: str | None) -> bool:
    """With a format every value has to be one; else a first value that is none is a fault of a number."""
    from embexp.data.files.dialect import seconds_of

    return form is not None or seconds_of(text, None) is not None


def _readable(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    try:
        yield from records(path, dialect)
    except BadLine as error:
        raise unreadable(path, str(error)) from None
    except DataError as error:
        raise unreadable(path, str(error).removeprefix(f"{path}: ")) from None


class Rewritten:
    """The bytes of a table, rewritten while they are read; a file for Arrow."""

    def __init__(self, data: IO[bytes], dialect: Dialect) -> None:
        self._pieces = _translated(_in_utf8(data, dialect), dialect)
        self._left = b""
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        """The next bytes, up to so many; b"" at the end."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._left = piece
        if count < 0:
            count = len(self._left)
        given, self._left = self._left[:count], self._left[count:]
        return given

    def readable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Ends the reading."""
        self.closed = True


def _in_utf8(data: IO[bytes], dialect: Dialect) -> Iterator[bytes]:
    if dialect.utf8:
        while piece := data.read(_PIECE_BYTES):
            yield piece
        return
    decoder = codecs.getincrementaldecoder(dialect.encoding)()
    while piece := data.read(_PIECE_BYTES):
        yield decoder.decode(piece).encode("utf-8")
    yield decoder.decode(b"", final=True).encode("utf-8")


def _translated(pieces: Iterator[bytes], dialect: Dialect) -> Iterator[bytes]:
    """The same with `_SEPARATOR` for a delimiter of several characters, whole lines at a time."""
    if dialect.simple:
        yield from pieces
        return
    begun = b"\xef\xbb\xbf"
    rest = b""
    for number, piece in enumerate(pieces):
        rest += piece.removeprefix(begun) if number == 0 else piece
        end = rest.rfind(b"\n") + 1
        if end:
            yield _separated(rest[:end], dialect.delimiter)
            rest = rest[end:]
        elif len(rest) > LONGEST:
            raise DataError("found a line that is too long")  # in other words by the careful reader
    if rest:
        yield _separated(rest, dialect.delimiter)


def _separated(lines: bytes, delimiter: str) -> bytes:
    mark = _SEPARATOR.encode()
    if mark in lines:
        raise DataError(
            f"found the control character {_SEPARATOR!r}, which stands for a delimiter of several characters while a"
            " file is read; expected text without it"
        )
    if delimiter != WHITESPACE:
        return lines.replace(delimiter.encode(), mark)
    lines = _BLANKS.sub(mark, lines).replace(mark + b"\r\n", b"\n").replace(mark + b"\n", b"\n")
    return lines.replace(b"\n" + mark, b"\n").removeprefix(mark).removesuffix(mark)
