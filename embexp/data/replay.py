"""Earlier examples that are mixed into the training split of a run that goes on from others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from embexp.data.examples import Examples, ListColumn


@dataclass(frozen=True)
class Earlier:
    """The training split of an earlier run.

    Attributes:
        rows: int64, the examples that trained.
        now: by column of ids, the row that each of its rows has now, int64; -1: none, which leaves its examples out.
        unit: how many examples, one behind the other, are made of a row of the data: they are mixed in together.
    """

    examples: Examples
    rows: np.ndarray
    now: Mapping[str, np.ndarray]
    unit: int = 1

    def kept(self) -> np.ndarray:
        """int64: the units all of whose single ids still have a row."""
        found = np.ones(len(self.rows), np.bool_)
        for name in self.examples.id_columns:
            found &= self.now[name][self.examples.column(name, self.rows)] >= 0
        units, counts = np.unique(self.rows[found] // self.unit, return_counts=True)
        whole: np.ndarray = units[counts == self.unit]
        return whole


def drawn(counts: Sequence[int], share: float, training: int, seed: int) -> list[np.ndarray]:
    """Which examples of several splits are mixed in: rising int64 places in each.

    Each earlier example is as likely as any other, and none is drawn twice. Fewer than asked for are drawn where there
    are fewer.

    Args:
        counts: of the splits.
        share: of all training examples that are to be earlier ones, above 0 and below 1.
        training: examples that train besides.
    """
    total = sum(counts)
    wanted = min(total, round(training * share / (1 - share)))
    places = np.sort(np.random.default_rng(seed).choice(total, wanted, replace=False))
    starts = np.cumsum([0, *counts])
    cuts = np.searchsorted(places, starts)
    return [places[a:b] - start for a, b, start in zip(cuts, cuts[1:], starts, strict=False)]


def chosen(earlier: Sequence[Earlier], share: float, training: int, seed: int) -> list[np.ndarray]:
    """int64: the examples of earlier runs that are mixed in, of each run.

    Args:
        share: of all training examples that are to be earlier ones.
        training: examples that train besides.
    """
    kept = [each.kept() for each in earlier]
    places = drawn([len(units) for units in kept], share, training // earlier[0].unit, seed)
    return [
        (units[place, None] * each.unit + np.arange(each.unit)).reshape(-1)
        for each, units, place in zip(earlier, kept, places, strict=True)
    ]


def added(
    examples: Examples, earlier: Sequence[Earlier], rows: Sequence[np.ndarray], answers: str | None = None
) -> Examples:
    """The examples with some of each earlier run behind them.

    Args:
        answers: id column whose rows are the labels; None: labels are not rows.
    """
    for each, some in zip(earlier, rows, strict=True):
        if len(some):
            examples = _joined(examples, each, some)
    if answers is None:
        return examples
    return replace(examples, labels=examples.column(answers).astype(np.float32))


def spread(train: np.ndarray, first: int, last: int, seed: int) -> np.ndarray:
    """The training split, int64, with the examples from `first` up to `last` spread evenly in it, in any order."""
    new = np.random.default_rng((seed, 1)).permutation(np.arange(first, last))
    return np.insert(np.asarray(train), np.linspace(0, len(train), len(new), endpoint=False).astype(np.int64), new)


def _joined(examples: Examples, earlier: Earlier, rows: np.ndarray) -> Examples:
    theirs = earlier.examples
    ids = np.stack([earlier.now[name][theirs.column(name, rows)] for name in examples.id_columns], axis=1)
    lists = {
        name: _joined_lists(column, theirs.lists[name], earlier.now[name], rows)
        for name, column in examples.lists.items()
    }
    return replace(
        examples,
        count=examples.count + len(rows),
        ids=np.concatenate([examples.ids, ids.astype(examples.ids.dtype)]),
        lists=lists,
        dense=np.concatenate([examples.dense, theirs.dense[rows]]),
        labels=_behind(examples.labels, theirs.labels, rows),
        example_weights=_behind(examples.example_weights, theirs.example_weights, rows),
        codes={},
        key="",
    )


def _behind(mine: np.ndarray | None, theirs: np.ndarray | None, rows: np.ndarray) -> np.ndarray | None:
    return None if mine is None or theirs is None else np.concatenate([mine, theirs[rows]])


def _joined_lists(mine: ListColumn, theirs: ListColumn, now: np.ndarray, rows: np.ndarray) -> ListColumn:
    """Lists, without values that have no row any more."""
    places, ends = theirs.taken(rows)
    values = now[theirs.values[places]]
    stay = values >= 0
    ends = np.concatenate([[0], np.cumsum(stay)])[ends]
    values = values[stay].astype(mine.values.dtype)
    return ListColumn(np.concatenate([mine.values, values]), np.concatenate([mine.splits, mine.splits[-1] + ends[1:]]))
