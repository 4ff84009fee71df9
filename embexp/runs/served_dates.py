"""Dates in a graph: weekday, month, hour and age of texts, as `embexp.data.files.dates` makes them of files.

Texts are read as Arrow reads them, which takes the C library's `strptime` for formats. So a day that its month lacks is
one of the next month, and a format without a year is of 1900. Source of the arithmetic of days:
https://howardhinnant.github.io/date_algorithms.html
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import tensorflow as tf

from embexp.data.files.dates import PERIODS, made_columns
from embexp.data.files.dialect import NULLS
from embexp.data.files.text_table import ISO
from embexp.specs.data import DateColumn

_SECOND = 1_000_000
_DAY = 86_400 * _SECOND
_MOST = 1 << 53
"""Microseconds since 1970 that float64 represents as when a file is read: until the year 2255."""
_SPACE = "".join(f"\\x{{{ord(letter):x}}}" for letter in map(chr, range(0x3001)) if letter.isspace())
"""The characters that `str.strip` removes, as a class of RE2. `tf.strings.strip` only removes ASCII."""
_MONTHS = (
    *("january", "february", "march", "april", "may", "june", "july"),
    *("august", "september", "october", "november", "december"),
)
"""The names of months as in the C library, in upper or lower case."""
_NAMES = "|".join([*_MONTHS, *(name[:3] for name in _MONTHS)])
_ISO = (
    ("Y", r"[12]\d{3}"),
    ("", "-"),
    ("m", r"[01]\d"),
    ("", "-"),
    ("d", r"[0-3]\d"),
    ("", "(?:[T ]"),
    ("H", r"[0-2]\d"),
    ("", ":"),
    ("M", r"[0-5]\d"),
    ("", "(?::"),
    ("S", r"[0-5]\d"),
    ("", "(?:[.]"),
    ("f", r"\d{1,6}"),
    ("", ")?)?"),
    ("z", r"(?:Z|[+-][01]\d:?[0-5]\d)?"),
    ("", ")?"),
)
"""Names of fields with their patterns, and "" for text in between; `f` is a fraction of a second, `z` a zone."""
_FIELDS = {
    # The C library reads no further digit of a number that would be too large with it.
    "Y": r"\d{1,4}",
    "y": r"\d\d?",
    "m": r"[01]\d?|[2-9]",
    "d": r"[0-3]\d?|[4-9]",
    "H": r"[0-2]\d?|[3-9]",
    "I": r"[01]\d?|[2-9]",
    "M": r"[0-5]\d?|[6-9]",
    "S": r"[0-6]\d?|[7-9]",
    "j": r"(?:[0-2]\d|3[0-6])\d?|\d\d?",
    "b": f"(?i:{_NAMES})",
    "B": f"(?i:{_NAMES})",
    "p": "(?i:am|pm)",
}
"""The patterns of the directives of a format."""
_BOUNDS = {"m": (1, 12), "d": (1, 31), "H": (0, 23), "I": (1, 12), "S": (0, 61), "j": (1, 366)}


def stripped(texts: Any) -> Any:
    """Texts without white space around them, as `str.strip` makes them."""
    return tf.strings.regex_replace(texts, f"^[{_SPACE}]+|[{_SPACE}]+$", "")


class DateColumns:
    """The columns that are made of columns of dates.

    Attributes:
        made: their names -> the column of the dates, and what of them.
    """

    def __init__(self, dates: Mapping[str, DateColumn]) -> None:
        self._dates, self.made = dict(dates), made_columns(dates)

    def clock(self, column: str, texts: Any) -> Clock:
        """The dates of a column, of texts as files have them.

        A text that is no date is an InvalidArgumentError of the running graph.
        """
        return _clock(column, texts, self._dates[column].format)

    def tokens(self, name: str, clock: Clock) -> Any:
        """A made column as tokens, "" where the date is missing: strings, of the shape of the dates."""
        found = tf.strings.as_string(tf.cast(self._values(name, clock), tf.int32))
        return tf.where(clock.missing, "", found)

    def numbers(self, name: str, clock: Clock) -> Any:
        """A made column as numbers, NaN where the date is missing: float32, of the shape of the dates."""
        found = tf.cast(tf.cast(self._values(name, clock), tf.float64), tf.float32)
        return tf.where(clock.missing, math.nan, found)

    def _values(self, name: str, clock: Clock) -> Any:
        column, part = self.made[name]
        return clock.values(part, self._dates[column].reference)


@dataclass(frozen=True)
class Clock:
    """The dates of some examples, in microseconds since 1970, int64.

    Attributes:
        missing: bool, where there is none; what else is known of it counts for nothing.
        local: on the clock of the date's own zone.
        moment: in UTC.
    """

    missing: Any
    local: Any
    moment: Any

    def values(self, part: str, reference: str | None) -> Any:
        """int64 of weekday (0 is Monday), month (from 1) and hour, float64 of the others."""
        name, _, wave = part.partition("_")
        if name == "age":
            assert reference is not None  # a rule between the settings
            last = (date.fromisoformat(reference) - date(1970, 1, 1)).days * 86_400.0
            return (last - tf.cast(self.moment, tf.float64) / _SECOND) / 86_400.0
        days = self.local // _DAY
        if name == "weekday":
            found = tf.math.floormod(days + 3, 7)  # 1970 began on a Thursday
        else:
            found = _month(days) if name == "month" else tf.math.floormod(self.local, _DAY) // (3_600 * _SECOND)
        if not wave:
            return found
        period, first = PERIODS[name]
        angle = (tf.cast(found, tf.float64) - first) * (2 * math.pi / period)
        return tf.sin(angle) if wave == "sin" else tf.cos(angle)


def _clock(column: str, texts: Any, form: str | None) -> Clock:
    """Reads dates from texts; see `DateColumns.clock`.

    Args:
        form: see `DateColumn`; None: ISO 8601.
    """
    trimmed = stripped(texts)
    missing = tf.reduce_any(trimmed[..., None] == tf.constant(NULLS), axis=-1)
    parts = _ISO if form is None else _parts(form)
    matches = tf.strings.regex_full_match(trimmed, _pattern(parts))
    fields = {
        name: tf.where(matches, tf.strings.regex_replace(trimmed, f"^{_pattern(parts, name)}$", r"\1"), "")
        for name, _ in parts
        if name
    }
    numbers = {name: _number(fields[name]) for name in fields if name not in "bBpfz"}
    valid = matches
    for name in numbers.keys() & _BOUNDS.keys():
        low, high = _BOUNDS[name]
        valid &= (fields[name] == "") | ((numbers[name] >= low) & (numbers[name] <= high))
    days, within = _days_of(fields, numbers)
    seconds = 3_600 * _hour(fields, numbers) + 60 * numbers.get("M", 0) + numbers.get("S", 0)
    fraction = _number(tf.strings.substr(fields["f"] + "000000", 0, 6)) if "f" in fields else 0
    local = days * _DAY + seconds * _SECOND + fraction
    moment = local
    if form is None:
        valid, moment = valid & within, local - _offset(fields["z"]) * _SECOND
    checked = _checked(column, texts, valid & (tf.abs(moment) <= _MOST), missing, ISO if form is None else form)
    return Clock(missing, *(tf.where(checked, each, 0) for each in (local, moment)))


def _parts(form: str) -> list[tuple[str, str]]:
    """The names of a format's fields with their patterns, and "" for text in between."""
    found = [("", "")]
    for piece in re.split(r"(%.|\s+)", form):
        if piece.startswith("%"):
            found += [("", " *" if piece[1] not in "bBp" else ""), (piece[1], _FIELDS[piece[1]])]
        elif piece:
            found.append(("", r"\s*" if piece.isspace() else re.escape(piece)))
    return found


