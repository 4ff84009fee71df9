"""A first experiment: what `embexp new` makes of each column of a file, by rules that its help states, and its text."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

from embexp.config.patterns import is_pattern
from embexp.data.files.dialect import NULLS
from embexp.data.files.samples import ColumnFacts, DateFacts, Kind, Sample, Value
from embexp.data.files.text_table import seconds_of
from embexp.errors import CommandLineError
from embexp.specs import tasks
from embexp.specs.data import DATE_PARTS, POSITIVE
from embexp.specs.fields import fields, imported
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
SMALLEST_DIM, LARGEST_DIM, _LARGEST_SHARED_DIM = 4, 64, 32
_BUCKETS, _QUARTILES = 32, 4
"""Buckets of a number, next to the number itself; of few rows quarters, as more are learnt by heart."""
_SLOW = 0.0003
"""Learning rate of the tables of quarters."""
_STEPS = 2_000
"""Steps that a training is to have at least."""
_FEWEST_STEPS = 50
"""Between evaluations: the epochs of a small file are too short to judge by."""
_FEW_ROWS, _LEAST_GAIN = 1_000, 0.01
"""Rows below which an evaluation must gain so much log loss: less is chance."""
_LONGEST_NAME = 100
"""Characters of a table's name: it is part of the names of files."""
_MANY_VALUES = 10_000
_MOST_IN_PAIRS = 100
"""Vectors whose pairs a model multiplies, some 5,000: its first layer has a weight for each."""
SHARED_ROW = (
    "  # Values that occur only once in the training split share the OOV row.",
    "  vocabulary: {min_frequency: 2}",
)
INITIALIZER = "initializer: {kind: normal, stddev: 0.01}"
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


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
    """The columns that may leak the label, of those that are used."""
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


def dim_of(values: int) -> int:
    """The dim of a table: the power of two nearest to 4 · (number of values)^(1/4), from 4 to 64.

    The fourth root is the rule of thumb of TensorFlow's guide to feature columns; the factor 4 is what click logs and
    ratings of public data sets are commonly given.
    """
    power = round(math.log2(4 * max(1, values) ** 0.25))
    return min(LARGEST_DIM, max(SMALLEST_DIM, 1 << power))


@dataclass(frozen=True)
class Experiment:
    """What an experiment is written from."""

    name: str
    prediction: Prediction
    sample: Sample
    uses: Sequence[Use]
    command: str

    @property
    def task(self) -> str:
        """What is predicted."""
        return self.prediction.task

    @property
    def buckets(self) -> int:
        """Of each number that gets some."""
        return _QUARTILES if self.few_numbers else _BUCKETS

    @property
    def few_numbers(self) -> bool:
        """Whether there are few rows, and nothing but numbers to embed: only then do so few get buckets."""
        return self.sample.rows < _FEW_ROWS and bool(self.columns(Role.BUCKETS))

    @property
    def labels(self) -> Labels | None:
        """What its task predicts; None: the examples have no label."""
        return self.prediction.labels

    def columns(self, role: Role) -> list[ColumnFacts]:
        """The columns with a role."""
        return [
            *(use.facts for use in self.uses if role in use.roles),
            *(made for use in self.uses for made in made_of_dates(use, role)),
        ]


def text(experiment: Experiment) -> str:
    """The YAML file."""
    sample = experiment.sample
    looked = f"all {sample.rows:,} rows" if sample.whole else f"{sample.count:,} of about {sample.rows:,} rows"
    left_out = [use for use in experiment.uses if Role.OUT in use.roles]
    lines = [
        "# @package _global_",
        f"# {_TITLES[experiment.task]} on {quoted(experiment.sample.path.name)}. A first experiment, for which",
        f"# `embexp new` looked at {looked}.",
        f"#   {experiment.command}",
        *_form(experiment),
        *(["", "# Left out:"] if left_out else []),
        *(f"#   {quoted(use.facts.name)}: {_comment(use.why or use.facts.why)}" for use in left_out),
    ]
    return "\n".join(lines) + "\n"


def _form(experiment: Experiment) -> list[str]:
    """All but the head, by the first field that has lines of its own for it."""
    own = (imported(field.first_experiment)(experiment) for field in fields() if field.first_experiment)
    return next((lines for lines in own if lines is not None), None) or _of_columns(experiment)


