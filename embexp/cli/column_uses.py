"""What a first experiment makes of each column of a sample, by rules that `embexp new --help` states."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from embexp.config.composing.patterns import is_pattern
from embexp.data.files.samples import ColumnFacts, Kind
from embexp.errors import CommandLineError

SMALLEST_DIM, LARGEST_DIM, LARGEST_SHARED_DIM = 4, 64, 32
_LABELS = re.compile(
    r"^(?:is_)?(?:label|target|click(?:ed)?|rating|stars?|score|y|class|bought|converted?|conversion|liked?)$", re.I
)
_MOST_CLASSES = 100


class Role(StrEnum):
    """What a column becomes."""

    LABEL = "label"
    TIME = "time"
    TABLE = "table"
    NUMBER = "number"
    OUT = "left out"


@dataclass(frozen=True)
class Use:
    """What becomes of a column.

    Attributes:
        facts: of the column.
        role: what it becomes.
        why: the reason, where it is another than that of the column's kind.
    """

    facts: ColumnFacts
    role: Role
    why: str = ""


def label_candidates(columns: Sequence[ColumnFacts]) -> list[ColumnFacts]:
    """Columns that may be the label, the likeliest first: those with such a name, then those of zeros and ones."""
    named = [each for each in columns if _LABELS.match(each.name) and task_or_fault(each, columns)[0]]
    binary = [each for each in columns if each.numbers == (0.0, 1.0) and each not in named]
    return [*named, *binary]


def task_or_fault(label: ColumnFacts, columns: Sequence[ColumnFacts]) -> tuple[str, str]:
    """The task that a label is for, or "" and why it can't be one."""
    if label.kind is Kind.CONSTANT:
        return "", f"it holds {label.why}"
    numeric = label.kind in (Kind.NUMBER, Kind.CATEGORY, Kind.TIME) and _is_number(label.examples)
    if not numeric:
        return "", "a label is a number: 0 and 1 for clicks, a rating, or 0, 1, 2, … for classes"
    if label.numbers == (0.0, 1.0):
        return "click", ""
    classes = label.numbers == tuple(map(float, range(len(label.numbers)))) and 2 < len(label.numbers) <= _MOST_CLASSES
    if classes and any(each.kind is Kind.TEXT for each in columns):
        return "classification", ""
    return "rating", ""


def _is_number(examples: Sequence[str]) -> bool:
    try:
        [float(each) for each in examples]
    except ValueError:
        return False
    return True


def uses(columns: Sequence[ColumnFacts], label: str, *, splits_text: bool) -> list[Use]:
    """What becomes of each column.

    Args:
        columns: their facts.
        label: name of the label's column.
        splits_text: whether the source can split a text into the values of a list.

    Raises:
        CommandLineError: nothing is left to embed.
    """
    times = [each for each in columns if each.kind is Kind.TIME and each.name != label]
    separators = Counter(each.separator for each in columns if each.separator is not None)
    texts = any(each.kind is Kind.TEXT for each in columns)  # a file has one separator of lists: texts come first
    separator = " " if texts else next((each for each, _ in separators.most_common(1)), None)
    found = []
    for each in columns:
        if each.name == label:
            found.append(Use(each, Role.LABEL, f"{each.missing:.1%} are missing: remove them" if each.missing else ""))
        elif each.kind is Kind.TIME:
            found.append(Use(each, *((Role.TIME, "") if each is times[0] else (Role.OUT, "another time splits"))))
        elif each.kind in (Kind.CONSTANT, Kind.UNIQUE):
            found.append(Use(each, Role.OUT))
        elif each.kind is Kind.NUMBER:
            found.append(
                Use(
                    each,
                    *((Role.OUT, "patterns use its name's characters") if is_pattern(each.name) else (Role.NUMBER, "")),
                )
            )
        elif each.separator is not None and not splits_text:
            found.append(Use(each, Role.OUT, "only CSV files have lists in text: write a column of lists"))
        elif each.separator != separator and each.separator is not None:
            found.append(Use(each, Role.OUT, f"its separator is not {separator!r}, as that of others is"))
        else:
            found.append(Use(each, Role.TABLE))
    if not any(each.role is Role.TABLE for each in found):
        raise CommandLineError("embexp new: no column has values that recur, so there is nothing to embed")
    return found


def dim_of(values: int) -> int:
    """The dim of a table: the power of two nearest to 4 · (number of values)^(1/4), from 4 to 64.

    The fourth root is the rule of thumb of TensorFlow's guide to feature columns; the factor 4 is what click logs and
    ratings of public data sets are commonly given.
    """
    power = round(math.log2(4 * max(1, values) ** 0.25))
    return min(LARGEST_DIM, max(SMALLEST_DIM, 1 << power))