def _pattern(parts: Any, captured: str = "") -> str:
    """The pattern of all parts, in which each field is a group."""
    return "".join(
        pattern if not name else f"({pattern})" if name == captured else f"(?:{pattern})" for name, pattern in parts
    )


def _number(texts: Any) -> Any:
    """Digits as int64; 0 without digits."""
    return tf.strings.to_number(tf.where(texts == "", "0", texts), tf.int64)


def _days_of(fields: Mapping[str, Any], numbers: Mapping[str, Any]) -> tuple[Any, Any]:
    """Days since 1970, and whether the month has such a day."""
    year = numbers.get("Y", tf.constant(1900, tf.int64))
    if "y" in numbers:
        year = numbers["y"] + tf.where(numbers["y"] < 69, tf.constant(2000, tf.int64), 1900)
    if "j" in numbers and not fields.keys() & {"m", "b", "B", "d"}:
        return _days(year, tf.constant(1, tf.int64), tf.constant(1, tf.int64)) + numbers["j"] - 1, tf.constant(True)
    month = numbers.get("m", tf.constant(1, tf.int64))
    if named := [fields[name] for name in "bB" if name in fields]:
        short = tf.strings.substr(tf.strings.lower(named[0]), 0, 3)
        month = tf.argmax(short[..., None] == tf.constant([name[:3] for name in _MONTHS]), -1) + 1
    days = _days(year, month, numbers.get("d", tf.constant(1, tf.int64)))
    return days, tf.equal(_month(days), month)


def _days(year: Any, month: Any, day: Any) -> Any:
    """Days from 1970-01-01 to a date. A day after the end of the month counts on."""
    year -= tf.cast(month <= 2, tf.int64)  # this year begins in March
    century = tf.math.floormod(year, 400)
    of_year = (153 * tf.math.floormod(month + 9, 12) + 2) // 5 + day - 1
    return year // 400 * 146_097 + century * 365 + century // 4 - century // 100 + of_year - 719_468


def _month(days: Any) -> Any:
    """The month of a day since 1970; January is 1."""
    day = tf.math.floormod(days + 719_468, 146_097)
    year = (day - day // 1_460 + day // 36_524 - day // 146_096) // 365
    of_year = day - (365 * year + year // 4 - year // 100)
    return tf.math.floormod((5 * of_year + 2) // 153 + 2, 12) + 1


def _hour(fields: Mapping[str, Any], numbers: Mapping[str, Any]) -> Any:
    if "H" in numbers or "I" not in numbers:
        return numbers.get("H", tf.constant(0, tf.int64))
    half = tf.cast(tf.strings.lower(fields["p"]) == "pm", tf.int64) if "p" in fields else 0
    return tf.math.floormod(numbers["I"], 12) + 12 * half


def _offset(zones: Any) -> Any:
    """The seconds of an offset such as `+02:00`; 0 for `Z` and for no offset."""
    digits = tf.strings.regex_replace(zones, "[Z:+-]", "")
    hours, minutes = (_number(tf.strings.regex_replace(digits, r"^(..)(..)$", group)) for group in (r"\1", r"\2"))
    sign = tf.where(tf.strings.substr(zones, 0, 1) == "-", tf.constant(-1, tf.int64), 1)
    return sign * (3_600 * hours + 60 * minutes)


def _checked(column: str, texts: Any, valid: Any, missing: Any, expected: str) -> Any:
    """Returns `valid`, after checking that every date is valid or missing."""
    wrong = tf.boolean_mask(texts, ~(valid | missing))
    message = f"column {column}: expected {expected}, found"
    with tf.control_dependencies([tf.raw_ops.Assert(condition=tf.equal(tf.size(wrong), 0), data=[message, wrong])]):
        return tf.identity(valid)