def _of_columns(experiment: Experiment) -> list[str]:
    """All but the head of an experiment that predicts a label from columns."""
    tables, bucketed = experiment.columns(Role.TABLE), experiment.columns(Role.BUCKETS)
    names = _names([*(column.name for column in tables), *map(_of_buckets, bucketed)])
    model = _model(experiment)
    # In one epoch over a click log, Adagrad at its default rate found more than Adam at any of three (`bench.clicks`).
    optimizer = "adagrad" if experiment.labels is Labels.BINARY and not experiment.few_numbers else "adam"
    slow = [f"optimizer: {{learning_rate: {_SLOW}}}   # low, so that the numbers themselves are learned first"]
    return [
        "defaults:",
        f"  - override /data: {experiment.sample.kind}",
        "  - override /graph: null              # the tables and features are below",
        f"  - override /model: {model}",
        f"  - override /optimizer: {optimizer:<14}# of the tables; tune it together with dense_optimizer.learning_rate",
        "  - override /dense_optimizer: adam",
        "",
        f"name: {experiment.name}",
        f"task: {experiment.task}",
        *(slow if experiment.few_numbers else []),
        *data(experiment),
        *_tables(experiment, names, shared=model == "dlrm_concat"),
        *_features(experiment, names),
        *_training(experiment.sample.rows, experiment.labels),
    ]


@dataclass(frozen=True)
class Recognised:
    """Data of which a field knows what they are, as a whole.

    Attributes:
        about: what they hold, such as how much of it.
        task: the line about the task.
        text: from the name of the experiment and the command that runs it to its YAML file.
    """

    about: str
    task: str
    text: Callable[[str, str], str]


_TITLES = {
    "binary": "Binary classification",
    "regression": "Prediction of a number",
    "classification": "Classification",
    "recommendation": "Recommendation",
}


def _model(experiment: Experiment) -> str:
    if experiment.few_numbers:
        return "mlp"
    embedded = [*experiment.columns(Role.TABLE), *experiment.columns(Role.BUCKETS)]
    vectors = len(embedded) + bool(experiment.columns(Role.NUMBER))
    return "dlrm_concat" if experiment.labels is Labels.BINARY and 2 < vectors <= _MOST_IN_PAIRS else "mlp"


def data(experiment: Experiment, *, dates: bool = True) -> list[str]:
    """The lines of `data`.

    Args:
        dates: whether columns are made of dates.
    """
    sample = experiment.sample
    times, numbers = experiment.columns(Role.TIME), experiment.columns(Role.NUMBER)
    lists = [column for column in experiment.columns(Role.TABLE) if column.separator is not None]
    lines = ["data:", f"  path: {path(sample)}"]
    if sample.kind == "csv":
        lines += written(sample)
        if not sample.headed:
            lines.append("  # The file has no header line.")
            lines.append(f"  names: [{', '.join(map(quoted, sample.columns))}]")
    if lists:
        lines.append(f"  list_separator: {json.dumps(lists[0].separator)}")
        lines.append(f"  list_columns: [{', '.join(quoted(column.name) for column in lists)}]")
    lines += _label(experiment)
    if times:
        lines.append(f"  timestamp: {quoted(times[0].name)}")
        if times[0].dates is not None and times[0].dates.format is not None and sample.kind == "csv":
            lines.append(f"  timestamp_format: {json.dumps(times[0].dates.format)}")
    made = [use for use in experiment.uses if made_of_dates(use, Role.TABLE) or made_of_dates(use, Role.NUMBER)]
    if made and dates:
        lines += ["  # They make NAME_weekday, _month and _hour, and NAME_age, in days to the last date.", "  dates:"]
        lines += [f"    {quoted(use.facts.name)}: {_of_dates(use.facts.dates)}" for use in made if use.facts.dates]
    groups = [use.facts.name for use in experiment.uses if use.group]
    within = experiment.labels is None and not times
    lines += split(groups, by_time=bool(times), within=within, given=sample.parts)
    if any(_rare(column) for column in experiment.columns(Role.TABLE)):
        lines += SHARED_ROW
    if numbers:
        lines += [
            "  # log1p where a few values are much larger than the others; all are standardized. Both are fitted on",
            "  # the training split. A missing value counts as 0 or the mean, and has an indicator if there are many.",
            "  dense_features:",
        ]
        settings = {column.name: _of_number(column) for column in numbers}
        lines += [f"    {key}: {value}" for key, value in _grouped(settings).items()]
    return lines


