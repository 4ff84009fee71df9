"""A first experiment: what it makes of each column, by rules that `embexp new --help` states, and its text."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from embexp.config.patterns import is_pattern
from embexp.data.files.samples import ColumnFacts, Kind, Sample
from embexp.errors import CommandLineError

SMALLEST_DIM, LARGEST_DIM, _LARGEST_SHARED_DIM = 4, 64, 32
_LABELS = re.compile(
    r"^(?:is_)?(?:label|target|click(?:ed)?|rating|stars?|score|y|class|bought|converted?|conversion|liked?)$", re.I
)
_MOST_CLASSES = 100
_STEPS = 2_000
"""Steps that a training is to have at least, if 20 epochs have so many."""
_MANY_VALUES = 10_000
_INITIALIZER = "initializer: {kind: normal, stddev: 0.01}"
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


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
        why: the reason, where it is another than that of the column's kind.
    """

    facts: ColumnFacts
    role: Role
    why: str = ""


def label_candidates(columns: Sequence[ColumnFacts]) -> list[ColumnFacts]:
    """Columns that may be the label, the likeliest first: those with such a name, then those of zeros and ones."""
    named = [column for column in columns if _LABELS.match(column.name) and task_or_fault(column, columns)[0]]
    binary = [column for column in columns if column.numbers == (0.0, 1.0) and column not in named]
    return [*named, *binary]


def task_or_fault(label: ColumnFacts, columns: Sequence[ColumnFacts]) -> tuple[str, str]:
    """The task that a label is for, or "" and why it can't be one."""
    if label.kind is Kind.CONSTANT:
        return "", f"it holds {label.why}"
    numeric = label.kind in (Kind.NUMBER, Kind.CATEGORY, Kind.TIME) and _is_number(label.examples)
    if not numeric:
        return "", "a label is a number: 0 and 1, any number such as a rating, or 0, 1, 2, … for classes"
    if label.numbers == (0.0, 1.0):
        return "binary", ""
    classes = label.numbers == tuple(map(float, range(len(label.numbers)))) and 2 < len(label.numbers) <= _MOST_CLASSES
    if classes and any(column.kind is Kind.TEXT for column in columns):
        return "classification", ""
    return "regression", ""


def _is_number(examples: Sequence[str]) -> bool:
    try:
        [float(example) for example in examples]
    except ValueError:
        return False
    return True


def uses(columns: Sequence[ColumnFacts], label: str, *, splits_text: bool) -> list[Use]:
    """What becomes of each column.

    Args:
        splits_text: whether the source can split a text into the values of a list.

    Raises:
        CommandLineError: nothing is left to embed.
    """
    times = [column for column in columns if column.kind is Kind.TIME and column.name != label]
    separators = Counter(column.separator for column in columns if column.separator is not None)
    texts = any(column.kind is Kind.TEXT for column in columns)  # a file has one separator of lists: texts come first
    separator = " " if texts else next((each for each, _ in separators.most_common(1)), None)
    found = []
    for column in columns:
        if column.name == label:
            found.append(
                Use(column, Role.LABEL, f"{column.missing:.1%} are missing: remove them" if column.missing else "")
            )
        elif column.kind is Kind.TIME:
            found.append(Use(column, *((Role.TIME, "") if column is times[0] else (Role.OUT, "another time splits"))))
        elif column.kind in (Kind.CONSTANT, Kind.UNIQUE):
            found.append(Use(column, Role.OUT))
        elif column.kind is Kind.NUMBER:
            found.append(
                Use(
                    column,
                    *(
                        (Role.OUT, "patterns use its name's characters")
                        if is_pattern(column.name)
                        else (Role.NUMBER, "")
                    ),
                )
            )
        elif column.separator is not None and not splits_text:
            found.append(Use(column, Role.OUT, "only CSV files have lists in text: write a column of lists"))
        elif column.separator != separator and column.separator is not None:
            found.append(Use(column, Role.OUT, f"its separator is not {separator!r}, as that of others is"))
        else:
            found.append(Use(column, Role.TABLE))
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


