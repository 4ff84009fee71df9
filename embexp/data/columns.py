"""Which columns of the data a run reads, and what for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date, timedelta
from types import MappingProxyType

from embexp.errors import ConfigError, Fault
from embexp.specs.data import Columnar, Data, MissingLabel, NumericColumn
from embexp.specs.tables import Feature, Table
from embexp.specs.tasks import Labels, Task
from embexp.specs.vocabularies import Buckets, SettledRules, normalized_text, settled

_NO_TABLES: Mapping[str, Table] = MappingProxyType({})
NUMBER = "a finite number"
"""The word in errors for a valid value of a column of numbers."""
SKIP_UNLABELLED = "data.missing_label=skip skips rows without a label"
"""The remedy in errors for a missing label."""
OF_LABELLED = " of those with a label"
"""Follows the number of a row in errors, where rows without a label are left out."""


@dataclass(frozen=True)
class ListNeed:
    """A setting for which a column must hold several ids per example."""

    path: str
    value: str


@dataclass(frozen=True)
class BucketColumn:
    """Ids that are buckets of a column of numbers."""

    column: str
    table: str
    settings: Buckets


@dataclass(frozen=True)
class HistoryColumn:
    """Ids of a column in all training examples with the same user."""

    column: str
    user: str


@dataclass(frozen=True)
class ClassNames:
    """How the values of a label that are names of classes become labels.

    Attributes:
        two: whether they are those of task binary, 0 and 1; else they are 0, 1, 2, …
        positive: the value that is label 1; None: yes, or true.
    """

    two: bool
    positive: str | None = None


@dataclass(frozen=True)
class Columns:
    """What a run reads of the data.

    Attributes:
        ids: id column -> table in whose vocabulary its values are; several columns may share one.
        weights: weight column -> the id column whose values it weighs.
        dense: numeric columns that the model gets.
        numeric: how it gets their values; those that are not here are as they are.
        buckets: name of an id column that no file has, see `RunSpec.ids_of` -> the numbers that its ids are buckets of.
        rules: table -> how its vocabulary is built; of those that are not here, as the data says.
        label: the label's column; None when there is none to read (predicting).
        further_labels: columns of numbers that are labels, too.
        classes: of a label whose values may be names of classes; None: they are numbers.
        skips_unlabelled: whether rows without a label are left out.
        several: id column -> why it must hold several values per example; others may hold one or several.
        asked_by: column -> config path that names it, for messages.
        example_weight: the column of the examples' weights; None: there is none, or none to read.
        histories: name of an id column that no file has, see `RunSpec.ids_of` -> what it is made of.
        ages: column of ages in days -> the column of the dates, and the day since 1970 to which they are counted.
    """

    ids: Mapping[str, str]
    weights: Mapping[str, str] = field(default_factory=dict)
    dense: tuple[str, ...] = ()
    label: str | None = None
    several: Mapping[str, tuple[ListNeed, ...]] = field(default_factory=dict)
    asked_by: Mapping[str, str] = field(default_factory=dict)
    numeric: Mapping[str, NumericColumn] = field(default_factory=dict)
    buckets: Mapping[str, BucketColumn] = field(default_factory=dict)
    rules: Mapping[str, SettledRules] = field(default_factory=dict)
    classes: ClassNames | None = None
    skips_unlabelled: bool = False
    example_weight: str | None = None
    histories: Mapping[str, HistoryColumn] = field(default_factory=dict)
    ages: Mapping[str, tuple[str, float]] = field(default_factory=dict)
    further_labels: tuple[str, ...] = ()

    @property
    def id_columns(self) -> tuple[str, ...]:
        """All columns of ids that examples have themselves, also those that are made of numbers."""
        return (*self.ids, *self.buckets)

    @property
    def bucketed(self) -> tuple[str, ...]:
        """The columns of numbers that are put into buckets, each once."""
        return tuple(dict.fromkeys(bucket.column for bucket in self.buckets.values()))

    @property
    def dense_settings(self) -> dict[str, NumericColumn]:
        """How the model gets the values of `dense`, in their order."""
        return {name: self.numeric.get(name, NumericColumn()) for name in self.dense}

    @property
    def dense_width(self) -> int:
        """How many numbers the model gets of an example for them."""
        return sum(setting.width for setting in self.dense_settings.values())

    @property
    def may_be_missing(self) -> tuple[str, ...]:
        """Columns of `dense` whose values may be missing."""
        return tuple(name for name, setting in self.dense_settings.items() if setting.may_be_missing)


def columns_of(
    data: Data,
    features: Mapping[str, Feature],
    tables: Mapping[str, Table] = _NO_TABLES,
    *,
    labelled: bool = True,
    task: Task | None = None,
) -> tuple[Columns, dict[str, str]]:
    """The columns that features read, and for each table the name of its vocabulary.

    Tables that are looked up by a common column (such as an item's vector and its bias) share a vocabulary, so
    that an id means the same row in both; it has the name of the first table.

    Args:
        tables: by name; of those that are not here, the vocabularies are as the data says.
        labelled: whether the label is read.
        task: which decides whether labels may be names of classes; None: they are numbers.

    Raises:
        ConfigError: one weight column is given to two id columns; tables that share a vocabulary differ in its rules.
    """
    vocabulary: dict[str, str] = {}
    first_table: dict[str, str] = {}
    for name, feature in features.items():
        vocabulary.setdefault(feature.table, feature.table)
        if feature.buckets.given:  # other buckets of the same numbers are another vocabulary
            continue
        column = feature.column or name
        known = first_table.setdefault(column, feature.table)
        old, new = vocabulary[feature.table], vocabulary[known]
        if old != new:
            keep, drop = sorted((old, new), key=list(vocabulary).index)
            vocabulary = {table: keep if group == drop else group for table, group in vocabulary.items()}

    weights: dict[str, str] = {}
    asked_by: dict[str, str] = {}
    several: dict[str, tuple[ListNeed, ...]] = {}
    faults = []
    for name, feature in features.items():
        column = feature.column or name
        asked_by.setdefault(column, f"features.{name}.column" if feature.column else f"features.{name}")
        needs = tuple(ListNeed(f"features.{name}.{key}", value) for key, value in feature.settings_of_lists().items())
        if feature.buckets.given:
            continue
        if needs:
            several[column] = (*several.get(column, ()), *needs)
        if feature.weights is None:
            continue
        asked_by.setdefault(feature.weights, f"features.{name}.weights")
        if weights.setdefault(feature.weights, column) != column:
            faults.append(
                Fault(
                    f"features.{name}.weights",
                    repr(feature.weights),
                    f"this column already has the weights of {weights[feature.weights]!r}, so it can't have "
                    f"those of {column!r}",
                    "give each id column its own weights",
                )
            )
    rules, conflicts = _rules(data, tables, vocabulary)
    if faults := faults + conflicts:
        raise ConfigError(faults)
    columns = Columns(
        ids={column: vocabulary[table] for column, table in first_table.items()},
        weights=weights,
        dense=data.dense_columns,
        label=data.label_column if labelled else None,
        several=several,
        asked_by=asked_by,
        numeric=data.numeric_columns,
        buckets={
            feature.ids_column(name): BucketColumn(feature.column or name, feature.table, feature.buckets)
            for name, feature in features.items()
            if feature.buckets.given
        },
        rules=rules,
        classes=_class_names(data, task) if labelled else None,
        skips_unlabelled=labelled and isinstance(data, Columnar) and data.missing_label is MissingLabel.SKIP,
        example_weight=data.weight if labelled and isinstance(data, Columnar) else None,
        histories={
            feature.ids_column(name): HistoryColumn(feature.column or name, features[user].column or user)
            for name, feature in features.items()
            if (user := feature.history_of) is not None and user in features  # or it is a fault
        },
        ages={
            f"{name}_age": (name, (date.fromisoformat(dates.reference) - date(1970, 1, 1)) / timedelta(days=1))
            for name, dates in getattr(data, "dates", {}).items()
            if dates.reference is not None
        },
        further_labels=data.further_labels if labelled else (),
    )
    return columns, vocabulary


def _class_names(data: Data, task: Task | None) -> ClassNames | None:
    if not isinstance(data, Columnar) or data.label is None or data.label_threshold is not None:
        return None
    if data.further_labels:
        return None  # all of them are numbers
    match task and task.labels:
        case Labels.BINARY:
            positive = data.positive
            return ClassNames(two=True, positive=positive and normalized_text(positive, data.normalize or ()))
        case Labels.CLASS:
            return ClassNames(two=False)
        case _:
            return None


def _rules(
    data: Data, tables: Mapping[str, Table], vocabulary: Mapping[str, str]
) -> tuple[dict[str, SettledRules], list[Fault]]:
    """The rules of each vocabulary, and faults where tables that share one have different rules of their own."""
    rules: dict[str, SettledRules] = {}
    faults: list[Fault] = []
    if data.token_rules is None:
        return {}, []
    for group in dict.fromkeys(vocabulary.values()):
        sharing = [name for name, other in vocabulary.items() if other == group and name in tables]
        set_by: dict[str, str] = {}
        for name in sharing:
            for key, value in tables[name].vocabulary.own.items():
                first = set_by.setdefault(key, name)
                if (before := tables[first].vocabulary.own[key]) != value:
                    rule = (
                        f"it shares a vocabulary with {first}, because one column is looked up in both, but "
                        f"{first} has {before}"
                    )
                    faults.append(
                        Fault(f"tables.{name}.vocabulary.{key}", str(value), rule, "set it in only one of them")
                    )
        if sharing and not faults:
            rules[group] = settled(data.token_rules, [tables[name].vocabulary for name in sharing])
    return rules, faults


@dataclass(frozen=True)
class Wanted:
    """A column that has to be read.

    Attributes:
        asked_by: config path that names it.
        tokens: read as values of a vocabulary (ids, or the groups of leave-one-out), or as names of classes.
        numbers: read as numbers (weights, dense, label, timestamp).
        single: must hold one value per example.
        several: why it must hold several; empty: it need not.
        weighs: the id column whose values this one weighs.
        time: of numbers, whether text may hold dates.
        may_be_missing: of numbers, whether a row may have none: its value is then NaN.
        names: of tokens, whether they are names of classes, which may be of any type.
        least: of numbers, the smallest that is allowed; None: any.
        skips: whether a row that has none is left out.
    """

    name: str
    asked_by: str
    tokens: bool = False
    numbers: bool = False
    single: bool = False
    several: tuple[ListNeed, ...] = ()
    weighs: str | None = None
    time: bool = False
    may_be_missing: bool = False
    names: bool = False
    least: float | None = None
    skips: bool = False

    def expected(self, *, missing: bool, beyond: bool = False) -> str:
        """What a value that is no number should be, for errors.

        Args:
            missing: whether it is one that stands for none.
            beyond: whether it is a number that is too large.
        """
        if beyond:
            return f"{NUMBER} that fits into float32, at most 3.4e+38"
        return f"{NUMBER}; {SKIP_UNLABELLED}" if missing and self.asked_by == "data.label" else NUMBER


def wanted(columns: Columns, *, timestamp: str | None = None, group: str | None = None) -> tuple[Wanted, ...]:
    """The columns to read, each once.

    Args:
        timestamp: column of the time, where the split needs it.
        group: column of the groups of leave-one-out, where the split needs it.
    """
    paths: dict[str, str] = {}
    named: tuple[tuple[str, Iterable[str | None]], ...] = (
        ("features", columns.ids),
        ("features", columns.weights),
        ("data.dense_features", columns.dense),
        ("features", columns.bucketed),
        ("data.label", [columns.label, *columns.further_labels]),
        ("data.weight", [columns.example_weight]),
        ("data.timestamp", [timestamp]),
        ("data.split.group", [group]),
    )
    for path, names in named:
        for name in names:
            if name is not None:
                paths.setdefault(name, columns.asked_by.get(name, path))
    classes, label = (columns.label, None) if columns.classes is not None else (None, columns.label)
    complete = {*columns.dense} - {*columns.may_be_missing} | {
        label,
        timestamp,
        columns.example_weight,
        *columns.weights,
        *columns.further_labels,
    }
    skips = {columns.label} if columns.skips_unlabelled else set()
    complete -= skips
    incomplete = ({*columns.may_be_missing, *columns.bucketed} - complete) | ({label} & skips)
    of_example = {columns.label, *columns.further_labels, columns.example_weight, timestamp, group}
    single = {*columns.dense, *columns.bucketed} | of_example
    return tuple(
        Wanted(
            name,
            path,
            tokens=name in columns.ids or name in (group, classes),
            numbers=name in complete | incomplete,
            single=name in single,
            several=columns.several.get(name, ()) if name in columns.ids else (),
            weighs=columns.weights.get(name),
            time=name == timestamp,
            may_be_missing=name in incomplete,
            least=0.0 if name == columns.example_weight else None,
            names=name == classes and name not in columns.ids and name != group,
            skips=name in skips,
        )
        for name, path in paths.items()
    )
