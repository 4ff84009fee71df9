"""Intervals of the metrics of labels, and the confusion of classes: what the last evaluation looks at closer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from embexp.fields.columns import class_metrics
from embexp.fields.columns.metrics import Measures, checked
from embexp.specs import tasks as metric_specs
from embexp.specs.tasks import Task
from embexp.training.intervals import MOST, Interval, Progress, bootstrap, unheard

_CELLS = 1 << 19
"""Logits that a resample computes metrics of."""
MOST_CLASSES = 30
"""Classes whose confusion is recorded."""


def of_examples(
    task: Task,
    labels: np.ndarray,
    logits: np.ndarray,
    measures: Measures,
    seed: int,
    progress: Progress = unheard,
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
    found = bootstrap(measured, order[drawn], len(y), generator, progress)
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

    return found | bootstrap(over_groups, chosen, groups, generator, progress)


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
