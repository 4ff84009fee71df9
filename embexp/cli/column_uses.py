"""What `embexp new` makes of each column of a file, and the task that it writes: by rules that its help states."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from embexp.config.patterns import is_pattern
from embexp.data.files.dialect import NULLS
from embexp.data.files.samples import ColumnFacts, Kind, Sample, Value
from embexp.data.files.text_table import seconds_of
from embexp.errors import CommandLineError
from embexp.specs import tasks
from embexp.specs.data import DATE_PARTS, POSITIVE
from embexp.specs.tasks import Labels

if TYPE_CHECKING:
    from embexp.data.leaks import Leak

_LABELS = re.compile(
    r"^(?:is_)?(?:label|target|click(?:ed)?|rating|stars?|score|y|class|bought|converted?|conversion|liked?"
    r"|cancel(?:l?ed)?|churn(?:ed)?|outcome|income|survived|default)$",
    re.I,
)
_AMOUNTS = re.compile(r"rating|stars?|score|count|number|amount|price|(?:^|_)(?:num|nb|n|qty|quantity)(?:_|$)", re.I)
_USERS = re.compile(
    r"^(?:user|customer|client|member|visitor|session|account|reader|uid)(?:[_-]?id|[_-]?key)?s?$", re.I
)
_ITEMS = re.compile(
    r"^(?:item|product|movie|film|article|song|track|artist|book|video|ad|place|location|venue|business|iid|sku)"
    r"(?:[_-]?id|[_-]?key)?s?$",
    re.I,
)
_MOST_CLASSES = 100
_MOST_NUMBERED = 20
"""Whole numbers from 0 on are classes if there are at most so many."""
_RECURS, _CODES_RECUR = 20, 2
"""Whole numbers that occur so often on average may be codes, and those that also look like codes."""
_FEWEST_IN_BUCKETS, _FEWEST_ROWS = 100, 1_000
"""Different values, and rows, from which a number also gets buckets."""
_MOST_IN_BUCKETS = 200
"""Columns of a file up to which its numbers do: each is a table."""
_MOST_TABLES = 1_000
"""Each table is some operations of a step, which starts late and runs slowly with more."""


class Role(StrEnum):
    """What a column becomes."""

    LABEL = "label"
    TIME = "time"
    USER = "user"
    ITEM = "item"
    TABLE = "table"
    NUMBER = "number"
    BUCKETS = "buckets"
    DATES = "dates"
    OUT = "left out"


@dataclass(frozen=True)
class Use:
    """What becomes of a column.

    Attributes:
        why: the reason, where it is another than that of the column's kind.
        group: whether its values are the users of the split.
    """

    facts: ColumnFacts
    roles: tuple[Role, ...]
    why: str = ""
    group: bool = False


@dataclass(frozen=True)
class Wishes:
    """What the command line says of columns, by name."""

    category: Collection[str] = ()
    number: Collection[str] = ()
    ignore: Collection[str] = ()
    time: str | None = None
    group: str | None = None


@dataclass(frozen=True)
class Prediction:
    """The task, and why it is that.

    Attributes:
        positive: the value of the label that is 1, where it must be said.
    """

    task: str
    why: str
    positive: str | None = None

    @property
    def labels(self) -> Labels | None:
        """What the task predicts; None: examples have no label."""
        return tasks.named(self.task).labels


def label_candidates(columns: Sequence[ColumnFacts]) -> list[ColumnFacts]:
    """Columns that may be the label, the likeliest first: those with such a name, then those of zeros and ones."""
    named = [column for column in columns if _LABELS.match(column.name) and not _fault(column)]
    binary = [column for column in columns if column.numbers == (0.0, 1.0) and column not in named]
    return [*named, *binary]


def _fault(label: ColumnFacts) -> str:
    """Why a column can't be the label, or ""."""
    if label.kind is Kind.CONSTANT:
        held = label.why if label.present else "no value"
        return f"it holds {held}; there is nothing to learn from it: name another column, or give more rows"
    if label.kind is Kind.UNREAD:
        return label.why
    if label.kind in (Kind.LIST, Kind.TEXT):
        return f"it holds {label.kind.value}, and a label is a number or the name of a class"
    if not label.numeric and label.estimated > _MOST_CLASSES:
        texts = f"about {label.estimated:,} different texts ({label.why})"
        return f"it holds {texts}, too many for classes; a number can be predicted"
    return ""


