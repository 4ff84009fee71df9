"""Rules between the parts of a run that no part can check by itself. No TensorFlow."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from embexp.errors import Fault
from embexp.specs import knowledge_graphs
from embexp.specs.data import CSV, Clicks, Data, SplitKind, Text, Triples
from embexp.specs.models import Model, Task
from embexp.specs.partial import is_whole, known_or
from embexp.specs.pretrained import Checkpoint, NoPretrained, Pretrained
from embexp.specs.run import RunSpec
from embexp.specs.running import Train
from embexp.specs.tables import Feature, Table

_Part = TypeVar("_Part")

_CLICK_COLUMNS = {"user": "users", "item": "items", "history": "items"}
"""Columns of the synthetic click log, and what their ids number."""


@dataclass(frozen=True)
class Sections:
    """The parts of a config, as far as each is right by itself.

    Attributes:
        table_names: of all tables, also of those with faults.
        feature_names: of all features, also of those with faults.
        used_tables: tables that any feature names, or that one may name which is not known.
        tables: the right ones.
        features: the right ones.
        task: None where it is not known.
        data: None where it has faults; likewise the rest.
        model: the dense part.
        train: length and rhythm.
        pretrained: what tables without a setting of their own take their values from.
    """

    table_names: tuple[str, ...]
    feature_names: tuple[str, ...]
    used_tables: frozenset[str]
    tables: Mapping[str, Table]
    features: Mapping[str, Feature]
    task: Task | None = None
    data: Data | None = None
    model: Model | None = None
    train: Train | None = None
    pretrained: Pretrained | None = None

    @classmethod
    def of(cls, spec: RunSpec) -> Sections:
        """The parts of a spec, which may be known in part."""
        tables: Mapping[str, Table] = known_or({}, lambda: spec.tables)
        features: Mapping[str, Feature] = known_or({}, lambda: spec.features)
        return cls(
            table_names=tuple(tables),
            feature_names=tuple(features),
            used_tables=known_or(
                frozenset(tables), lambda: frozenset(feature.table for feature in spec.features.values())
            ),
            tables={name: table for name, table in tables.items() if is_whole(table)},
            features={name: feature for name, feature in features.items() if is_whole(feature)},
            task=known_or(None, lambda: spec.task),
            data=_whole(lambda: spec.data),
            model=_whole(lambda: spec.model),
            train=_whole(lambda: spec.train),
            pretrained=_whole(lambda: spec.pretrained),
        )

    @property
    def complete(self) -> bool:
        """Whether every table and every feature is right by itself."""
        named = bool(self.table_names and self.feature_names)
        return named and (len(self.tables), len(self.features)) == (len(self.table_names), len(self.feature_names))


def _whole(part: Callable[[], _Part]) -> _Part | None:
    """A part if all of it is known."""
    found = known_or(None, part)
    return found if is_whole(found) else None


def faults(sections: Sections) -> list[Fault]:
    """Everything that is wrong between the parts."""
    return [
        *_graph(sections),
        *_dims(sections),
        *_checkpoint(sections),
        *_shapes(sections),
        *_split(sections),
        *_clicks(sections),
        *_classes(sections),
        *knowledge_graphs.faults(
            task=sections.task, data=sections.data, model=sections.model, features=sections.features
        ),
        *_stopping(sections),
    ]


def _graph(sections: Sections) -> Iterator[Fault]:
    if not sections.table_names:  # what should be tables is none
        return
    for name, feature in sections.features.items():
        if feature.table not in sections.table_names:
            near = difflib.get_close_matches(feature.table, sections.table_names, n=1)
            yield Fault(
                f"features.{name}.table",
                repr(feature.table),
                "there is no table of that name",
                f"did you mean {near[0]!r}?" if near else f"the tables are {', '.join(sections.table_names)}",
            )
    for name in sections.table_names:
        if name not in sections.used_tables:
            yield Fault(
                f"tables.{name}",
                "unused",
                "every table must be looked up by a feature",
                f"give a feature table: {name}, or leave the table out",
            )


def _dims(sections: Sections) -> Iterator[Fault]:
    for name, table in sections.tables.items():
        if table.dim is None and isinstance(table.pretrained or sections.pretrained, NoPretrained):
            yield Fault(
                f"tables.{name}.dim",
                "null",
                "null stands for the length of a pretrained file's rows, and the table has no such file",
                f"set a number, or choose pretrained@tables.{name}.pretrained=file",
            )


def _checkpoint(sections: Sections) -> Iterator[Fault]:
    inherited = sections.pretrained
    if isinstance(inherited, Checkpoint) and inherited.table is not None:
        yield Fault(
            "pretrained.table",
            repr(inherited.table),
            "tables take the rows of the table of the same name, and only a table's own setting names another",
            "leave it null, and choose pretrained@tables.NAME.pretrained=checkpoint for the table",
        )


def _shapes(sections: Sections) -> Iterator[Fault]:
    for name, feature in sections.features.items():
        length, shape = feature.max_sequence_length, feature.output_shape
        if length and feature.weights is not None:
            yield Fault(
                f"features.{name}.weights",
                repr(feature.weights),
                f"a sequence has no weights, and max_sequence_length is {length}",
                "leave the weights out, or set max_sequence_length to 0 so that the rows are combined",
            )
        if (length or feature.weights is not None) and _holds_one_id(sections.data, feature.column or name):
            yield Fault(
                f"features.{name}.{'max_sequence_length' if length else 'weights'}",
                str(length) if length else repr(feature.weights),
                f"column {feature.column or name!r} holds one id per example, so there is nothing to put in a row"
                if length
                else f"column {feature.column or name!r} holds one id per example, and one id has no weight",
                "leave it out, or name a column that holds several (data.list_columns says which do in CSV files)",
            )
        if shape is None:
            continue
        if not length and feature.weights is not None and math.prod(shape[1:]) > 1:
            yield Fault(
                f"features.{name}.weights",
                repr(feature.weights),
                f"a sequence has no weights, and output_shape makes sequences of {math.prod(shape[1:])}",
                "leave the weights or the output_shape out",
            )
        written = f"[{', '.join(map(str, shape))}]"
        if length and math.prod(shape[1:]) != length:
            yield Fault(
                f"features.{name}.output_shape",
                written,
                f"behind the batch it must hold the {length} positions of max_sequence_length",
                f"write [{shape[0]}, {length}], or leave it out",
            )
        batch = None if sections.train is None else sections.train.batch_size
        if batch is not None and shape[0] != batch:
            yield Fault(
                f"features.{name}.output_shape",
                written,
                f"its first number is the batch, and train.batch_size is {batch}",
                f"write [{', '.join(map(str, (batch, *shape[1:])))}], or leave it out",
            )


def _holds_one_id(data: Data | None, column: str) -> bool:
    """Whether a column is known to hold one id per example. What only a file's header tells is not known here."""
    match data:
        case Clicks():
            return column in ("user", "item")
        case CSV():
            return column not in data.list_columns
        case _:
            return False


