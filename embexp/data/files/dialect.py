"""How a text table is written: its delimiter, quotes and header, told or guessed, and what its fields may hold."""

from __future__ import annotations

import codecs
import csv
import io
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING

from embexp.data.columns import NUMBER, Wanted
from embexp.data.files import text_lines
from embexp.data.files.text_lines import LONGEST, TOO_LONG, bounded
from embexp.errors import DataError
from embexp.system import files

if TYPE_CHECKING:
    import pyarrow as pa

WHITESPACE = "whitespace"
"""The delimiter that is any number of blanks and tabs."""
_BLANKS = re.compile("[ \t]+")
NULLS = ("", "NA", "N/A", "n/a", "null", "NULL", "None", "NaN", "nan")
"""What fields of columns of numbers hold where there is no number."""
_LARGEST = 3.4028235e38
_SHOWN = 60
_ISO = "a date or time such as 2024-05-31, 2024-05-31T18:00:00 or 2024-05-31 18:00:00+02:00"
"""What is expected where no format is set."""
_DATE = r"[12]\d{3}-[01]\d-[0-3]\d"
_CLOCK = r"[T ][0-2]\d:[0-5]\d(:[0-5]\d([.]\d{1,6})?)?"
_ZONE = r"(Z|[+-][01]\d:?[0-5]\d)"
_LOCAL, _ZONED = rf"^{_DATE}({_CLOCK})?$", rf"^{_DATE}{_CLOCK}{_ZONE}$"


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
        with text_lines.opened(path) as (data, _), _decoded(data, dialect) as text:
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


def is_number(text: str) -> bool:
    """Whether a field holds a number that float32 can hold, by the grammar of the fast reader."""
    try:
        return text.isascii() and "_" not in text and abs(float(text)) <= _LARGEST
    except ValueError:
        return False


def is_missing(text: str) -> bool:
    """Whether a field of a column of numbers holds none, by the grammar of the fast reader."""
    return text in NULLS or text.strip().lower().lstrip("+-") == "nan"


def values_in(text: str, separator: str) -> list[str]:
    """The values in a field that holds several; separators in a row count once."""
    return [value for value in text.split(separator) if value]


def wrong_field(
    fields: Mapping[str, str],
    wanted: Sequence[Wanted],
    *,
    lists: frozenset[str],
    dates: Mapping[str, str | None],
    dialect: Dialect,
) -> tuple[str, str] | None:
    """What was found and what was expected in the fields of a line, or None for a good one.

    Args:
        fields: by column.
        wanted: columns that are read.
        lists: those that hold several values.
        dates: those that hold dates, and how they are written; see `seconds_of`.
    """
    for one in wanted:
        text = fields[one.name]
        several = one.name in lists
        values = values_in(text, dialect.list_separator) if several else [text]
        if one.tokens and (byte := no_utf8(text)) is not None:
            return f"the byte 0x{byte:02X} in column {one.name!r}", f"text in UTF-8{dialect.remedy}"
        if one.numbers and one.name in dates:
            if seconds_of(text, dates[one.name]) is None:
                return f"{excerpt(text)} in column {one.name!r}", dates[one.name] or _ISO
        elif one.numbers:
            for value in values:
                if not (is_number(value) or (one.may_be_missing and is_missing(value))):
                    return f"{excerpt(value)} in column {one.name!r}", NUMBER
        if several and one.weighs in fields and one.weighs in lists:
            weighed = len(values_in(fields[one.weighs], dialect.list_separator))
            if len(values) != weighed:
                return (
                    f"{plural(len(values), 'weight')} in column {one.name!r}",
                    f"{weighed}, one for each value in column {one.weighs!r}",
                )
    return None


def plural(number: int, noun: str) -> str:
    """A number and a noun, in the plural where it belongs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def excerpt(text: str) -> str:
    """A text for a message, cut short."""
    if not text:
        return "nothing"
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def no_utf8(text: str) -> int | None:
    """The first byte that is not UTF-8, see `records`."""
    if text.isascii():
        return None
    return next((ord(letter) - 0xDC00 for letter in text if 0xDC80 <= ord(letter) <= 0xDCFF), None)


def seconds_of(text: str, form: str | None) -> float | None:
    """The seconds of one date; None where it is none.

    Args:
        form: as `datetime.strptime` takes it; None: ISO 8601. A time without a zone is in UTC.
    """
    try:
        if form is not None:
            return datetime.strptime(text, form).replace(tzinfo=UTC).timestamp()
        if not text.isascii() or not (re.match(_LOCAL, text) or re.match(_ZONED, text)) or text.endswith("\n"):
            return None
        found = datetime.fromisoformat(text)
        return (found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp()
    except ValueError:
        return None


def seconds(texts: pa.Array, form: str | None) -> pa.Array:
    """float64, the seconds of each date; null where there is none.

    Raises:
        ArrowInvalid: a text is no date.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if form is not None:
        return _since_1970(pc.strptime(texts, format=form, unit="us"))
    zoned = pc.match_substring_regex(texts, _ZONED)
    local = pc.match_substring_regex(texts, _LOCAL)
    if not pc.all(pc.or_(zoned, local)).as_py():
        raise pa.ArrowInvalid(f"expected {_ISO}")
    if not pc.any(zoned).as_py():
        return _since_1970(texts.cast(pa.timestamp("us")))
    with_zone = pc.if_else(zoned, texts, None).cast(pa.timestamp("us", "UTC"))
    without = pc.if_else(local, texts, None).cast(pa.timestamp("us"))
    return pc.coalesce(_since_1970(with_zone), _since_1970(without))


def _since_1970(times: pa.Array) -> pa.Array:
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.divide(times.cast(pa.int64()).cast(pa.float64()), 1e6)


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
        return itertools.islice(_records_of_text(self.text, self.delimiter), int(self.headed), None)


def head(file: Path, names: Sequence[str] | None = None) -> Head:
    """The beginning of a file.

    Args:
        names: of its columns, if it has no header line; None: the first line shows whether it has one.

    Raises:
        DataError: it holds no rows of columns.
    """
    if fault := files.fault_of(file):
        raise DataError(f"{file}: {fault}")
    with text_lines.opened(file) as (data, itself):
        content = data.read(HEAD_BYTES)
        ended = not data.read(1)
        share = 1.0 if ended else itself.tell() / max(1, file.stat().st_size)
    text, encoding = _decoded_text(content if ended else content[: content.rfind(b"\n") + 1])
    if not text.strip():
        raise DataError(f"{file}: the file is empty, expected rows of columns")
    delimiter = _delimiter(text)
    first = [field.strip() for field in next(_records_of_text(text, delimiter))]
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


def _records_of_text(text: str, delimiter: str) -> Iterator[list[str]]:
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


def _decoded_text(content: bytes) -> tuple[str, str]:
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
        lines = list(itertools.islice(_records_of_text(text, delimiter), _LINES))
        widths = {len(fields) for fields in lines}
        if (
            len(widths) == 1
            and len(lines[0]) > (1 if delimiter == "::" else most)
            and (delimiter != WHITESPACE or most == 1)
        ):
            best, most = delimiter, len(lines[0])
    return best
