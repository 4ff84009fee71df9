"""What the fields of a text table may hold: numbers, dates, tokens, and several of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from embexp.data import times
from embexp.data.dialect import Dialect
from embexp.data.wanted import NUMBER, Wanted

NULLS = ("", "NA", "N/A", "n/a", "null", "NULL", "None", "NaN", "nan")
"""What fields of columns of numbers hold where there is no number."""
_LARGEST = 3.4028235e38
_SHOWN = 60


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


def wrong(
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
        dates: those that hold dates, and how they are written; see `times.seconds_of`.
        dialect: how the table is written.
    """
    for one in wanted:
        text = fields[one.name]
        several = one.name in lists
        values = values_in(text, dialect.list_separator) if several else [text]
        if one.tokens and (byte := no_utf8(text)) is not None:
            return f"the byte 0x{byte:02X} in column {one.name!r}", f"text in UTF-8{dialect.remedy}"
        if one.numbers and one.name in dates:
            if times.seconds_of(text, dates[one.name]) is None:
                return f"{shown(text)} in column {one.name!r}", dates[one.name] or times.ISO
        elif one.numbers:
            for value in values:
                if not (is_number(value) or (one.may_be_missing and is_missing(value))):
                    return f"{shown(value)} in column {one.name!r}", NUMBER
        if several and one.weighs in fields and one.weighs in lists:
            weighed = len(values_in(fields[one.weighs], dialect.list_separator))
            if len(values) != weighed:
                return (
                    f"{counted(len(values), 'weight')} in column {one.name!r}",
                    f"{weighed}, one for each value in column {one.weighs!r}",
                )
    return None


def counted(number: int, noun: str) -> str:
    """A number and a noun, in the plural where it belongs."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def shown(text: str) -> str:
    """A text for a message, cut short."""
    if not text:
        return "nothing"
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")


def no_utf8(text: str) -> int | None:
    """The first byte that is not UTF-8, see `dialect.records`."""
    if text.isascii():
        return None
    return next((ord(letter) - 0xDC00 for letter in text if 0xDC80 <= ord(letter) <= 0xDCFF), None)
