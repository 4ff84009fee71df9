"""Intervals of metrics, by the bootstrap; the confusion of classes: what the last evaluation of a run looks at closer.

Examples are drawn again with Poisson(1) counts, which weigh them (Hanley & MacGibbon 2006), users, queries and groups
as a whole. An interval of 95% goes from the 2.5th to the 97.5th percentile of `RESAMPLES` such metrics, and is moved
so that their mean stands at the metric: some, such as a calibration error, are larger in every resample.

Of more than `MOST` examples that many are drawn once without repetition, and deviations shrink by the root of the
share, as the error of a mean does ("m out of n", Bickel, Götze & van Zwet 1997). So the time is bounded by a few
seconds, whatever the number of examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from embexp.specs import metrics as metric_specs
from embexp.specs.models import Task
from embexp.training import class_metrics, ranking
from embexp.training.metrics import Measures, checked, mean

RESAMPLES = 200
MOST = 25_000
_CELLS = 1 << 19
"""Logits that a resample computes metrics of."""
_LEVEL = (2.5, 97.5)
MOST_CLASSES = 30
"""Classes whose confusion is recorded."""

Interval = list[float]
_Measured = Callable[[np.ndarray, np.ndarray], Mapping[str, float]]
"""From rows, and how often each counts, to metrics."""
Progress = Callable[[float], object]
"""Called with the share of the resamples that is done, 0 to 1."""


def _quiet(done: float) -> None:
    """Shows nothing."""


def of_examples(
    task: Task,
    labels: np.ndarray,
    logits: np.ndarray,
    measures: Measures,
    seed: int,
    progress: Progress = _quiet,
) -> dict[str, Interval]:
    """Intervals of the metrics of `metrics.evaluate`, by name: how far both ends are from the metric; see `around`.

    Those of metrics that are means over groups are of groups drawn again.
    """
    y, z = checked(task, labels, logits)
    order = np.argsort(z, kind="stable") if z.ndim == 1 else np.arange(len(z))  # sorted scores are ranked faster
    own = np.ones(len(y)) if measures.weights is None else measures.weights
    generator = np.random.default_rng(seed)

    def measured(rows: np.ndarray, counts: np.ndarray) -> dict[str, float]:
        weights = own[rows] * counts
        if not weights.any():
            return {}
        return metric_specs.computed(task, "value", y[rows], z[rows], weights, listed=measures.listed)

    most = min(MOST, max(1000, _CELLS // (1 if z.ndim == 1 else z.shape[1])))
    drawn = np.sort(generator.choice(len(y), most, replace=False)) if len(y) > most else np.arange(len(y))
    found = _bootstrap(measured, order[drawn], len(y), generator, progress)
    if measures.groups is None:
        return found
    _, group = np.unique(measures.groups, return_inverse=True)
    groups = int(group.max()) + 1
    chosen = np.arange(groups)
    if len(y) > most:
        shuffled = generator.permutation(groups)
        chosen = shuffled[: max(2, np.searchsorted(np.cumsum(np.bincount(group)[shuffled]), most))]
    rows = order[np.isin(group[order], chosen)]

    def over_groups(drawn: np.ndarray, counts: np.ndarray) -> dict[str, float]:
        times = np.zeros(groups)
        times[drawn] = counts
        weights = own[rows] * times[group[rows]]
        every = metric_specs.computed(
            task, "value", y[rows], z[rows], weights, listed=measures.listed, grouped=group[rows]
        )
        return {name: value for name, value in every.items() if name not in found}

    return found | _bootstrap(over_groups, chosen, groups, generator, progress)


def of_queries(
    ranks: np.ndarray, predict_head: np.ndarray, seed: int, progress: Progress = _quiet
) -> dict[str, Interval]:
    """Intervals of the metrics of `ranking.metrics`, by name; queries are drawn again."""
    generator = np.random.default_rng(seed)

    def measured(rows: np.ndarray, counts: np.ndarray) -> dict[str, float]:
        again = np.repeat(rows, counts)
        return ranking.metrics(ranks[again], predict_head[again]) if len(again) else {}

    rows = np.arange(len(ranks))
    drawn = np.sort(generator.choice(rows, MOST, replace=False)) if len(rows) > MOST else rows
    return _bootstrap(measured, drawn, len(rows), generator, progress)


def of_users(values: Mapping[str, np.ndarray], seed: int, progress: Progress = _quiet) -> dict[str, Interval]:
    """Intervals of metrics that are means over users; users are drawn again.

    Args:
        values: by name, of each user, float64 [N].
    """
    if not values:
        return {}
    generator, count = np.random.default_rng(seed), len(next(iter(values.values())))

    def measured(rows: np.ndarray, counts: np.ndarray) -> dict[str, float]:
        return {name: mean(each[rows], counts) for name, each in values.items()} if counts.any() else {}

    rows = np.arange(count)
    drawn = np.sort(generator.choice(rows, MOST, replace=False)) if count > MOST else rows
    return _bootstrap(measured, drawn, count, generator, progress)


def _bootstrap(
    measured: _Measured, rows: np.ndarray, count: int, generator: np.random.Generator, progress: Progress = _quiet
) -> dict[str, Interval]:
    """Deviations of the metrics of resamples from their mean, at both ends.

    Args:
        rows: those that are drawn again, of `count`.
    """
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
    return found


def around(metrics: Mapping[str, float], deviations: Mapping[str, Sequence[float]]) -> dict[str, Interval]:
    """Intervals around metrics, of those that have both."""
    return {
        name: [metrics[name] + ends[0], metrics[name] + ends[1]] for name, ends in deviations.items() if name in metrics
    }


def confusion(labels: np.ndarray, logits: np.ndarray, measures: Measures, names: Sequence[str]) -> dict[str, Any]:
    """Of classes, no more than `MOST_CLASSES`: the confusion, and precision, recall, F1 and examples of each by name.

    Args:
        names: of the classes; empty: their numbers.
    """
    classes = 2 if logits.ndim == 1 else logits.shape[1]
    if classes > MOST_CLASSES:
        return {}
    counts = class_metrics.confusion(labels, logits, measures.weights)
    columns = (*class_metrics.by_class(counts), counts.sum(axis=1))
    known = tuple(names) or tuple(map(str, range(classes)))
    keys = ("precision", "recall", "f1", "examples" if measures.weights is None else "weight")
    each = {
        name: dict(zip(keys, (column[number].item() for column in columns), strict=True))
        for number, name in enumerate(known)
    }
    return {"confusion": counts.tolist(), "classes": each}
