"""Forms of text files that their content shows: encodings, labelled texts, ratings without a header, notations."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from embexp.data.files.dialect import NULLS, Dialect
from embexp.data.files.text_table import is_number, seconds_of

Value = str | list[str] | None
"""A field: None where it is missing, a list where the file itself says that the column holds lists."""

_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_FEWEST_LINES, _MOST_LABELS, _RECURS = 10, 100, 5
"""Of labelled texts: lines at least, different labels at most, and how often each occurs at least on average."""
_FEWEST_WORDS, _SHORTEST_DATE = 3, 8
_COMPARED, _LOOKED_AT = 200, 20
"""Rows that the first one is compared with, and whose numbers are looked at."""
_DIGITS = re.compile(r"[+-]?\d[\d.,' \u00a0\u202f]*")
_MOST_RATINGS, _LARGEST_RATING = 101, 100
_NEAR, _RATIO, _ROUND, _FEWEST_NUMBERS = range(1, 6), 10, 5, 1_000
"""Distances of near numbers; how many times as often codes are equal as near; rounded ones are multiples of this; and
how many numbers it takes to tell."""


def labelled_lines(text: str, delimiter: str) -> tuple[str, dict[str, list[str | None]]] | None:
    """The delimiter and the columns of a file with a text in each line, behind its label; None for another file.

    Args:
        delimiter: by which its lines have as many fields as each other; a comma if there is none.
    """
    lines = [line.strip("\r") for line in text.split("\n") if line.strip()]
    is_table = delimiter != "\t" and len({line.count(delimiter) for line in lines[:50]}) == 1 and delimiter in lines[0]
    if len(lines) < _FEWEST_LINES or is_table:
        return None
    for between in ("\t", " "):
        parts = [line.partition(between) for line in lines]
        labels, texts = Counter(label for label, _, _ in parts), [text for _, _, text in parts]
        if not 1 < len(labels) <= _MOST_LABELS or len(labels) * _RECURS > len(lines):
            continue
        words = sum(any(map(str.isalpha, word)) for text in texts for word in text.split()) / len(texts)
        some_lack_it = not all(found for _, found, _ in parts)
        fields = {text.count("\t") for text in texts} if between == "\t" else {0}
        if not some_lack_it and words >= _FEWEST_WORDS and fields == {0} and 2 * len(set(texts)) > len(texts):
            return between, {"label": [label for label, _, _ in parts], "text": [text or None for text in texts]}
    return None


_NOTATIONS = ((",", ""), (",", "."), (",", " "), (",", "\u00a0"), (",", "\u202f"), (",", "'"))
_POINTED = ((".", ","), (".", " "), (".", "'"), (".", "\u00a0"), (".", "\u202f"))


DATE_FORMATS = tuple(
    f"{day}{clock}"
    for day in ("%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%Y/%m/%d", "%d-%m-%Y", "%Y%m%d")
    for clock in ("", " %H:%M", " %H:%M:%S")
)

_HOURS = "%y%m%d%H"
"""Such as 14102100, of click logs: by its digits alone it could be a code, so that the column's name decides."""
_FIRST_YEAR = 1900


@dataclass(frozen=True)
class DateFacts:
    """What a column of dates holds.

    Attributes:
        format: of the text; None for ISO 8601.
        last: the last date.
        parts: those of weekday, month and hour that differ.
    """

    format: str | None
    last: str
    parts: tuple[str, ...]


def dates_of(texts: Iterable[str], *, hours: bool = False) -> DateFacts | None:
    """Of text that is dates in one form; None of other text. Of two orders of day and month, the day is first.

    Args:
        hours: whether it may also be two digits each of year, month, day and hour.
    """
    some = list(texts)
    form: str | None
    for form in (None, *DATE_FORMATS, *([_HOURS] if hours else [])):
        if some and all(len(text) >= _SHORTEST_DATE and seconds_of(text, form) is not None for text in some):
            clocks = [datetime.fromisoformat(text) if form is None else datetime.strptime(text, form) for text in some]
            if hours and min(clock.year for clock in clocks) < _FIRST_YEAR:
                continue
            last = max(clock.date() for clock in clocks).isoformat()
            parts = {"weekday": datetime.weekday, "month": lambda clock: clock.month, "hour": lambda clock: clock.hour}
            return DateFacts(form, last, tuple(name for name, of in parts.items() if len(set(map(of, clocks))) > 1))
    return None