def _rare(column: ColumnFacts) -> bool:
    """Whether many values are too rare for rows of their own: of a small table, a row would be learnt by heart."""
    return column.estimated > _MANY_VALUES or 2 * column.distinct > column.present


def path(sample: Sample) -> str:
    """The file or folder, or the files of each split."""
    if not sample.parts:
        return quoted(str(sample.path.absolute()))
    return f"{{{', '.join(f'{split}: {quoted(str(file.absolute()))}' for split, file in sample.parts.items())}}}"


def written(sample: Sample, default: str = "") -> list[str]:
    """How a text file is written, where that is not the default."""
    lines = [] if sample.delimiter == default else [f"  delimiter: {json.dumps(sample.delimiter)}"]
    lines += [] if sample.encoding == "utf-8" else [f"  encoding: {sample.encoding}"]
    decimal, thousands = sample.marks
    lines += [] if decimal == "." else [f"  decimal: {json.dumps(decimal)}"]
    return [*lines, *([f"  thousands: {json.dumps(thousands)}"] if thousands else [])]


def _label(experiment: Experiment) -> list[str]:
    labels, positive = experiment.columns(Role.LABEL), experiment.prediction.positive
    if not labels:
        return ["  # Each row is an interaction.", "  label: null"]
    lines = [f"  label: {quoted(labels[0].name)}"]
    if labels[0].missing:
        lines += ["  # Rows without a label are left out.", "  missing_label: skip"]
    return lines if positive is None else [*lines, "  # The value that is label 1.", f"  positive: {quoted(positive)}"]


def split(groups: Sequence[str], *, by_time: bool, within: bool = False, given: Collection[str] = ()) -> list[str]:
    """The line of `data.split`, with a comment."""
    if within:
        shares = "".join(f", {split}: 0.1" for split in ("validation", "test") if split not in given)
        return [
            "  # The share of each user's items. Splits with files of their own are not drawn.",
            f"  split: {{kind: random, within: user, group: {quoted(groups[0])}{shares}}}",
        ]
    if by_time and groups:
        return [
            "  # Each user's last example is for testing, the one before for validation.",
            f"  split: {{kind: leave_one_out, group: {quoted(groups[0])}}}",
        ]
    if by_time:
        return [
            "  # The latest examples validate and test. For the last one of each user: kind: leave_one_out, and",
            "  # group: COLUMN, with that of the users.",
            "  split: {kind: time, validation: 0.1, test: 0.1}",
        ]
    return ["  split: {kind: random, validation: 0.1, test: 0.1}"]


def _of_dates(dates: DateFacts) -> str:
    form = "" if dates.format is None else f"format: {json.dumps(dates.format)}, "
    return f"{{{form}reference: {dates.last}}}"


def _of_number(column: ColumnFacts) -> str:
    transform = "[log1p, standardize]" if column.heavy else "standardize"
    missing = "zero" if column.heavy and not column.negative else "mean"
    indicator = ", indicator: true" if column.missing else ""
    return f"{{transform: {transform}, missing: {missing}{indicator}}}"


def _of_buckets(column: ColumnFacts) -> str:
    """What stands in `_names` for the buckets of a number: no column has this name."""
    return f"{column.name}\0buckets"


def _tables(experiment: Experiment, names: Mapping[str, str], *, shared: bool) -> list[str]:
    columns, bucketed = experiment.columns(Role.TABLE), experiment.columns(Role.BUCKETS)
    sizes = {names[column.name]: column.estimated for column in columns}
    sizes |= {names[_of_buckets(column)]: experiment.buckets for column in bucketed}
    dims = {name: dim_of(size) for name, size in sizes.items()}
    lines = ["# Embedding tables. dim: the power of two nearest to 4 · (number of values)^(1/4), from 4 to 64"]
    if shared:
        dims = dict.fromkeys(dims, min(_LARGEST_SHARED_DIM, max(dims.values())))
        lines[0] += "; DLRM"
        lines.append(f"# needs one dim, that of the largest table, at most {_LARGEST_SHARED_DIM}.")
    else:
        lines[0] += "."
    lines.append("tables:")
    lines.insert(-1, "# Small initial values: rare rows keep theirs, which are noise to the model.")
    grouped = _grouped({name: f"{{dim: {dim}, {INITIALIZER}}}" for name, dim in dims.items()})
    about = {names[column.name]: f"   # {_values(column)}" for column in columns}
    return [*lines, *(f"  {key}: {value}{about.get(key, '')}" for key, value in grouped.items())]


