"""Intervals of metrics, by the bootstrap.

Examples are drawn again with Poisson(1) counts, which weigh them (Hanley & MacGibbon 2006), users, queries and groups
as a whole. An interval of 95% goes from the 2.5th to the 97.5th percentile of `RESAMPLES` such metrics, and is moved
so that their mean stands at the metric: some, such as a calibration error, are larger in every resample.

Of more than `MOST` examples that many are drawn once without repetition, and deviations shrink by the root of the
share, as the error of a mean does ("m out of n", Bickel, Götze & van Zwet 1997). So the time is bounded by a few
seconds, whatever the number of examples.

The draws follow from a seed and the number of rows alone. So two models that are measured of the same rows are measured
of the same resamples, and what makes a row hard for both cancels in their difference.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
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
class Outcomes:
    """What a model gave for each of the rows that a bootstrap draws again.

    Attributes:
        rows: int64 [N], the example that each row is, or by which it is known.
        values: [N] or [N, C]: logits, ranks, or a metric of users.
        name: of the numbers that `shown` makes of them.
        shown: from some values to the numbers that people compare, [n] or [n, C].
        labels: [N]; None: there are none.
        columns: id columns whose values tell the rows apart; None: all.
        equal_weights: whether all rows count the same, as exact tests of pairs need.
    """

    rows: np.ndarray
    values: np.ndarray
    name: str
    shown: Callable[[np.ndarray], np.ndarray] = np.asarray
    labels: np.ndarray | None = None
    columns: tuple[str, ...] | None = None
    equal_weights: bool = True


@dataclass(frozen=True)
class Drawn:
    """What a bootstrap draws again.

    Attributes:
        measured: the metrics of some rows of `count`.
        order: int64 [count], the rows in the order in which they are measured fastest; None: it does not matter.
        unit: what the rows are, in the plural.
        per_row: examples in a row, where rows are as large.
        most: rows beyond which so many are drawn once.
        outcomes: of each row; None: they are not kept.
        names: int64 [count], rising: what tells a row, such as a user, from those of another evaluation; None: its
            place does.
    """

    measured: Measured
    count: int
    order: np.ndarray | None = None
    unit: str = "examples"
    per_row: int = 1
    most: int = MOST
    outcomes: Outcomes | None = None
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

        def measured(rows: np.ndarray, counts: np.ndarray) -> Mapping[str, float]:
            return self.measured(places[rows], counts)

        return replace(self, measured=measured, count=len(places), names=names, outcomes=None)

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
    drawn: Drawn, rows: np.ndarray, generator: np.random.Generator, progress: Progress = unheard
) -> Intervals:
    """Deviations of the metrics of resamples from their mean, at both ends; none inside `drawn_later`.

    Args:
        rows: those that are drawn again.
    """
    if _LATER.get():
        return Intervals.of({}, drawn)
    samples = _samples(partial(drawn.measured, rows), len(rows), generator, progress)
    return Intervals.of(_ends(samples, len(rows) / drawn.count), drawn)


def _samples(
    measured: OfCounts, count: int, generator: np.random.Generator, progress: Progress
) -> dict[str, np.ndarray]:
    """The metrics of resamples of so many rows, float64 [RESAMPLES] each; NaN if a metric is undefined."""
    samples: dict[str, np.ndarray] = {}
    for done in range(RESAMPLES):
        progress(done / RESAMPLES)
        for name, value in measured(generator.poisson(1.0, count)).items():
            samples.setdefault(name, np.full(RESAMPLES, np.nan))[done] = value
    return samples


def _ends(samples: Mapping[str, np.ndarray], share: float) -> dict[str, Interval]:
    """The distances of the ends of the intervals from the metrics.

    Args:
        share: share of the rows that were resampled.
    """
    found = {}
    for name, values in samples.items():
        if len(known := values[~np.isnan(values)]) > RESAMPLES // 2:  # undefined in resamples of a single class
            low, high = (np.percentile(known, _LEVEL) - np.mean(known)) * np.sqrt(share)
            found[name] = [float(low), float(high)]
    return found


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


@dataclass(frozen=True)
class Resampled:
    """The metrics of resamples.

    Attributes:
        samples: by metric, float64 [RESAMPLES]; NaN where it is undefined.
        count: rows of the evaluation.
        share: share of the rows that were resampled.
        unit: what the rows are, in the plural; `per_row` examples each, where they are as large.
    """

    samples: Mapping[str, np.ndarray]
    count: int
    share: float
    unit: str
    per_row: int

    def less(self, other: Resampled) -> Resampled:
        """The differences to those of another model, of the same resamples."""
        common = {name: values - other.samples[name] for name, values in self.samples.items() if name in other.samples}
        return replace(self, samples=common)

    def ends(self) -> dict[str, Interval]:
        """How far the ends of the interval of a metric are from it."""
        return _ends(self.samples, self.share)

    def errors(self) -> dict[str, float]:
        """The standard errors of the metrics that have an interval.

        Of n rows, resamples vary by the share (n - 1) / n of the variance.
        """
        scale = np.sqrt(self.share * self.count / max(1, self.count - 1))
        return {name: float(np.nanstd(self.samples[name], ddof=1) * scale) for name in self.ends()}


def mean_of(several: Sequence[Resampled]) -> Resampled:
    """The means of the metrics of several models, of the same resamples."""
    common = {name: [each.samples[name] for each in several if name in each.samples] for name in several[0].samples}
    samples = {name: np.mean(values, axis=0) for name, values in common.items() if len(values) == len(several)}
    return replace(several[0], samples=samples)


def resampled(drawn: Drawn, seed: int, progress: Progress = unheard) -> Resampled:
    """Metrics of resamples, the same for all evaluations of as many rows."""
    generator, rows = np.random.default_rng(seed), np.arange(drawn.count)
    some = np.sort(generator.choice(rows, drawn.most, replace=False)) if len(rows) > drawn.most else rows
    samples = _samples(drawn.of_some(some), len(some), generator, progress)
    return Resampled(samples, drawn.count, len(some) / drawn.count, drawn.unit, drawn.per_row)


def differences(
    before: Sequence[Drawn], after: Sequence[Drawn], seed: int, progress: Progress = unheard
) -> dict[str, Interval]:
    """How far the ends of the interval of a metric's difference, after less before, are from it.

    Args:
        before: of the evaluation of a model.
        after: of that of another model, on the same rows in the same order.

    Raises:
        ValueError: they are not of as many rows; see `pairs`.
    """
    if [each.count for each in before] != [each.count for each in after]:
        raise ValueError("paired samples must be about the same rows")
    found: dict[str, Interval] = {}
    for mine, theirs in zip(after, before, strict=True):
        found |= resampled(mine, seed, progress).less(resampled(theirs, seed, progress)).ends()
    return found