@dataclass(frozen=True)
class Experiment:
    """What an experiment is written from."""

    name: str
    task: str
    sample: Sample
    uses: Sequence[Use]
    command: str

    def columns(self, role: Role) -> list[ColumnFacts]:
        """The columns with a role."""
        return [use.facts for use in self.uses if use.role is role]


def text(experiment: Experiment) -> str:
    """The YAML file."""
    tables = experiment.columns(Role.TABLE)
    names = _names([column.name for column in tables])
    model = _model(experiment)
    # In one epoch over a click log, Adagrad at its default rate found more than Adam at any of three (`bench.clicks`).
    optimizer = "adagrad" if experiment.task == "binary" else "adam"
    left_out = [use for use in experiment.uses if use.role is Role.OUT]
    sample = experiment.sample
    looked = f"all {sample.rows:,} rows" if sample.whole else f"{sample.count:,} of about {sample.rows:,} rows"
    lines = [
        "# @package _global_",
        f"# {_TITLES[experiment.task]} on {_text(experiment.sample.path.name)}. A first experiment, for which",
        f"# `embexp new` looked at {looked}.",
        f"#   {experiment.command}",
        "defaults:",
        f"  - override /data: {sample.kind}",
        "  - override /graph: null              # the tables and features are below",
        f"  - override /model: {model}",
        f"  - override /optimizer: {optimizer:<14}# of the tables; a first try, with dense_optimizer.learning_rate",
        "  - override /dense_optimizer: adam",
        "",
        f"name: {experiment.name}",
        f"task: {experiment.task}",
        *_data(experiment),
        *_tables(tables, names, shared=model == "dlrm_concat"),
        *_features(tables, names),
        *_training(sample.rows, experiment.task),
        *(["", "# Left out:"] if left_out else []),
        *(f"#   {_text(use.facts.name)}: {_comment(use.why or use.facts.why)}" for use in left_out),
    ]
    return "\n".join(lines) + "\n"


_TITLES = {
    "binary": "Binary classification",
    "regression": "Prediction of a number",
    "classification": "Classification",
}


def _model(experiment: Experiment) -> str:
    vectors = len(experiment.columns(Role.TABLE)) + bool(experiment.columns(Role.NUMBER))
    return "dlrm_concat" if experiment.task == "binary" and vectors > 2 else "mlp"


def _data(experiment: Experiment) -> list[str]:
    sample = experiment.sample
    [label], times = experiment.columns(Role.LABEL), experiment.columns(Role.TIME)
    tables, numbers = experiment.columns(Role.TABLE), experiment.columns(Role.NUMBER)
    lists = [column for column in tables if column.separator is not None]
    lines = ["data:", f"  path: {_text(str(sample.path.absolute()))}"]
    if sample.kind == "csv":
        lines.append(f"  delimiter: {json.dumps(sample.delimiter)}")
        if sample.encoding != "utf-8":
            lines.append(f"  encoding: {sample.encoding}")
        if not sample.headed:
            lines.append("  # The file has no header line.")
            lines.append(f"  names: [{', '.join(map(_text, sample.columns))}]")
    if lists:
        lines.append(f"  list_separator: {json.dumps(lists[0].separator)}")
        lines.append(f"  list_columns: [{', '.join(_text(column.name) for column in lists)}]")
    lines.append(f"  label: {_text(label.name)}")
    if times:
        lines.append(f"  timestamp: {_text(times[0].name)}")
        lines.append(
            "  # The latest examples validate and test. For the last one of each user: kind: leave_one_out, and"
        )
        lines.append("  # group: COLUMN, with that of the users.")
        lines.append("  split: {kind: time, validation: 0.1, test: 0.1}")
    else:
        lines.append("  split: {kind: random, validation: 0.1, test: 0.1}")
    if any(column.estimated > _MANY_VALUES for column in tables):
        lines.append("  # Values that occur only once in the training split share the OOV row.")
        lines.append("  vocabulary: {min_frequency: 2}")
    if numbers:
        lines.append(
            "  # log1p where a few values are much larger than the others; all are standardized. Both are fitted on"
        )
        lines.append(
            "  # the training split. A missing value counts as 0 or the mean, and has an indicator if there are many."
        )
        lines.append("  dense_features:")
        settings = {column.name: _of_number(column) for column in numbers}
        lines += [f"    {key}: {value}" for key, value in _grouped(settings).items()]
    return lines