def prediction(label: ColumnFacts, task: str | None = None) -> Prediction:
    """The task that a label is for.

    Args:
        task: that of the command line; None: the label decides.

    Raises:
        CommandLineError: the label is for no task, or not for this one.
    """
    if fault := _fault(label):
        raise CommandLineError(f"embexp new: --label {label.name}: {fault}")
    found = _prediction(label)
    if task is None or task == found.task:
        return found
    wanted = tasks.named(task).labels
    if wanted is Labels.NUMBER and label.numeric:
        return Prediction(task, "--task")
    if wanted is Labels.CLASS and label.counts:
        return Prediction(task, f"--task; {len(label.counts)} classes")
    raise CommandLineError(
        f"embexp new: --task {task}: the label {label.name} holds {label.why}, which is for task {found.task}"
    )


def prediction_by_form(sample: Sample, label: ColumnFacts, task: str | None) -> Prediction | None:
    """The task where the form of a file, and not only its label, decides it; None: the label does."""
    if sample.begins_with_labels and (task is None or tasks.named(task).labels is Labels.CLASS):
        if label.kind is Kind.CONSTANT:
            return None
        return Prediction("classification", f"each line begins with one of {label.distinct} labels, and texts follow")
    if sample.label is not None and sample.kind == "csv" and task is None and len(label.numbers) > 2:
        low, high = label.numbers[0], label.numbers[-1]
        why = f"{len(label.numbers)} numbers from {low:g} to {high:g}, as ratings have, behind a user and an item"
        return Prediction("regression", f"{why}; --task recommendation if each row is an interaction")
    return None


def leaking(uses: Sequence[Use], sample: Sample, label: ColumnFacts) -> list[Leak]:
    """The columns that may restate the label, of those that are used."""
    import numpy as np

    from embexp.data import leaks

    kept = [place for place, value in enumerate(sample.columns[label.name]) if _text(value, label) is not None]
    texts = [str(sample.columns[label.name][place]) for place in kept]
    names = sorted(set(texts))
    numbers = list(map(float, texts)) if label.numeric else list(map(float, map(names.index, texts)))
    columns = []
    for use in uses:
        facts, values = use.facts, [sample.columns[use.facts.name][place] for place in kept]
        if {Role.LABEL, Role.OUT} & set(use.roles):
            continue
        filled = [_text(value, facts) for value in values]
        if facts.dates is not None:
            seconds = [None if text is None else seconds_of(text, facts.dates.format) for text in filled]
            days = np.array([math.nan if each is None else each / 86_400 for each in seconds])
            columns.append(leaks.Column(facts.name, None, days, dates=True, alone=Role.TIME not in use.roles))
            continue
        if Role.TIME in use.roles:
            continue
        codes: dict[str | None, int] = {None: -1}
        coded = np.array([codes.setdefault(text, len(codes) - 1) for text in filled], np.int64)
        counted = np.array([math.nan if text is None else float(text) for text in filled]) if facts.numeric else None
        columns.append(leaks.Column(facts.name, None if use.roles == (Role.NUMBER,) else coded, counted))
    name = "{:g}".format if label.numeric else (lambda number: names[int(number)])
    return leaks.leaks(columns, np.array(numbers), name)


def _text(value: Value, facts: ColumnFacts) -> str | None:
    """A value as text; None where it is missing, as marks for that are in a column of numbers or dates."""
    if isinstance(value, list):
        return " ".join(value) or None
    marked = facts.numeric or facts.dates is not None
    return None if value is None or (marked and value.strip() in NULLS) else value


def made_of_dates(use: Use, role: Role) -> list[ColumnFacts]:
    """The columns that `data.dates` makes of one, as tables or as numbers.

    Of the column that divides by time, neither months nor ages: those of the latest examples are new.
    """
    column, dates = use.facts, use.facts.dates
    if Role.DATES not in use.roles or dates is None:
        return []
    divides = Role.TIME in use.roles
    if role is Role.NUMBER and not divides:
        return [ColumnFacts(f"{column.name}_age", Kind.NUMBER, "", column.present, column.missing, 0, 0)]
    parts = [part for part in dates.parts if not (divides and part == "month")] if role is Role.TABLE else []
    size = {"weekday": 7, "month": 12, "hour": 24}
    return [
        ColumnFacts(f"{column.name}_{part}", Kind.CATEGORY, "", column.present, column.missing, size[part], size[part])
        for part in parts
    ]


def only_text(uses: Sequence[Use]) -> ColumnFacts | None:
    """The column of texts, if there is nothing else to predict a label from; else None."""
    taken = [use for use in uses if not {Role.LABEL, Role.OUT} & set(use.roles)]
    return taken[0].facts if len(taken) == 1 and taken[0].facts.kind is Kind.TEXT else None


