"""Filters and sort keys of reports: `optimizer=sgd,adam`, `test rmse<0.95`, `seed:desc`. Nothing is evaluated.

A condition is a key, one of `= == != < <= > >=`, and a value. `=` and `!=` take several values with commas between
them, of which any may match. A value with a comma or a quote stands in quotes, inside which a backslash keeps the next
character. Numbers are compared as numbers: 1e-1 equals 0.1.
"""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import ge, gt, le, lt
from typing import Any

from embexp.errors import CommandLineError
from embexp.reports.record import Record

Reader = Callable[[Record], Any]
"""Reads one value of a run."""

_CONDITION = re.compile(r"\s*(?P<key>[^<>=!]+?)\s*(?P<operator><=|>=|!=|==|=|<|>)\s*(?P<values>.*)", re.DOTALL)
_FIELDS: Mapping[str, Reader] = {
    "job": lambda record: record.number,
    "run": lambda record: record.name,
    "status": lambda record: record.status.value,
    "seconds": lambda record: record.seconds,
}
_COMPARES: Mapping[str, Callable[[float, float], bool]] = {"<": lt, "<=": le, ">": gt, ">=": ge}
_OPENING, _CLOSING = "[{(", "]})"


@dataclass(frozen=True)
class Condition:
    """A condition on one value of a run.

    Attributes:
        operator: = != < <= > or >=.
        values: any of these; one for an inequality.
    """

    key: str
    operator: str
    values: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.key}{self.operator}{','.join(map(_quoted, self.values))}"

    def holds(self, value: Any) -> bool:
        """Whether a value satisfies the condition. No number is less or greater than a value that is none."""
        if self.operator in ("=", "!="):
            return any(_equal(value, each) for each in self.values) is (self.operator == "=")
        number = _number(value)
        return number is not None and _COMPARES[self.operator](number, float(self.values[0]))


def condition(text: str) -> Condition:
    """Reads a condition.

    Raises:
        CommandLineError: it is none.
    """
    matched = _CONDITION.fullmatch(text)
    if matched is None:
        raise CommandLineError(
            f"{text!r} is no condition\n    write a key, an operator (= != < <= > >=) and a value: optimizer=adam,"
            " 'test rmse<0.95'"
        )
    key, operator = matched["key"], matched["operator"].replace("==", "=")
    values = _values(matched["values"], text)
    if operator not in ("=", "!=") and (len(values) != 1 or _number(values[0]) is None):
        raise CommandLineError(f"{text!r}: {operator} takes one number, not {matched['values']!r}")
    return Condition(key, operator, values)


def select(records: Sequence[Record], conditions: Sequence[Condition]) -> list[Record]:
    """The runs that satisfy all conditions.

    Raises:
        CommandLineError: no run has a value of a key.
    """
    readers = [reader(records, each.key) for each in conditions]
    return [
        record
        for record in records
        if all(each.holds(read(record)) for each, read in zip(conditions, readers, strict=True))
    ]


def ordered(records: Sequence[Record], key: str) -> list[Record]:
    """The runs sorted by a key, ascending unless it ends in `:desc`. Runs without a value come last.

    Raises:
        CommandLineError: no run has a value of the key.
    """
    name, _, direction = key.rpartition(":") if key.endswith((":desc", ":asc")) else (key, "", "asc")
    read = reader(records, name)
    present = [record for record in records if not _missing(read(record))]
    absent = [record for record in records if _missing(read(record))]
    return [*sorted(present, key=lambda record: _rank(read(record)), reverse=direction == "desc"), *absent]


