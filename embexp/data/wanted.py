"""What has to be read of a source: each needed column once, with everything it is needed for."""

from __future__ import annotations

from dataclasses import dataclass

from embexp.data.columns import Columns, ListNeed
from embexp.errors import Fault
from embexp.specs.data import Columnar, Data, SkipGram, SplitKind, Text, Triples


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
    """

    name: str
    asked_by: str
    tokens: bool = False
    numbers: bool = False
    single: bool = False
    several: tuple[ListNeed, ...] = ()
    weighs: str | None = None


def timestamp_faults(data: Data) -> list[Fault]:
    """The fault of a split that needs the time, or a user, where there is no column of it."""
    if isinstance(data, Triples):
        return []
    if isinstance(data, Text | SkipGram) and data.split.kind is SplitKind.LEAVE_ONE_OUT:
        rule = "texts have no users, of each of whom one could be left out"
        return [Fault("data.split.kind", str(data.split.kind), rule, "choose random, time or folds")]
    ordered = data.split.kind in (SplitKind.TIME, SplitKind.LEAVE_ONE_OUT)
    if not isinstance(data, Columnar) or not ordered or data.timestamp is not None:
        return []
    rule = f"data.split.kind={data.split.kind} needs the column of the time"
    return [Fault("data.timestamp", "null", rule, "name it, or choose another split")]


def timestamp_of(data: Data) -> str | None:
    """The timestamp column, if the split needs it."""
    if not isinstance(data, Columnar):
        return None
    return data.timestamp if data.split.kind in (SplitKind.TIME, SplitKind.LEAVE_ONE_OUT) else None


def group_of(data: Data) -> str | None:
    """The column of the groups, if the split needs it."""
    if isinstance(data, Triples):
        return None
    return data.split.group if data.split.kind is SplitKind.LEAVE_ONE_OUT else None


def wanted(data: Data, columns: Columns, *, divided: bool) -> tuple[Wanted, ...]:
    """The columns to read, each once.

    Args:
        data: the source.
        columns: what the run reads.
        divided: whether the examples are to be split (another file that is only evaluated is not).
    """
    asked: list[Wanted] = []

    def ask(name: str, path: str, **needs: object) -> None:
        asked.append(Wanted(name, columns.asked_by.get(name, path), **needs))  # type: ignore[arg-type]

    for name in columns.ids:
        ask(name, "features", tokens=True, several=columns.several.get(name, ()))
    for name, ids in columns.weights.items():
        ask(name, "features", numbers=True, weighs=ids)
    for name in columns.dense:
        ask(name, "data.dense_features", numbers=True, single=True)
    if columns.label is not None:
        ask(columns.label, "data.label", numbers=True, single=True)
    if divided and (timestamp := timestamp_of(data)) is not None:
        ask(timestamp, "data.timestamp", numbers=True, single=True)
    if divided and (group := group_of(data)) is not None:
        ask(group, "data.split.group", tokens=True, single=True)

    merged: dict[str, Wanted] = {}
    for one in asked:
        other = merged.get(one.name, one)
        merged[one.name] = Wanted(
            one.name,
            other.asked_by,
            tokens=one.tokens or other.tokens,
            numbers=one.numbers or other.numbers,
            single=one.single or other.single,
            several=other.several or one.several,
            weighs=other.weighs or one.weighs,
        )
    return tuple(merged.values())