def _prediction(label: ColumnFacts) -> Prediction:
    numeric, values = label.numeric, [name for name, _ in label.counts]
    if label.numbers == (0.0, 1.0):
        return Prediction("binary", "its values are 0 and 1")
    if len(values) == 2:
        if numeric:
            positive, why = max(values, key=float), ", the larger of two values; data.positive says otherwise"
        else:
            positive, why = values[-1], ", the rarer of two values; data.positive says otherwise"
            if said := [name for name in values if name.casefold() in POSITIVE]:
                positive, why = said[0], ""
        return Prediction("binary", f"{positive!r} is label 1{why}", positive)
    if not numeric:
        return Prediction("classification", f"{len(values)} different texts")
    from_0 = label.numbers == tuple(map(float, range(len(values)))) and 0 < len(values) <= _MOST_NUMBERED
    if from_0 and not _AMOUNTS.search(label.name):
        why = f"the whole numbers from 0 to {len(values) - 1}; --task regression if they are amounts"
        return Prediction("classification", why)
    return Prediction("regression", "numbers")


def interaction(columns: Sequence[ColumnFacts], wishes: Wishes) -> tuple[ColumnFacts, ColumnFacts] | None:
    """The columns of the user and of the item, for task recommendation; None if names do not show them."""

    def named(pattern: re.Pattern[str], others: Sequence[ColumnFacts]) -> ColumnFacts | None:
        return next((column for column in columns if pattern.match(column.name) and column not in others), None)

    chosen = [column for column in columns if column.name == wishes.group]
    user = chosen[0] if chosen else named(_USERS, ())
    if user is None:
        return None
    asked = [column for column in columns if column.name in wishes.category and column is not user]
    item = asked[0] if len(asked) == 1 else named(_ITEMS, [user])
    return None if item is None else (user, item)


def uses(
    columns: Sequence[ColumnFacts], label: str | None, *, rows: int, splits_text: bool, wishes: Wishes = Wishes()
) -> list[Use]:
    """What becomes of each column, but for task recommendation.

    Args:
        rows: of the whole data, about.
        splits_text: whether the source can split a text into the values of a list.

    Raises:
        CommandLineError: nothing is left to embed, or a column can't be what the command line asks for.
    """
    _check(columns, wishes)
    times = [name for name in _times(columns) if name != label]
    time = wishes.time or next((name for name in times if name not in (*wishes.category, *wishes.number)), None)
    separators = Counter(column.separator for column in columns if column.separator is not None)
    texts = any(column.kind is Kind.TEXT for column in columns)  # a file has one separator of lists: texts come first
    separator = " " if texts else next((common for common, _ in separators.most_common(1)), None)
    rules = _Rules(label, time, rows, {column.name for column in columns}, splits_text, separator, wishes)
    found = [replace(rules.use(column), group=column.name == wishes.group) for column in columns]
    tables = sum(Role.TABLE in use.roles for use in found)
    if tables > _MOST_TABLES:
        found = [_without_table(use) if use.facts.name not in wishes.category else use for use in found]
    if not tables and not any(map(_embeds, found)):
        found = _with_buckets(found)
    if not any(map(_embeds, found)):
        why = "no column has values that recur, so there is nothing to embed; name codes with --category"
        if tables:
            why = (
                f"{tables:,} columns would each be a table, and more than {_MOST_TABLES:,} make a step too slow; name"
                " those that matter with --category, and the others are left out"
            )
        raise CommandLineError(f"embexp new: {why}")
    return found


def _embeds(use: Use) -> bool:
    return bool({Role.TABLE, Role.BUCKETS} & set(use.roles) or made_of_dates(use, Role.TABLE))


def _with_buckets(uses: Sequence[Use]) -> list[Use]:
    """Numbers that nothing else stands beside get a table each, where they are many those of the most values."""
    numbers = sorted((use for use in uses if use.roles == (Role.NUMBER,)), key=lambda use: -use.facts.distinct)
    chosen = {use.facts.name for use in numbers[:_MOST_IN_BUCKETS]}
    return [replace(use, roles=(*use.roles, Role.BUCKETS)) if use.facts.name in chosen else use for use in uses]


def _without_table(use: Use) -> Use:
    if Role.TABLE not in use.roles:
        return use
    left = tuple(role for role in use.roles if role is not Role.TABLE)
    why = f"more than {_MOST_TABLES:,} columns would be tables: name those that matter with --category"
    return replace(use, roles=left or (Role.OUT,), why=use.why if left else why)