def _split(sections: Sections) -> Iterator[Fault]:
    data = sections.data
    if data is None or isinstance(data, Triples):
        return
    kind = data.split.kind
    if kind is not SplitKind.FOLDS:
        for key, value in (("folds", data.folds), ("fold", data.fold)):
            if value is not None:
                yield Fault(
                    f"data.{key}",
                    str(value),
                    f"only a split of kind folds has it, and this one is of kind {kind}",
                    "set data.split.kind=folds, or leave it out",
                )
    if kind is not SplitKind.LEAVE_ONE_OUT and data.split.group is not None:
        yield Fault(
            "data.split.group",
            repr(data.split.group),
            f"only leave_one_out has it, and this split is of kind {kind}",
            "set data.split.kind=leave_one_out, or leave it out",
        )


def _clicks(sections: Sections) -> Iterator[Fault]:
    data = sections.data
    if not isinstance(data, Clicks):
        return
    ids: dict[str, str] = {}
    for name, feature in sections.features.items():
        column = feature.column or name
        path = f"features.{name}.column" if feature.column else f"features.{name}"
        if feature.weights in _CLICK_COLUMNS:
            yield Fault(f"features.{name}.weights", repr(feature.weights), "it holds ids, not weights", "leave it out")
        if column not in _CLICK_COLUMNS:  # a look at the data tells
            continue
        what = _CLICK_COLUMNS[column]
        if ids.setdefault(feature.table, what) != what:
            yield Fault(
                path,
                repr(column),
                f"its ids number {what}, but those of table {feature.table!r} number {ids[feature.table]}",
                "give users and items tables of their own",
            )
    for name, what in ids.items():
        count = data.users if what == "users" else data.items
        size = sections.tables[name].vocabulary_size if name in sections.tables else None
        if size is not None and size < count:
            yield Fault(
                f"tables.{name}.vocabulary_size",
                str(size),
                f"the data has {count} {what}, and each needs a row",
                "set it to null, so that the data decides",
            )


def _classes(sections: Sections) -> Iterator[Fault]:
    if isinstance(sections.data, Text) and sections.task == Task.RATING:
        yield Fault(
            "task",
            "rating",
            "the labels of data=text are classes, whose numbers mean nothing",
            "set task=classification, or choose data=csv where labels are numbers",
        )


def _stopping(sections: Sections) -> Iterator[Fault]:
    if sections.train is None or sections.data is None or sections.train.early_stopping.patience is None:
        return
    if isinstance(sections.data, Triples):
        return
    split = sections.data.split
    if split.kind is not SplitKind.LEAVE_ONE_OUT and split.validation == 0:
        yield Fault(
            "train.early_stopping.patience",
            str(sections.train.early_stopping.patience),
            "early stopping watches the validation part, and data.split.validation is 0",
            "set data.split.validation above 0, or patience to null",
        )
