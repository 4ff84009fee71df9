"""The text of a first experiment, from what its columns become."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from embexp.cli.column_uses import Prediction, Role, Use, made_of_dates
from embexp.data.files.samples import ColumnFacts, DateFacts, Kind, Sample
from embexp.specs.fields import fields, imported
from embexp.specs.tasks import Labels

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
    slow = [f"optimizer: {{learning_rate: {_SLOW}}}   # low, so that the numbers themselves are learnt first"]
    return [
        "defaults:",
        f"  - override /data: {experiment.sample.kind}",
        "  - override /graph: null              # the tables and features are below",
        f"  - override /model: {model}",
        f"  - override /optimizer: {optimizer:<14}# of the tables; a first try, with dense_optimizer.learning_rate",
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
            "  # Of each user's items, this share; what has files of its own is not drawn.",
            f"  split: {{kind: random, within: user, group: {quoted(groups[0])}{shares}}}",
        ]
    if by_time and groups:
        return [
            "  # The last example of each user tests, the one before validates.",
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
        "  # Ends when the validation no longer improves, with the values of the best evaluation.",
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
