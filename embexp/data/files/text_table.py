"""Text tables (CSV, TSV, RecBole atomic files): how they are written, a careful check of lines, and a fast reader.

The fast reader, Arrow's, does not report which line is at fault. The check looks at the first lines before a run, and
at all of them once a fast read has failed; it needs the standard library only, so Arrow is imported only to read.
"""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from embexp.data.columns import Wanted
from embexp.data.files.dialect import BRACKETS, NULLS, WHITESPACE, Dialect, expected_list, values_of_list
from embexp.data.files.table_files import LONGEST, TOO_LONG, UncutTable, bounded, unreadable
from embexp.errors import DataError, excerpt, plural
from embexp.system import compressed, files

if TYPE_CHECKING:
    import pyarrow as pa

    from embexp.data.files.table_files import Block

_BLANKS, _BLANK_BYTES = re.compile("[ \t]+"), re.compile(rb"[ \t]+")
_LARGEST = 3.4028235e38
ISO = "a date or time such as 2024-05-31, 2024-05-31T18:00:00 or 2024-05-31 18:00:00+02:00"
"""What is expected where no format is set."""
_DATE = r"[12]\d{3}-[01]\d-[0-3]\d"
_CLOCK = r"[T ][0-2]\d:[0-5]\d(:[0-5]\d([.]\d{1,6})?)?"
_LOCAL, _ZONED = rf"^{_DATE}({_CLOCK})?$", rf"^{_DATE}{_CLOCK}(Z|[+-][01]\d:?[0-5]\d)$"
_BLOCK_BYTES = 2 * 1024 * 1024
_LARGEST_BLOCK = 2 * LONGEST
_STRADDLES = "straddl"  # in Arrow's words for a record that is larger than a block
_SEPARATOR = b"\x1f"
"""What stands for a delimiter of several characters: the control character of ASCII that is made for it."""
_PIECE_BYTES, _SHORT_LINE = 1 << 20, 16


class BadLine(Exception):  # noqa: N818 - becomes the words of a fault
    """A line that can't be taken apart into fields."""