def are_codes(counts: Mapping[int, int]) -> bool:
    """Whether whole numbers, and how often each occurs, look like codes: some recur, and those next to them do not.

    Two numbers of a smooth quantity are about as often equal as one of them is larger by 1, or by 2. Zero and the most
    frequent number count for nothing, as many quantities are often zero or not known. If every second one is a multiple
    of 5, they are amounts that somebody rounded.
    """
    most = max(counts, key=lambda number: counts[number], default=0)
    rest = {number: count for number, count in counts.items() if number not in (0, most)}
    rows, rounded = sum(rest.values()), sum(count for number, count in rest.items() if number % _ROUND == 0)
    equal = sum(count * (count - 1) for count in rest.values())
    near = sum(count * rest.get(number + step, 0) for step in _NEAR for number, count in rest.items())
    return rows >= _FEWEST_NUMBERS and 2 * rounded < rows and equal * len(_NEAR) > _RATIO * near


def number_notation(columns: Mapping[str, Sequence[Value]], delimiter: str) -> tuple[Dialect, list[str]]:
    """How numbers are written, as `Dialect.decimal` and `thousands`, and the columns of such numbers.

    A notation is that of the file if it makes numbers of columns that else are none, and leaves no numbers out.
    """

    def filled(name: str, count: int) -> list[str]:
        texts = (value.strip() for value in columns[name][:count] if isinstance(value, str))
        return [text for text in texts if text not in NULLS]

    if not any(
        _DIGITS.fullmatch(text) and not is_number(text) for name in columns for text in filled(name, _LOOKED_AT)
    ):
        return Dialect(delimiter, quoted=True), []
    texts = {name: filled(name, _COMPARED) for name in columns}
    plain = {name for name, values in texts.items() if values and all(map(is_number, values))}
    marked = [
        name
        for name, values in texts.items()
        if values and name not in plain and all(_DIGITS.fullmatch(value) for value in values)
    ]
    for decimal, thousands in (*_POINTED, *_NOTATIONS) if delimiter == "," else (*_NOTATIONS, *_POINTED):
        dialect = Dialect(delimiter, quoted=True, decimal=decimal, thousands=thousands)
        found = [name for name in marked if all(is_number(dialect.number(value)) for value in texts[name])]
        if found and all(is_number(dialect.number(value)) for name in plain for value in texts[name]):
            return dialect, [*found, *plain]
    return Dialect(delimiter, quoted=True), []


def has_header(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first of some rows names the columns.

    It does if no field is a number, and none stands in another row, too; or if a column of numbers has a name.
    """
    first = rows[0]
    others = [row for row in rows[1 : _COMPARED + 1] if len(row) == len(first) and row != first]
    for place, name in enumerate(first):
        below = [row[place] for row in others[:_LOOKED_AT] if row[place] not in NULLS]
        if name and below and not is_number(name) and name not in NULLS and all(map(is_number, below)):
            return True
    if any(map(is_number, first)):
        return False
    return not any(name and name == row[place] for row in others for place, name in enumerate(first))


def names_of_ratings(rows: Sequence[Sequence[str]]) -> list[str] | None:
    """Names of the columns of ratings without a header line: user, item, rating and perhaps a time; None: no ratings.

    Users and items are whole numbers that recur, the ratings fewer numbers from 0 to 100, and times are since 1970.
    """
    width = len(rows[0])
    fields = [row for row in rows if len(row) == width]
    if width not in (3, 4) or len(fields) < _FEWEST_LINES or not all(is_number(each) for row in fields for each in row):
        return None
    users, items, ratings = ({row[place] for row in fields} for place in range(3))
    whole = all(value.isdigit() for value in users | items)
    recur = min(len(users), len(items)) * 2 <= len(fields)
    rated = len(ratings) <= _MOST_RATINGS and all(0 <= float(value) <= _LARGEST_RATING for value in ratings)
    fewer = len(ratings) < min(len(users), len(items))
    timed = width == 3 or all(631_152_000 <= float(row[3]) <= 2_208_988_800 for row in fields)
    return ["user", "item", "rating", "timestamp"][:width] if whole and recur and rated and fewer and timed else None


def decoded(content: bytes) -> tuple[str, str]:
    """The text, and its encoding: that of a byte order mark, UTF-8, Windows', or else Latin-1, which has all bytes."""
    marked = next((encoding for mark, encoding in _MARKS.items() if content.startswith(mark)), "utf-8")
    if marked == "utf-8" and (wide := _without_mark(content)):
        marked = wide
    try:
        return content.decode("utf-8-sig" if marked == "utf-8" else marked), marked
    except UnicodeDecodeError:
        pass
    try:  # what has control characters in Latin-1 is rather of Windows
        windows = any(0x80 <= byte <= 0x9F for byte in content)
        return content.decode("cp1252" if windows else "latin-1"), "cp1252" if windows else "latin-1"
    except UnicodeDecodeError:
        return content.decode("latin-1"), "latin-1"


def _without_mark(content: bytes) -> str | None:
    """UTF-16 of text whose letters are mostly Latin, without a mark: every second byte is 0."""
    head = content[:2_000]
    zeros = [head[place::2].count(0) for place in (0, 1)]
    if max(zeros) < len(head) / 4 or min(zeros) > len(head) / 20:
        return None
    return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
