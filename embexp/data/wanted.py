"""The columns to read of a source, each once, with all its uses."""

from __future__ import annotations

from dataclasses import dataclass

from embexp.data.columns import Columns, ListNeed

NUMBER = "a finite number"
"""The word in errors for a valid value of a column of numbers."""


@dataclass(frozen=True)
class Wanted:
    """A column that has to be read.

    Attributes:
        name: of the column.
        asked_by: config path that names it.
        tokens: read as values of a vocabulary (ids, or the groups of leave-one-out).
        numbers: read as numbers (weights, dense, label, timestamp).
        single: must hold one value per example.
        several: why it must hold several; empty: it need not.
        weighs: the id column whose values this one weighs.
        time: of numbers, whether text may hold dates.
        may_be_missing: of numbers, whether a row may have none: its value is then NaN.
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


def wanted(columns: Columns, *, timestamp: str | None = None, group: str | None = None) -> tuple[Wanted, ...]:
    """The columns to read, each once.

    Args:
        columns: what the run reads.
        timestamp: column of the time, where the split needs it.
        group: column of the groups of leave-one-out, where the split needs it.
    """
    needs_of_columns: list[Wanted] = []

    def need(name: str, path: str, **needs: object) -> None:
        needs_of_columns.append(Wanted(name, columns.asked_by.get(name, path), **needs))  # type: ignore[arg-type]

    for name in columns.ids:
        need(name, "features", tokens=True, several=columns.several.get(name, ()))
    for name, ids in columns.weights.items():
        need(name, "features", numbers=True, weighs=ids)
    for name in columns.dense:
        missing = name in columns.may_be_missing
        need(name, "data.dense_features", numbers=True, single=True, may_be_missing=missing)
    for name in columns.bucketed:
        need(name, "features", numbers=True, single=True, may_be_missing=True)
    if columns.label is not None:
        need(columns.label, "data.label", numbers=True, single=True)
    if timestamp is not None:
        need(timestamp, "data.timestamp", numbers=True, single=True, time=True)
    if group is not None:
        need(group, "data.split.group", tokens=True, single=True)

    merged: dict[str, Wanted] = {}
    for one in needs_of_columns:
        other = merged.get(one.name, one)
        merged[one.name] = Wanted(
            one.name,
            other.asked_by,
            tokens=one.tokens or other.tokens,
            numbers=one.numbers or other.numbers,
            single=one.single or other.single,
            several=other.several or one.several,
            weighs=other.weighs or one.weighs,
            time=one.time or other.time,
            may_be_missing=all(each.may_be_missing for each in (one, other) if each.numbers),
        )
    return tuple(merged.values())
