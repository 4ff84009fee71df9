"""What a column of a sample holds: the kind of its values, and a few figures. The rules are in `kind_of`."""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from embexp.data.samples import Sample, Value
from embexp.data.text_fields import NULLS
from embexp.data.times import seconds_of


class Kind(StrEnum):
    """What the values of a column are."""

    NUMBER = "numbers"
    CATEGORY = "categories"
    LIST = "lists"
    TEXT = "texts"
    TIME = "times"
    CONSTANT = "constant"
    UNIQUE = "unique"


FEW = 10
"""Whole numbers with at most so many different values are categories."""
LIST_SEPARATORS = ("|", ";", ",", " ")
_ID = re.compile(r"(?:^|_|\b)(?:id|ids|code|zip|zipcode|uuid|guid|hash|key|user|item|cat|category)$|[a-z]I[dD]$", re.I)
_TIME = re.compile(r"time|date|stamp|(?:^|_)(?:ts|at|when|epoch)$", re.I)
_EPOCHS = tuple((631_152_000 * unit, 2_208_988_800 * unit) for unit in (1, 1_000, 1_000_000))
"""1990 to 2040 in seconds, milliseconds and microseconds."""
_HEAVY = 10.0
"""Largest value, in standard deviations above the mean, from which counts are heavy-tailed; a normal distribution has
none above 6 among a billion, an exponential one about 10 among 20,000."""


@dataclass(frozen=True)
class ColumnFacts:
    """A column of a sample.

    Attributes:
        name: of the column.
        kind: of its values.
        why: the reason for the kind, for people.
        present: values that are not missing.
        missing: share of those that are, from 0 to 1.
        distinct: different values in the sample; of lists and texts, their parts.
        estimated: different values of the whole data, about.
        heavy: whether a few numbers are much larger than the others.
        negative: whether some number is below 0.
        separator: between the values of a list that is written as text.
        numbers: the different numbers, sorted, if they are few.
        examples: some values.
    """

    name: str
    kind: Kind
    why: str
    present: int
    missing: float
    distinct: int
    estimated: int
    heavy: bool = False
    negative: bool = False
    separator: str | None = None
    numbers: tuple[float, ...] = ()
    examples: tuple[str, ...] = ()


def facts(sample: Sample) -> list[ColumnFacts]:
    """The facts of all columns, in their order."""
    return [_facts(name, values, sample) for name, values in sample.columns.items()]


def _facts(name: str, values: Sequence[Value], sample: Sample) -> ColumnFacts:
    there = [value for value in values if value is not None]
    missing = 1 - len(there) / len(values) if values else 1.0
    lists = [value for value in there if isinstance(value, list)]
    if lists:
        return _of_lists(name, lists, missing, sample, None, "the file says so")
    texts = [value for value in there if isinstance(value, str)]
    present = [text for text in texts if text not in NULLS]
    if len(present) < len(texts) and present and _numbers(present) is not None:
        texts, missing = present, 1 - len(present) / len(values)
    counts = Counter(texts)
    numbers = _numbers(texts)
    kind, why, separator = kind_of(name, counts, numbers, sample.types.get(name))
    if kind in (Kind.LIST, Kind.TEXT):
        return _of_lists(name, [text.split(separator) for text in texts], missing, sample, separator, why, kind)
    different = sorted(set(numbers)) if numbers is not None and len(counts) <= 100 else []
    return ColumnFacts(
        name,
        kind,
        why,
        len(texts),
        missing,
        len(counts),
        _estimate(counts, sample),
        heavy=numbers is not None and _is_heavy(numbers),
        negative=numbers is not None and min(numbers, default=0) < 0,
        numbers=tuple(different),
        examples=tuple(text for text, _ in counts.most_common(3)),
    )


def _of_lists(
    name: str,
    lists: Sequence[Sequence[str]],
    missing: float,
    sample: Sample,
    separator: str | None,
    why: str,
    kind: Kind = Kind.LIST,
) -> ColumnFacts:
    counts = Counter(part for each in lists for part in each)
    examples = tuple(part for part, _ in counts.most_common(3))
    size = _estimate(counts, sample)
    return ColumnFacts(name, kind, why, len(lists), missing, len(counts), size, separator=separator, examples=examples)


