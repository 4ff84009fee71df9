"""Rules between a source of data and splits, tasks and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from embexp.errors import Fault
from embexp.specs.models import Task
from embexp.specs.partial import for_each, where_known

if TYPE_CHECKING:
    from embexp.specs.data import Clicks
    from embexp.specs.run import RunSpec
    from embexp.specs.sources import DividedData


def split_faults(data: DividedData) -> Iterator[Fault]:
    """Settings that belong to another kind of split."""
    return where_known(_folds(data, "folds"), _folds(data, "fold"), _group(data))


def _folds(data: DividedData, key: str) -> Iterator[Fault]:
    value, kind = getattr(data, key), data.split.kind
    if value is not None and kind != "folds":
        yield Fault(
            f"data.{key}",
            str(value),
            f"only a split of kind folds has it, and this split is of kind {kind}",
            "set data.split.kind=folds, or remove it",
        )


def _group(data: DividedData) -> Iterator[Fault]:
    group, kind = data.split.group, data.split.kind
    if group is not None and kind != "leave_one_out":
        yield Fault(
            "data.split.group",
            repr(group),
            f"only leave_one_out has it, and this split is of kind {kind}",
            "set data.split.kind=leave_one_out, or remove it",
        )


def clicks_faults(data: Clicks, spec: RunSpec) -> Iterator[Fault]:
    """Users and items in the same table, tables with too few rows, and ids as weights."""
    what = {"user": "users", "item": "items", "history": "items"}

    def weights(name: str) -> Iterator[Fault]:
        if spec.features[name].weights in what:
            path, value = f"features.{name}.weights", repr(spec.features[name].weights)
            yield Fault(path, value, "it holds ids, not weights", "remove it")

    def mixed(name: str) -> Iterator[Fault]:
        column = spec.features[name].column
        path = f"features.{name}.column" if column else f"features.{name}"
        yield from _mixed(spec, what, name, path, column or name, "users and items")

    def small(name: str) -> Iterator[Fault]:
        held, size = next(_held(spec, what, name), None), spec.tables[name].vocabulary_size
        if held is not None and size is not None and size < (count := getattr(data, held)):
            yield Fault(
                f"tables.{name}.vocabulary_size",
                str(size),
                f"the data has {count} {held}, and each needs a row",
                "set it to null to use the size of the vocabulary",
            )

    yield from where_known(
        for_each(lambda: spec.features, weights),
        for_each(lambda: spec.features, mixed),
        for_each(lambda: spec.tables, small),
    )


def text_faults(spec: RunSpec) -> Iterator[Fault]:
    """Classes as ratings."""
    if spec.task is Task.RATING:
        yield Fault(
            "task",
            "rating",
            "the labels of data=text are classes, and their numbers have no meaning",
            "set task=classification, or choose data=csv if the labels are numbers",
        )


def triples_faults(spec: RunSpec, what: Mapping[str, str]) -> Iterator[Fault]:
    """A task other than ranking, and entities and relations in the same table.

    Args:
        spec: the run.
        what: what the ids of each column identify.
    """

    def renamed(name: str) -> Iterator[Fault]:
        column = spec.features[name].column
        if name in what and column not in (None, name):
            rule = "models of knowledge graphs identify the columns of queries by the names of features"
            yield Fault(f"features.{name}.column", repr(column), rule, "leave it null")

    def mixed(name: str) -> Iterator[Fault]:
        path, table = f"features.{name}.table", spec.features[name].table
        yield from _mixed(spec, what, name, path, table, "entities and relations")

    yield from where_known(
        _no_ranking(spec),
        for_each(lambda: spec.features, renamed),
        for_each(lambda: spec.features, mixed),
    )


def _no_ranking(spec: RunSpec) -> Iterator[Fault]:
    if spec.task is not Task.RANKING:
        yield Fault("task", repr(str(spec.task)), "queries of triples have candidates to rank", "set task=ranking")


def _mixed(spec: RunSpec, what: Mapping[str, str], name: str, path: str, value: str, kinds: str) -> Iterator[Fault]:
    """The ids of a feature identify other things than those of most features of its table, the first ones if equal."""
    feature = spec.features[name]
    held, all_held = what.get(feature.column or name), list(_held(spec, what, feature.table))
    first = max(all_held, key=all_held.count, default=None)
    if held is not None and held != first:
        yield Fault(
            path,
            repr(value),
            f"its ids identify {held}, but those of table {feature.table!r} identify {first}",
            f"use separate tables for {kinds}",
        )


def _held(spec: RunSpec, what: Mapping[str, str], table: str) -> Iterator[str]:
    """What the ids of a table identify, by the columns of its features."""

    def of_feature(name: str) -> Iterator[str]:
        feature = spec.features[name]
        if feature.table == table and (held := what.get(feature.column or name)):
            yield held

    return for_each(lambda: spec.features, of_feature)