def records(lines: Iterable[str], dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Number of the line on which a record begins, from 1, and its fields; empty lines are skipped.

    Raises:
        BadLine: a line, or a field, is too long, or not in the encoding.
    """
    limit = csv.field_size_limit(LONGEST)
    line = 1
    try:
        if dialect.simple:
            reader = csv.reader(
                lines,
                delimiter=dialect.delimiter,
                quoting=csv.QUOTE_MINIMAL if dialect.quoted else csv.QUOTE_NONE,
                quotechar='"' if dialect.quoted else None,
            )
            for fields in reader:
                if fields:
                    yield line, fields
                line = reader.line_num + 1
            return
        blank = " \t" if dialect.delimiter == WHITESPACE else ""
        for line, whole in enumerate(lines, 1):
            if content := whole.rstrip("\r\n").strip(blank):
                yield line, _BLANKS.split(content) if blank else content.split(dialect.delimiter)
    except csv.Error as error:
        raise BadLine(f"line {line}: {error}") from None
    except UnicodeError:
        raise BadLine(f"near line {line}: found bytes that are not {dialect.encoding}, expected such text") from None
    finally:
        csv.field_size_limit(limit)


def records_of(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """The records of a file; bytes that are not UTF-8 are in the fields as lone surrogates (PEP 383).

    Raises:
        BadLine: see `records`.
        DataError: compressed data is damaged.
    """
    encoding, errors = ("utf-8-sig", "surrogateescape") if dialect.utf8 else (dialect.encoding, "strict")
    with (
        compressed.opened(path) as (data, _),
        io.TextIOWrapper(data, encoding=encoding, errors=errors, newline="") as text,
    ):
        yield from records(without_separator_line(_short(text)), dialect)


def without_separator_line(lines: Iterator[str]) -> Iterator[str]:
    """The lines, the first one empty if it is `sep=;`, by which Excel knows a delimiter."""
    for line in lines:
        yield line[len(line.rstrip("\r\n")) :] if is_separator_line(line) else line
        break
    yield from lines


def is_separator_line(line: str) -> bool:
    """Whether it is `sep=;` or the like, which Excel writes and reads as the first line."""
    return re.fullmatch(r'"?sep=(.|\\t)"?\r?\n?', line, re.I) is not None


def _short(file: IO[str]) -> Iterator[str]:
    for line in bounded(file):
        if len(line) > LONGEST:
            raise csv.Error(f"found {TOO_LONG}")
        yield line


def is_number(text: str) -> bool:
    """Whether a field holds a number that float32 can hold, by the grammar of the fast reader."""
    try:
        return text.isascii() and "_" not in text and abs(float(text)) <= _LARGEST
    except ValueError:
        return False


def _is_beyond(text: str) -> bool:
    """Whether a field holds a number that is too large for float32."""
    try:
        return abs(float(text)) > _LARGEST
    except ValueError:
        return False


def is_missing(text: str) -> bool:
    """Whether a field of a column of numbers holds none, by the grammar of the fast reader."""
    text = text.strip()
    return text in NULLS or text.lower().lstrip("+-") == "nan"


def no_utf8(text: str) -> int | None:
    """The first byte that is not UTF-8, see `records_of`."""
    if text.isascii():
        return None
    return next((ord(letter) - 0xDC00 for letter in text if 0xDC80 <= ord(letter) <= 0xDCFF), None)


def seconds_of(text: str, form: str | None) -> float | None:
    """The seconds of one date, with or without blanks around it; None where it is none.

    Args:
        form: as `datetime.strptime` takes it; None: ISO 8601. A time without a zone is in UTC.
    """
    text = text.strip()
    try:
        if form is not None:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        if not text.isascii() or not (re.match(_LOCAL, text) or re.match(_ZONED, text)):
            return None
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        return None


def seconds(texts: pa.Array, form: str | None) -> pa.Array:
    """float64, the seconds of each date, with or without blanks around it; null where there is none.

    Raises:
        ArrowInvalid: a text is no date.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def since_1970(times: pa.Array) -> pa.Array:
        return pc.divide(times.cast(pa.int64()).cast(pa.float64()), 1e6)

    texts = pc.utf8_trim_whitespace(texts)
    if form is not None:
        return since_1970(pc.strptime(texts, format=form, unit="us"))
    zoned = pc.match_substring_regex(texts, _ZONED)
    local = pc.match_substring_regex(texts, _LOCAL)
    if not pc.all(pc.or_(zoned, local)).as_py():
        raise pa.ArrowInvalid(f"expected {ISO}")
    with_zone = pc.if_else(zoned, texts, None).cast(pa.timestamp("us", "UTC"))
    without = pc.if_else(local, texts, None).cast(pa.timestamp("us"))
    return pc.coalesce(since_1970(with_zone), since_1970(without))


@dataclass(frozen=True)
class TextTable(UncutTable):
    """One text file of columns.

    Attributes:
        header: names as they stand in the header line; those of the columns where there is none.
        names: names of the columns, in their order, without blanks around them and the types that RecBole puts there.
        lists: names of the columns whose fields hold several values.
        headed: whether the first line is a header.
        dates: columns of numbers that hold dates, and their format; see `seconds_of`.
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

    def holds_numbers(self, column: str, *, rows: int) -> bool:
        """Whether all fields of a column in the first rows, but for missing ones, are numbers; or dates."""
        place, skipped = self.names.index(column), int(self.headed)
        lines = itertools.islice(_readable(self.path, self.dialect), skipped, skipped + rows)
        fields = (record[place] for _, record in lines if place < len(record))
        return all(is_number(self.dialect.number(field)) or is_missing(field) for field in fields)

    def explain(self, wanted: Sequence[Wanted]) -> str:
        """The first line of all whose wanted columns can't be read; "" for none."""
        return self._first_fault(wanted, lines=None)

    def blocks(self, wanted: Sequence[Wanted]) -> Iterator[Block]:
        """All lines; see `table_files.Table`."""
        import pyarrow as pa

        rows, size, trimmed = 0, _BLOCK_BYTES, False
        while True:
            known = rows
            try:
                for block in self._blocks(wanted, size, trimmed=trimmed):
                    if known >= block.count:
                        known -= block.count
                        continue
                    rows += block.count - known
                    yield block.after(known)
                    known = 0
                return
            except pa.ArrowInvalid as error:
                # Small blocks stay in the processor's cache; few files have records that are larger.
                if _STRADDLES in str(error) and size < _LARGEST_BLOCK:
                    size = _LARGEST_BLOCK
                elif not trimmed:  # Arrow takes blanks around a number, but not around the word for a missing one
                    trimmed = True
                else:
                    raise

    def _blocks(self, wanted: Sequence[Wanted], size: int, *, trimmed: bool) -> Iterator[Block]:
        import pyarrow as pa
        import pyarrow.csv

        from embexp.data.files.arrow_columns import as_float64, split_lists
        from embexp.data.files.table_files import Block

        header, dialect = dict(zip(self.names, self.header, strict=True)), self.dialect
        numbers = {one.name for one in wanted if not one.tokens} - self.lists - self.dates.keys()
        plain_numbers = numbers if dialect.plain and not trimmed else set()
        skipped = next((int(is_separator_line(line)) for line in _beginning(self.path, dialect)), 0)
        types = {header[one.name]: pa.float64() if one.name in plain_numbers else pa.string() for one in wanted}
        whole, read = max(1, self.path.stat().st_size), 0
        with compressed.opened(self.path) as (data, file):
            plain = data is file and dialect.utf8 and dialect.simple
            source: Any = pa.OSFile(str(self.path)) if plain else pa.PythonFile(data, "r")
            if not dialect.utf8:
                source = pa.transcoding_input_stream(source, dialect.encoding, "utf-8")
            if not dialect.simple:
                source = pa.PythonFile(_Separated(source, dialect.delimiter), "r")
            with pyarrow.csv.open_csv(
                source,
                read_options=pyarrow.csv.ReadOptions(
                    block_size=size, column_names=None if self.headed else list(self.header), skip_rows=skipped
                ),
                parse_options=pyarrow.csv.ParseOptions(
                    delimiter=dialect.delimiter if dialect.simple else _SEPARATOR.decode(),
                    quote_char='"' if dialect.quoted else False,
                    newlines_in_values=dialect.quoted,
                ),
                convert_options=pyarrow.csv.ConvertOptions(
                    column_types=types, include_columns=list(types), null_values=NULLS, strings_can_be_null=False
                ),
            ) as reader:
                for batch in reader:
                    arrays = {one.name: batch[header[one.name]] for one in wanted}
                    for name in self.lists.intersection(arrays):
                        arrays[name] = split_lists(arrays[name], dialect.list_separator)
                    tokens = {one.name: arrays[one.name] for one in wanted if one.tokens}
                    values = {
                        one.name: seconds(arrays[one.name], self.dates[one.name])
                        if one.name in self.dates
                        else as_float64(
                            arrays[one.name] if one.name in self.lists else dialect.numbers(arrays[one.name])
                        )
                        for one in wanted
                        if one.numbers
                    }
                    read += size  # a batch is what a block held
                    yield Block(batch.num_rows, min(1.0, (read if plain else file.tell()) / whole), tokens, values)

    def _first_fault(self, wanted: Sequence[Wanted], *, lines: int | None) -> str:
        """What is wrong with the first line that can't be read; wanted columns that the file lacks are passed over."""
        here = [one for one in wanted if one.name in self.names]
        try:
            for count, (line, fields) in enumerate(records_of(self.path, self.dialect)):
                if count == lines:
                    break
                if self.headed and not count:
                    continue
                if len(fields) != len(self.names):
                    expected = plural(len(self.names), "field")
                    return f"line {line}: found {plural(len(fields), 'field')}, expected {expected}"
                wrong = self._wrong_field(dict(zip(self.names, fields, strict=True)), here)
                if wrong is not None:
                    return f"line {line}: found {wrong[0]}, expected {wrong[1]}"
        except BadLine as error:
            return str(error)
        return ""

    def _wrong_field(self, fields: Mapping[str, str], wanted: Sequence[Wanted]) -> tuple[str, str] | None:
        """What was found and what was expected in the fields of a line, or None for a good one."""

        def values_of(name: str) -> list[str] | None:
            """Of a list; separators in a row count once. None: it is no list that is printed."""
            if self.dialect.list_separator == BRACKETS:
                found = values_of_list(fields[name])
                return None if found is None else ["" if value is None else value for value in found]
            return [value for value in fields[name].split(self.dialect.list_separator) if value]

        for one in wanted:
            text, several, where = fields[one.name], one.name in self.lists, f"in column {one.name!r}"
            if one.tokens and (byte := no_utf8(text)) is not None:
                return f"the byte 0x{byte:02X} {where}", f"text in UTF-8{self.dialect.remedy}"
            values = values_of(one.name) if several else [text]
            if values is None:
                return f"{excerpt(text)} {where}", expected_list(text)
            if one.numbers and one.name in self.dates:
                if seconds_of(text, self.dates[one.name]) is None and not (one.may_be_missing and is_missing(text)):
                    return f"{excerpt(text) if text else 'nothing'} {where}", self.dates[one.name] or ISO
            elif one.numbers:
                for value in values:
                    number = value if several else self.dialect.number(value)
                    if not (is_number(number) or (one.may_be_missing and is_missing(value))):
                        found = f"{excerpt(value) if value else 'nothing'} {where}"
                        return found, one.expected(missing=is_missing(value), beyond=_is_beyond(number))
            if several and one.weighs in fields and one.weighs in self.lists:
                weighed = len(values_of(one.weighs) or ())
                if len(values) != weighed:
                    expected = f"{weighed}, one per value in column {one.weighs!r}"
                    return f"{plural(len(values), 'weight')} {where}", expected
        return None


def header_fields(path: Path, dialect: Dialect, *, what: str = "its first line must name the columns") -> list[str]:
    """The fields of the first line.

    Args:
        what: a file without lines lacks, for its fault.

    Raises:
        ConfigError: there is none, or it is not in the encoding.
    """
    if fault := files.fault_of(path):
        raise unreadable(path, fault)
    if path.stat().st_size == 0:
        raise unreadable(path, f"the file is empty; {what}")
    for _, fields in _readable(path, dialect):
        if (byte := no_utf8("".join(fields))) is not None:
            raise unreadable(path, f"line 1: found the byte 0x{byte:02X}, expected text in UTF-8{dialect.remedy}")
        return fields
    raise unreadable(path, f"the file holds only empty lines; {what}")


def names_of(header: Sequence[str]) -> list[str]:
    """The names of columns, from the fields of a header line: blanks around them are none of their letters."""
    return [field.strip() for field in header]


def with_examples(table: TextTable, dated: Mapping[str, str | None] | None = None) -> TextTable:
    """The table, which has a line of examples.

    Args:
        dated: columns that may hold dates, and their format; without one, the first line shows whether they do.

    Raises:
        ConfigError: it has none.
    """
    lines = _readable(table.path, table.dialect)
    if table.headed:
        next(lines, None)
    first = next(lines, None)
    if first is None:
        raise unreadable(table.path, "the file has a header line but no examples below it")
    values = dict(zip(table.names, first[1], strict=False))
    # With a format every value has to be a date; else a first value that is none is a fault of a number.
    dates = {
        name: form
        for name, form in (dated or {}).items()
        if name in values and (form is not None or seconds_of(values[name], None) is not None)
    }
    return replace(table, dates=dates)


def _beginning(path: Path, dialect: Dialect) -> Iterator[str]:
    """The first line, if it is short."""
    encoding, errors = ("utf-8-sig", "replace") if dialect.utf8 else (dialect.encoding, "replace")
    with compressed.opened(path) as (data, _), io.TextIOWrapper(data, encoding, errors, newline="") as text:
        yield text.readline(_SHORT_LINE)


def _readable(path: Path, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    try:
        yield from records_of(path, dialect)
    except (BadLine, DataError) as error:
        raise unreadable(path, str(error).removeprefix(f"{path}: ")) from None


class _Separated:
    """The bytes of a table, with `_SEPARATOR` for a delimiter of several characters; a file for Arrow."""

    closed = False

    def __init__(self, data: Any, delimiter: str) -> None:
        self._pieces, self._left = _separated_pieces(data, delimiter), b""

    def read(self, count: int) -> bytes:
        """The next bytes, up to so many; b"" at the end."""
        self._left = self._left or next(self._pieces, b"")
        found, self._left = self._left[:count], self._left[count:]
        return found

    def readable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Ends the reading."""
        self.closed = True


def _separated_pieces(data: Any, delimiter: str) -> Iterator[bytes]:
    """Whole lines at a time."""
    rest = b""
    for number, piece in enumerate(iter(lambda: data.read(_PIECE_BYTES), b"")):
        rest += piece.removeprefix(b"\xef\xbb\xbf") if number == 0 else piece
        if end := rest.rfind(b"\n") + 1:
            yield _separated(rest[:end], delimiter)
            rest = rest[end:]
        elif len(rest) > LONGEST:
            raise DataError("found a line that is too long")  # in other words by the careful reader
    if rest:
        yield _separated(rest, delimiter)


def _separated(lines: bytes, delimiter: str) -> bytes:
    if _SEPARATOR in lines:
        raise DataError(
            f"found the control character {_SEPARATOR.decode()!r}, which embexp uses internally in place of a "
            f"delimiter of several characters; expected text without it"
        )
    if delimiter != WHITESPACE:
        return lines.replace(delimiter.encode(), _SEPARATOR)
    lines = _BLANK_BYTES.sub(_SEPARATOR, lines).replace(_SEPARATOR + b"\r\n", b"\n").replace(_SEPARATOR + b"\n", b"\n")
    return lines.replace(b"\n" + _SEPARATOR, b"\n").removeprefix(_SEPARATOR).removesuffix(_SEPARATOR)