def reader(records: Sequence[Record], key: str) -> Reader:
    """Reads the value of a key: `job`, `run`, `status`, `seconds`, a setting, a metric, or a key of summary.json.

    The last parts of a key are enough if no other key ends in them, such as `learning_rate` or `rmse`.

    Raises:
        CommandLineError: no run has it, or several keys end so.
    """
    if key in _FIELDS:
        return _FIELDS[key]
    names = dict.fromkeys(name for record in records for name in (*record.overridden, *record.settings))
    metrics = dict.fromkeys(name for record in records for name in record.metrics)
    if key in metrics:
        return lambda record: record.metrics.get(key)
    if key in names or any(record.value(key) is not None for record in records):
        return lambda record: record.value(key)
    if any(at(record.summary, key) is not None for record in records):
        return lambda record: at(record.summary, key)
    ends = [name for name in names if name.endswith(f".{key}")] + [name for name in metrics if name.endswith(f" {key}")]
    if len(ends) == 1:
        return reader(records, ends[0])
    if ends:
        raise CommandLineError(f"{key!r} may be {' or '.join(map(repr, ends))}: write one of them")
    near = difflib.get_close_matches(key, [*_FIELDS, *names, *metrics], n=3, cutoff=0.5)
    hint = (
        f"did you mean {' or '.join(map(repr, near))}?"
        if near
        else f"the metrics are {', '.join(metrics) or 'not there'}"
    )
    raise CommandLineError(f"no run has a value of {key!r}\n    {hint}")


def at(content: Mapping[str, Any], key: str) -> Any:
    """The value at a dotted key, or None."""
    value: Any = content
    for part in key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def text_of(value: Any) -> str:
    """A value as YAML and the command line write it."""
    match value:
        case str():
            return value
        case float() if math.isfinite(value):
            return f"{value:g}" if float(f"{value:g}") == value else repr(value)
        case float():
            return str(value)
        case _:
            return json.dumps(value, ensure_ascii=False)


def _values(text: str, condition: str) -> tuple[str, ...]:
    """The values between commas, without quotes; commas in quotes and brackets separate nothing."""
    values, place = [], 0
    while True:
        value, place = _value(text, place, condition)
        values.append(value)
        if place == len(text):
            return tuple(values)
        place += 1


def _value(text: str, place: int, condition: str) -> tuple[str, int]:
    """The value that begins at a place, and the place of the comma behind it, or the end."""
    while place < len(text) and text[place].isspace():
        place += 1
    if place < len(text) and text[place] in "'\"":
        value, place = _unquoted(text, place, condition)
        while place < len(text) and text[place].isspace():
            place += 1
        if place < len(text) and text[place] != ",":
            raise CommandLineError(f"{condition!r}: a comma must follow the closing quote, not {text[place]!r}")
        return value, place
    begin, depth = place, 0
    while place < len(text) and (depth or text[place] != ","):
        depth += (text[place] in _OPENING) - (text[place] in _CLOSING and depth > 0)
        place += 1
    return text[begin:place].strip(), place


def _unquoted(text: str, place: int, condition: str) -> tuple[str, int]:
    quote, value = text[place], []
    place += 1
    while place < len(text) and text[place] != quote:
        place += text[place] == "\\"
        value.append(text[place : place + 1])
        place += 1
    if place >= len(text):
        raise CommandLineError(f"{condition!r}: the quote {quote} is not closed")
    return "".join(value), place + 1


def _quoted(value: str) -> str:
    bare = value == value.strip() and not any(each in value for each in ",'\"\\[]{}()")
    return value if bare else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _equal(value: Any, text: str) -> bool:
    numbers = _number(value), _number(text)
    if None not in numbers:
        return numbers[0] == numbers[1]
    if value is None:
        return text in ("", "null", "None")
    if isinstance(value, list | dict):
        return "".join(text_of(value).split()) == "".join(text.split())
    return text_of(value) == text


def _number(value: Any) -> float | None:
    """A value, or its text, as a number; None if it is none. NaN is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return None if math.isnan(number) else number


def _missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))


def _rank(value: Any) -> tuple[int, float, str]:
    """Numbers before texts, both ascending."""
    number = _number(value)
    return (0, number, "") if number is not None else (1, 0.0, text_of(value))