def kind_of(
    name: str, counts: Counter[str], numbers: Sequence[float] | None, typed: str | None = None
) -> tuple[Kind, str, str | None]:
    """The kind of a column's values, the reason, and the separator of lists.

    Args:
        name: of the column; `user_id` and `zip` are hints.
        counts: of its values.
        numbers: the values as numbers; None if one is none.
        typed: its type in a RecBole file.
    """
    total = counts.total()
    if len(counts) <= 1:
        return Kind.CONSTANT, "one value everywhere" if counts else "always missing", None
    unique = len(counts) == total and total > 100
    if typed == "token":
        return Kind.CATEGORY, "the file says so", None
    if numbers is not None:
        return (*_kind_of_numbers(name, counts, numbers, unique=unique and typed is None), None)
    if all(seconds_of(text, None) is not None for text in counts):
        return Kind.TIME, "dates", None
    words = statistics.mean(len(text.split()) for text in counts)
    is_text = words >= 4 and len(counts) > total / 2
    if separator := _separator(counts, LIST_SEPARATORS[:2] if is_text else LIST_SEPARATORS):
        return Kind.LIST, f"the values between {separator!r} recur", separator
    if is_text:
        return Kind.TEXT, f"{words:.0f} words each, and most differ", " "
    if unique:
        return Kind.UNIQUE, "another value in each row", None
    return Kind.CATEGORY, "text that recurs", None


def _kind_of_numbers(name: str, counts: Counter[str], numbers: Sequence[float], *, unique: bool) -> tuple[Kind, str]:
    whole = all(number.is_integer() for number in numbers)
    in_years = any(low <= min(numbers) and max(numbers) <= high for low, high in _EPOCHS)
    if in_years and (_TIME.search(name) or whole) and len(counts) > FEW:
        return Kind.TIME, "numbers that are dates of 1990 to 2040, since 1970"
    if _TIME.search(name) and not _ID.search(name):
        return Kind.TIME, "its name, and numbers"
    if _ID.search(name):
        return (Kind.UNIQUE, "another value in each row") if unique else (Kind.CATEGORY, "its name is that of an id")
    if whole and unique and sorted(numbers) == list(range(int(min(numbers)), int(min(numbers)) + len(numbers))):
        return Kind.UNIQUE, "it counts the rows"
    if whole and len(counts) <= FEW:
        return Kind.CATEGORY, f"{len(counts)} different whole numbers"
    return Kind.NUMBER, "whole numbers" if whole else "numbers"


def _numbers(texts: Sequence[str]) -> list[float] | None:
    """The values as numbers; None if one is none."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return None
    return numbers if all(map(math.isfinite, numbers)) else None


def _separator(counts: Counter[str], separators: Sequence[str]) -> str | None:
    """The one that parts most values into several, if the parts recur."""
    texts = list(counts.elements())[:5_000]
    for separator in separators:
        with_it = [text for text in texts if separator in text.strip(separator)]
        if len(with_it) < len(texts) / 5:
            continue
        parts = [part for text in texts for part in text.split(separator)]
        if len(set(parts)) <= len(set(texts)) / 2 and len(set(parts)) < len(parts) / 5:
            return separator
    return None


def _is_heavy(numbers: Sequence[float]) -> bool:
    """Whether the largest number is far above the others."""
    if len(numbers) < 30 or max(numbers) <= _HEAVY:
        return False
    mean, deviation = statistics.fmean(numbers), statistics.pstdev(numbers)
    return max(numbers) > mean + _HEAVY * deviation or max(numbers) > 20 * max(1.0, statistics.median(numbers))


def _estimate(counts: Counter[str], sample: Sample) -> int:
    """Different values of the whole data, at least, by those seen once and twice.

    Chao (1984), Nonparametric estimation of the number of classes in a population.
    """
    if sample.whole:
        return len(counts)
    once, twice = (sum(count == times for count in counts.values()) for times in (1, 2))
    return min(len(counts) + round(once * once / (2 * max(1, twice))), max(sample.rows, len(counts)))