def _of_number(column: ColumnFacts) -> str:
    transform = "[log1p, standardize]" if column.heavy else "standardize"
    missing = "zero" if column.heavy and not column.negative else "mean"
    indicator = ", indicator: true" if column.missing else ""
    return f"{{transform: {transform}, missing: {missing}{indicator}}}"


def _tables(columns: Sequence[ColumnFacts], names: Mapping[str, str], *, shared: bool) -> list[str]:
    dims = {column.name: dim_of(column.estimated) for column in columns}
    lines = ["# Embedding tables. dim: the power of two nearest to 4 · (number of values)^(1/4), from 4 to 64"]
    if shared:
        dims = dict.fromkeys(dims, min(_LARGEST_SHARED_DIM, max(dims.values())))
        lines[0] += "; DLRM"
        lines.append(f"# needs one dim, that of the largest table, at most {_LARGEST_SHARED_DIM}.")
    else:
        lines[0] += "."
    lines.append("tables:")
    lines.insert(-1, "# Small initial values: rare rows keep theirs, which are noise to the model.")
    grouped = _grouped({names[column.name]: f"{{dim: {dims[column.name]}, {_INITIALIZER}}}" for column in columns})
    sizes = {names[column.name]: column for column in columns}
    for key, value in grouped.items():
        about = "" if key not in sizes else f"   # {_values(sizes[key])}"
        lines.append(f"  {key}: {value}{about}")
    return lines


def _values(column: ColumnFacts) -> str:
    more = "" if column.estimated == column.distinct else f", about {column.estimated:,} in all"
    return f"{column.distinct:,} values in the sample{more}"


def _features(columns: Sequence[ColumnFacts], names: Mapping[str, str]) -> list[str]:
    lines = ["# What is looked up: each feature in the table of its name."]
    if any(column.kind in (Kind.LIST, Kind.TEXT) for column in columns):
        lines.append("# The vectors of a list, or of the words of a text, are averaged.")
    entries = {
        names[column.name]: "{}" if names[column.name] == column.name else f"{{column: {_text(column.name)}}}"
        for column in columns
    }
    return [*lines, "features:", *(f"  {key}: {value}" for key, value in _grouped(entries).items())]


def _training(rows: int, task: str) -> list[str]:
    batch = 1024 if rows >= 200_000 else 256 if rows >= 5_000 else 32
    steps_of_an_epoch = max(1, math.ceil(0.8 * rows / batch))
    epochs = min(20, max(1, math.ceil(_STEPS / steps_of_an_epoch)))
    return [
        "train:",
        f"  batch_size: {batch}",
        f"  epochs: {max(epochs, 2)}",
        *(["  standardize_labels: true   # one learning rate for labels of any scale"] if task == "regression" else []),
        "  # Ends when the validation no longer improves, with the values of the best epoch.",
        "  early_stopping: {patience: 2}",
    ]


def _names(columns: Sequence[str]) -> dict[str, str]:
    """Names of tables, which are letters, digits and underscores, a letter first, by column."""
    found: dict[str, str] = {}
    for column in columns:
        name = re.sub(r"[^A-Za-z0-9_]", "_", column)
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
            found[_text(keys[place])] = entries[keys[place]]
        place = end
    return found


def _counted(name: str) -> tuple[str, str]:
    """The name without the number at its end, and that number as text."""
    number = re.search(r"(?:0|[1-9]\d{0,8})$", name)
    return (name[: number.start()], number[0]) if number else (name, "")


def _follows(before: str, after: str) -> bool:
    (stem, number), (stem_after, number_after) = _counted(before), _counted(after)
    return bool(number and number_after) and stem == stem_after and int(number_after) == int(number) + 1


def _text(value: str) -> str:
    """A text in YAML, as a key or a value."""
    if re.fullmatch(r"[A-Za-z_/][\w./-]*", value, re.ASCII) and value.lower() not in _WORDS:
        return value
    return json.dumps(value.replace("${", "\\${"), ensure_ascii=not value.isprintable())


def _comment(value: str) -> str:
    return value if value.isprintable() else json.dumps(value)