def uses_of_interactions(
    columns: Sequence[ColumnFacts], user: ColumnFacts, item: ColumnFacts, wishes: Wishes
) -> list[Use]:
    """What becomes of each column for task recommendation."""
    times = _times(columns)
    time = wishes.time or next(iter(times), None)
    roles = {user.name: Role.USER, item.name: Role.ITEM, time: Role.TIME}
    why = "vectors are of users and items only; features of them: model=two_tower"
    return [
        Use(column, (roles.get(column.name, Role.OUT),), "" if column.name in roles else why, column is user)
        for column in columns
    ]


def _times(columns: Sequence[ColumnFacts]) -> list[str]:
    """The columns of a time that can split: every row has one."""
    return [column.name for column in columns if column.ordered and not column.missing]


def _check(columns: Sequence[ColumnFacts], wishes: Wishes) -> None:
    by_name: Mapping[str, ColumnFacts] = {column.name: column for column in columns}
    for name in wishes.number:
        if name in by_name and not by_name[name].numeric:
            raise CommandLineError(f"embexp new: --number {name}: it holds {by_name[name].why}, not numbers")
    for one, other in (("category", "number"), ("category", "ignore"), ("number", "ignore")):
        if both := [name for name in getattr(wishes, one) if name in getattr(wishes, other)]:
            raise CommandLineError(f"embexp new: --{one} and --{other} both name {both[0]}")


@dataclass(frozen=True)
class _Rules:
    label: str | None
    time: str | None
    rows: int
    columns: Collection[str]
    splits_text: bool
    separator: str | None
    wishes: Wishes

    def use(self, column: ColumnFacts) -> Use:
        """What becomes of a column."""
        name, wishes = column.name, self.wishes
        if name == self.label:
            missing = f"{column.missing:.1%} are missing: those rows are left out" if column.missing else ""
            return Use(column, (Role.LABEL,), missing)
        if name in wishes.ignore:
            return Use(column, (Role.OUT,), "--ignore")
        if name == self.time:
            dated = (Role.DATES,) if column.dates and not self._clash(column) else ()
            return Use(column, (Role.TIME, *dated), "--time" if name == wishes.time else "")
        if name in wishes.category:
            return Use(column, (Role.TABLE,), "--category")
        if name in wishes.number:
            return self._number(column, "--number")
        if column.dates is not None and is_pattern(name):
            return Use(column, (Role.OUT,), "patterns use its name's characters")
        if column.dates is not None and (clash := self._clash(column)):
            return Use(column, (Role.OUT,), f"its dates would make {clash}, which is a column already")
        if column.dates is not None:
            return Use(column, (Role.DATES,))
        if column.kind is Kind.TIME:
            return Use(column, (Role.OUT,), "another time splits" if self.time else "a time that some rows lack")
        if column.kind in (Kind.CONSTANT, Kind.UNIQUE, Kind.UNREAD):
            return Use(column, (Role.OUT,))
        if column.kind is Kind.NUMBER:
            return self._number(column)
        if column.separator is not None and not self.splits_text:
            return Use(column, (Role.OUT,), "only CSV files have lists in text: write a column of lists")
        if column.separator != self.separator and column.separator is not None:
            return Use(column, (Role.OUT,), f"its separator is not {self.separator!r}, as that of others is")
        return Use(column, (Role.TABLE,))

    def _clash(self, column: ColumnFacts) -> str:
        """The first of the columns that `data.dates` makes of one, if there is such a column; or ""."""
        made = (f"{column.name}_{part}" for part in DATE_PARTS)
        return next((name for name in made if name in self.columns), "")

    def _number(self, column: ColumnFacts, why: str = "") -> Use:
        if is_pattern(column.name):
            return Use(column, (Role.OUT,), "patterns use its name's characters")
        roles = [Role.NUMBER]
        present = self.rows * (1 - column.missing)
        often = column.whole and column.estimated * _RECURS <= present
        if not why and (often or (column.codes and column.estimated * _CODES_RECUR <= present)):
            roles.append(Role.TABLE)
            why = "whole numbers that recur" + (": amounts or codes" if often else ", those next to them do not: codes")
        if column.distinct >= _FEWEST_IN_BUCKETS and present >= _FEWEST_ROWS and len(self.columns) <= _MOST_IN_BUCKETS:
            roles.append(Role.BUCKETS)
        return Use(column, tuple(roles), why)
