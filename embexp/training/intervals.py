"""Intervals of metrics, by the bootstrap.

Examples are drawn again with Poisson(1) counts, which weigh them (Hanley & MacGibbon 2006), users, queries and groups
as a whole. An interval of 95% goes from the 2.5th to the 97.5th percentile of `RESAMPLES` such metrics, and is moved
so that their mean stands at the metric: some, such as a calibration error, are larger in every resample.

Of more than `MOST` examples that many are drawn once without repetition, and deviations shrink by the root of the
share, as the error of a mean does ("m out of n", Bickel, Götze & van Zwet 1997). So the time is bounded by a few
seconds, whatever the number of examples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

import numpy as np

RESAMPLES = 200
MOST = 25_000
_LEVEL = (2.5, 97.5)

Interval = list[float]
Measured = Callable[[np.ndarray, np.ndarray], Mapping[str, float]]
"""From rows, and how often each counts, to metrics."""
OfCounts = Callable[[np.ndarray], Mapping[str, float]]
"""From how often each of some rows counts to metrics."""
Progress = Callable[[float], object]
"""Called with the share of the resamples that is done, 0 to 1."""


def unheard(done: float) -> None:
    """Shows nothing."""


@dataclass(frozen=True)
class Drawn:
    """What a bootstrap draws again.

    Attributes:
        measured: the metrics of some rows of `count`.
        order: int64 [count], the rows in the order in which they are measured fastest; None: it does not matter.
        names: int64 [count], rising: what tells a row, such as a user, from those of another evaluation; None: its
            place does.
    """

    measured: Measured
    count: int
    order: np.ndarray | None = None
    names: np.ndarray | None = None

    @property
    def metrics(self) -> Mapping[str, float]:
        """Those of all rows."""
        return self.of_some(np.arange(self.count))(np.ones(self.count, np.int64))

    def only(self, names: np.ndarray) -> Drawn:
        """The rows of some names, which it has; their order must not matter."""
        assert self.names is not None
        assert self.order is None
        places = np.searchsorted(self.names, names)
        return Drawn(lambda rows, counts: self.measured(places[rows], counts), len(places), names=names)

    def of_some(self, some: np.ndarray) -> Callable[[np.ndarray], Mapping[str, float]]:
        """Measures some rows, int64, rising, by how often each counts, int64 [rows]."""
        if self.order is None:
            return partial(self.measured, some)
        chosen: np.ndarray = np.zeros(self.count, np.bool_)
        chosen[some] = True
        rows = self.order[chosen[self.order]]
        places = np.searchsorted(some, rows)
        return lambda counts: self.measured(rows, counts[places])


class Intervals(dict[str, Interval]):
    """Intervals of metrics by name, or how far their ends are from the metrics.

    Attributes:
        drawn: what they were computed of, for comparisons of pairs.
    """

    drawn: tuple[Drawn, ...] = ()

    @classmethod
    def of(cls, found: Mapping[str, Interval], *drawn: Drawn) -> Intervals:
        """Intervals of something that was drawn."""
        made = cls(found)
        made.drawn = drawn
        return made

    def with_others(self, others: Intervals) -> Intervals:
        """These, and those of further metrics."""
        return Intervals.of({**self, **others}, *self.drawn, *others.drawn)


def bootstrap(
    measured: Measured,
    rows: np.ndarray,
    count: int,
    generator: np.random.Generator,
    progress: Progress = unheard,
    *,
    order: np.ndarray | None = None,
    names: np.ndarray | None = None,
) -> Intervals:
    """Deviations of the metrics of resamples from their mean, at both ends; none inside `drawn_later`.

    Args:
        rows: those that are drawn again, of `count`.
        order: see `Drawn`.
        names: see `Drawn`.
    """
    drawn = Drawn(measured, count, order, names)
    if _LATER.get():
        return Intervals.of({}, drawn)
    samples: dict[str, list[float]] = {}
    for done in range(RESAMPLES):
        progress(done / RESAMPLES)
        for name, value in measured(rows, generator.poisson(1.0, len(rows))).items():
            samples.setdefault(name, []).append(value)
    shrink = np.sqrt(len(rows) / count)
    found = {}
    for name, values in samples.items():
        if len(values) > RESAMPLES // 2:  # it is undefined in resamples of a single class
            low, high = (np.percentile(values, _LEVEL) - np.mean(values)) * shrink
            found[name] = [float(low), float(high)]
    return Intervals.of(found, drawn)


_LATER = ContextVar("drawn later", default=False)


@contextmanager
def drawn_later() -> Iterator[None]:
    """Within the block, nothing is drawn: intervals are those of no metric, and can be compared."""
    token = _LATER.set(True)
    try:
        yield
    finally:
        _LATER.reset(token)


def around(metrics: Mapping[str, float], deviations: Mapping[str, Sequence[float]]) -> Intervals:
    """Intervals around metrics, of those that have both."""
    found = {
        name: [metrics[name] + ends[0], metrics[name] + ends[1]] for name, ends in deviations.items() if name in metrics
    }
    return Intervals.of(found, *getattr(deviations, "drawn", ()))


Pairs = tuple[tuple[Drawn, ...], tuple[Drawn, ...]]


def pairs(before: Sequence[Drawn], after: Sequence[Drawn]) -> Pairs | None:
    """Two evaluations on the rows of both, such as the users whom both models know; None: there are none."""
    found = []
    for then, now in zip(before, after, strict=True):
        if then.names is None or now.names is None:
            if then.count != now.count:
                return None
        elif not np.array_equal(then.names, now.names):
            names = np.intersect1d(then.names, now.names, assume_unique=True)
            if not len(names):
                return None
            then, now = then.only(names), now.only(names)
        found.append((then, now))
    return tuple(then for then, _ in found), tuple(now for _, now in found)


def differences(
    before: Sequence[Drawn], after: Sequence[Drawn], seed: int, progress: Progress = unheard
) -> dict[str, Interval]:
    """How far the ends of the interval of a metric's difference, after less before, are from it.

    Both are measured of the same resamples of the same rows, so what makes a row hard for both cancels.

    Args:
        before: of the evaluation of a model.
        after: of that of another model, on the same rows in the same order.

    Raises:
        ValueError: they are not of as many rows; see `pairs`.
    """
    if [each.count for each in before] != [each.count for each in after]:
        raise ValueError("pairs are of the same rows")
    found: dict[str, Interval] = {}
    for mine, theirs in zip(after, before, strict=True):
        generator, rows = np.random.default_rng(seed), np.arange(mine.count)
        some = np.sort(generator.choice(rows, MOST, replace=False)) if len(rows) > MOST else rows

        then, now = theirs.of_some(some), mine.of_some(some)

        def measured(
            rows: np.ndarray, counts: np.ndarray, then: OfCounts = then, now: OfCounts = now
        ) -> Mapping[str, float]:
            first, second = then(counts), now(counts)
            return {name: second[name] - first[name] for name in second if name in first}

        found |= bootstrap(measured, some, mine.count, generator, progress)
    return found