def _values(column: ColumnFacts) -> str:
    more = "" if column.estimated == column.distinct else f", about {column.estimated:,} in all"
    return f"{column.distinct:,} values in the sample{more}"


def _features(experiment: Experiment, names: Mapping[str, str]) -> list[str]:
    columns, bucketed = experiment.columns(Role.TABLE), experiment.columns(Role.BUCKETS)
    lines = ["# What is looked up: each feature in the table of its name."]
    if any(column.kind in (Kind.LIST, Kind.TEXT) for column in columns):
        lines.append("# The vectors of a list, or of the words of a text, are averaged.")
    entries = {
        names[column.name]: "{}" if names[column.name] == column.name else f"{{column: {quoted(column.name)}}}"
        for column in columns
    }
    if bucketed:
        lines.append("# Numbers are also in buckets, which are equally frequent in the training split.")
    for column in bucketed:
        settings = f"{{column: {quoted(column.name)}, buckets: {{quantiles: {experiment.buckets}}}}}"
        entries[names[_of_buckets(column)]] = settings
    return [*lines, "features:", *(f"  {key}: {value}" for key, value in _grouped(entries).items())]


def _training(rows: int, labels: Labels | None) -> list[str]:
    batch = 1024 if rows >= 200_000 else 256 if rows >= 5_000 else 32
    epoch = max(1, math.ceil(0.8 * rows / batch))
    short = epoch < _FEWEST_STEPS
    # The accuracy of a few hundred examples hardly changes while the model still learns.
    judged = ", metric: log_loss" if labels is Labels.CLASS else ""
    # The log loss of a few dozen goes on improving while a model that knows them only becomes more certain.
    if rows < _FEW_ROWS and labels is not Labels.NUMBER:
        judged += f", min_delta: {_LEAST_GAIN}"
    return [
        "train:",
        f"  batch_size: {batch}",
        f"  epochs: {max(2, math.ceil(_STEPS / epoch))}",
        *([f"  evaluate_every: {_FEWEST_STEPS}   # steps; an epoch has {epoch}"] if short else []),
        *(
            ["  standardize_labels: true   # one learning rate for labels of any scale"]
            if labels is Labels.NUMBER
            else []
        ),
        "  # Stops when the validation metric no longer improves, and keeps the best evaluation.",
        f"  early_stopping: {{patience: {5 if short else 2}{judged}}}",
    ]


def _names(columns: Sequence[str]) -> dict[str, str]:
    """Names of tables, which are letters, digits and underscores, a letter first, by column."""
    found: dict[str, str] = {}
    for column in columns:
        name = re.sub(r"[^A-Za-z0-9_]", "_", column)[:_LONGEST_NAME]
        name = base = name if re.match(r"[A-Za-z]", name) else f"column_{name}"
        number = 2
        while name in found.values():
            name, number = f"{base}_{number}", number + 1
        found[column] = name
    return found


def _grouped(entries: Mapping[str, str]) -> dict[str, str]:
    """Keys in YAML, and their values; names that count up and have the same value become one with braces."""
    found: dict[str, str] = {}
    keys = list(entries)
    place = 0
    while place < len(keys):
        end = place + 1
        while end < len(keys) and entries[keys[end]] == entries[keys[place]] and _follows(keys[end - 1], keys[end]):
            end += 1
        if end - place > 1:
            stem, first = _counted(keys[place])
            found[f'"{stem}{{{first}..{_counted(keys[end - 1])[1]}}}"'] = entries[keys[place]]
        else:
            found[quoted(keys[place])] = entries[keys[place]]
        place = end
    return found


def _counted(name: str) -> tuple[str, str]:
    """The name without the number at its end, and that number as text."""
    number = re.search(r"(?:0|[1-9]\d{0,8})$", name)
    return (name[: number.start()], number[0]) if number else (name, "")


def _follows(before: str, after: str) -> bool:
    (stem, number), (stem_after, number_after) = _counted(before), _counted(after)
    return bool(number and number_after) and stem == stem_after and int(number_after) == int(number) + 1


def quoted(value: str) -> str:
    """A text in YAML, as a key or a value."""
    if re.fullmatch(r"[A-Za-z_/][\w./-]*", value, re.ASCII) and value.lower() not in _WORDS:
        return value
    return json.dumps(value.replace("${", "\\${"), ensure_ascii=not value.isprintable())


def _comment(value: str) -> str:
    return value if value.isprintable() else json.dumps(value)
