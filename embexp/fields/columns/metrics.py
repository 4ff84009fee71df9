"""Metrics of predicted labels, computed exactly, for a whole split; their intervals, and the confusion of classes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from embexp.data.examples import check_labels
from embexp.errors import DataError, DivergedError
from embexp.specs import tasks as metric_specs
from embexp.specs.tasks import Labels, Task
from embexp.training.intervals import MOST, Drawn, Intervals, Outcomes, Progress, bootstrap, unheard

if TYPE_CHECKING:
    from embexp.training.significance import Tested

_CELLS = 1 << 20
"""Number of logits that are converted to float64 at a time."""


@dataclass(frozen=True)
class Measures:
    """What is measured of some examples, in addition to the metrics of their task.

    Attributes:
        listed: keys of metrics of embexp that the config lists.
        weights: of the examples, float64 [N], none below 0; None: all count the same.
        groups: integers [N], of the examples, for metrics that are means over groups; None: there are none.
    """

    listed: Collection[str] = ()
    weights: np.ndarray | None = None
    groups: np.ndarray | None = None


NOTHING_MORE = Measures()


def evaluate(task: Task, labels: ArrayLike, logits: ArrayLike, measures: Measures = NOTHING_MORE) -> dict[str, float]:
    """All metrics of a task, and those that are listed.

    Args:
        task: regression gives rmse, mae and loss (the mean squared error); binary gives log_loss, auc and loss (the log
            loss again, under the name that all tasks share); classification gives accuracy, log_loss, macro_f1 and
            loss.
        labels: numbers [N]; 0 or 1 for binary, 0 to C - 1 for classification.
        logits: numbers [N]; [N, C] for classification.

    Returns:
        The metrics in the order of their names. auc is missing where it is undefined; `data.labels.undefined` says why.

    Raises:
        DivergedError: a logit is not finite.
        DataError: a binary label other than 0 and 1, a class without a logit, or weights that are all 0.
        ValueError: there are no examples, the lengths differ, or the task predicts no labels.
    """
    y, z = checked(task, labels, logits)
    weights = measures.weights
    if weights is not None and not weights.any():
        raise DataError(f"the weights of all {len(weights):,} examples are 0, so no example counts")
    return metric_specs.computed(task, "value", y, z, weights, listed=measures.listed, grouped=measures.groups)


def checked(task: Task, labels: ArrayLike, logits: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Labels and logits as the functions of metrics take them: float64 [N], or int64 [N] and [N, C].

    Raises:
        see `evaluate`.
    """
    if task.labels is Labels.CLASS:
        y, z = np.asarray(labels).reshape(-1), np.asarray(logits)
        if z.ndim != 2 or len(z) != y.size:
            raise ValueError(f"{y.size} labels, but logits of shape {list(z.shape)}")
        if not y.size:
            raise ValueError("there is nothing to evaluate: no examples")
    else:
        y, z = vector_metrics(labels, logits)
    _check_finite(z)
    check_labels(task, y, classes=z.shape[1] if task.labels is Labels.CLASS else None)
    return y.astype(np.int64) if task.labels is Labels.CLASS else y, z


def mean(values: np.ndarray, weights: np.ndarray | None) -> float:
    """The mean of values [N], weighted where there are weights [N], as by `numpy.average`."""
    # Not a dot product: BLAS starts all its threads for it, which takes milliseconds where other processes are at work.
    return float(np.mean(values)) if weights is None else float(np.sum(values * weights) / weights.sum())


def _check_finite(logits: np.ndarray) -> None:
    if wrong := int(np.count_nonzero(~np.isfinite(logits).reshape(len(logits), -1).all(axis=1))):
        raise DivergedError(f"{wrong:,} of {len(logits):,} predictions are not finite numbers: training has diverged")


def rmse(labels: ArrayLike, predictions: ArrayLike, weights: np.ndarray | None = None) -> float:
    """Root of the mean squared error."""
    return float(np.sqrt(squared_error(labels, predictions, weights)))


def squared_error(labels: ArrayLike, predictions: ArrayLike, weights: np.ndarray | None = None) -> float:
    """Mean squared error."""
    y, z = vector_metrics(labels, predictions)
    return mean((z - y) ** 2, weights)


def mae(labels: ArrayLike, predictions: ArrayLike, weights: np.ndarray | None = None) -> float:
    """Mean absolute error."""
    y, z = vector_metrics(labels, predictions)
    return mean(np.abs(z - y), weights)


def r2(labels: ArrayLike, predictions: ArrayLike, weights: np.ndarray | None = None) -> float | None:
    """1 - the squared error / that of the labels' mean (the coefficient of determination). None if all are equal."""
    y, z = vector_metrics(labels, predictions)
    variance = mean((y - mean(y, weights)) ** 2, weights)
    return None if variance == 0 else 1 - mean((z - y) ** 2, weights) / variance


def mape(labels: ArrayLike, predictions: ArrayLike, weights: np.ndarray | None = None) -> float:
    """Mean of |prediction - label| / |label|, a fraction, with 2^-52 where a label is 0, as by scikit-learn."""
    y, z = vector_metrics(labels, predictions)
    return mean(np.abs(z - y) / np.maximum(np.abs(y), np.finfo(np.float64).eps), weights)


def log_loss(labels: ArrayLike, logits: ArrayLike, weights: np.ndarray | None = None) -> float:
    """Mean of -y log p - (1 - y) log(1 - p) with p = sigmoid(logit), in nats; stable for any finite logit."""
    y, z = vector_metrics(labels, logits)
    # max(z, 0) - z y + log(1 + e^-|z|), arranged so that the first two don't cancel where y = 1 and z is large.
    return mean(np.maximum(z, 0) * (1 - y) - np.minimum(z, 0) * y + np.log1p(np.exp(-np.abs(z))), weights)


def auc(labels: ArrayLike, scores: ArrayLike, weights: np.ndarray | None = None) -> float | None:
    """Probability that a positive scores higher than a negative, ties counting half (Mann & Whitney 1947).

    Counted in integers, in O(N log N); with weights, each pair counts as the product of its two. None if all labels
    are of one class.
    """
    y, scores = vector_metrics(labels, scores)
    _, tie = np.unique(scores, return_inverse=True)
    if weights is not None:
        ones, zeros = np.bincount(tie, weights=y * weights), np.bincount(tie, weights=(1 - y) * weights)
        every = float(ones.sum() * zeros.sum())
        return float(np.sum(ones * (np.cumsum(zeros) - zeros / 2))) / every if every > 0 else None
    positives = np.bincount(tie, weights=y).astype(np.int64)
    negatives = np.bincount(tie).astype(np.int64) - positives
    pairs = int(positives.sum()) * int(negatives.sum())
    if pairs == 0:
        return None
    below = np.cumsum(negatives) - negatives
    wins_twice = int(np.sum(positives * (2 * below + negatives)))
    return wins_twice / (2 * pairs)


def softmax_log_loss(labels: ArrayLike, logits: ArrayLike, weights: np.ndarray | None = None) -> float:
    """Mean of -log p[label] with p = softmax(logits), in nats; labels int [N], logits [N, C]; stable if finite."""
    y, z = np.asarray(labels), np.asarray(logits)
    losses = np.empty(len(z), np.float64)
    rows = max(1, _CELLS // z.shape[1])
    for start in range(0, len(z), rows):
        # Relative to the label's own logit, whose term then is exactly 1, so that small losses keep their digits.
        block, own = z[start : start + rows].astype(np.float64), y[start : start + rows, None]
        block -= np.take_along_axis(block, own, axis=1)
        largest = np.maximum(block.max(axis=1), 0.0)
        np.put_along_axis(block, own, -np.inf, axis=1)
        others = np.exp(block - largest[:, None]).sum(axis=1)
        losses[start : start + rows] = np.where(
            largest == 0, np.log1p(others), largest + np.log(others + np.exp(-largest))
        )
    return mean(losses, weights)


def macro_f1_of_logits(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float:
    """`macro_f1` of the classes with the largest logits, [N, C]."""
    return macro_f1(labels, logits.argmax(axis=1), weights)


def macro_f1(labels: ArrayLike, predicted: ArrayLike, weights: np.ndarray | None = None) -> float:
    """Mean over the classes of F1 = 2 TP / (2 TP + FP + FN) (van Rijsbergen 1979, with equal weights).

    A class that is neither a label nor a prediction anywhere has no F1 and is ignored, as by scikit-learn's
    `f1_score` with `average="macro"`.

    Args:
        labels: class numbers [N].
        predicted: class numbers [N].
    """
    y, z = np.asarray(labels, np.int64).reshape(-1), np.asarray(predicted, np.int64).reshape(-1)
    classes = int(max(y.max(), z.max())) + 1
    of_right = None if weights is None else weights[y == z]
    true_positives = np.bincount(y[y == z], of_right, minlength=classes)
    # 2 TP + FP + FN: every label and every prediction of the class.
    occurrences = np.bincount(y, weights, minlength=classes) + np.bincount(z, weights, minlength=classes)
    present = occurrences > 0
    return float(np.mean(2 * true_positives[present] / occurrences[present]))


def vector_metrics(labels: ArrayLike, values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Both as float64 [N].

    Raises:
        ValueError: their lengths differ, or are 0.
    """
    y = np.asarray(labels, np.float64).reshape(-1)
    z = np.asarray(values, np.float64).reshape(-1)
    if y.size != z.size:
        raise ValueError(f"{y.size} labels, but {z.size} values")
    if not y.size:
        raise ValueError("there is nothing to evaluate: no examples")
    return y, z


def predicted(task: Task, logits: np.ndarray) -> np.ndarray:
    """What logits predict, float32: the label [N]; the probability of 1 [N]; or those of the classes [N, C]."""
    if task.labels is Labels.NUMBER:
        return logits
    z = logits.astype(np.float64)
    if task.labels is Labels.BINARY:
        return np.asarray(1 / (1 + np.exp(-z)), np.float32)
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)


BINS = 15
"""Bins of equal width of the calibration error, as in Guo et al. 2017."""


def predicted_classes(logits: np.ndarray) -> np.ndarray:
    """Of each example, int64 [N]."""
    return np.asarray(logits > 0 if logits.ndim == 1 else logits.argmax(axis=1), np.int64)


def confusion(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Examples, or the sums of their weights, by label (row) and predicted class (column): [C, C]."""
    classes = 2 if logits.ndim == 1 else logits.shape[1]
    cells = labels.astype(np.int64) * classes + predicted_classes(logits)
    return np.bincount(cells, weights, minlength=classes * classes).reshape(classes, classes)


def by_class(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Precision, recall and F1 of each class, float64 [C], from a `confusion`."""
    right, labelled, predicted = np.diag(counts), counts.sum(axis=1), counts.sum(axis=0)
    return _ratio(right, predicted), _ratio(right, labelled), _ratio(2 * right, labelled + predicted)


def accuracy(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Share of the examples whose class is predicted."""
    right = predicted_classes(logits) == labels
    return mean(right, weights)


def mcnemar_of_accuracies(labels: np.ndarray, before: np.ndarray, after: np.ndarray) -> Tested:
    """McNemar's exact test of two models, by their logits."""
    from embexp.training import significance  # which only comparisons need

    return significance.mcnemar(*(predicted_classes(each) == labels for each in (before, after)))


def balanced_accuracy(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The mean of the recalls of the classes that have examples (Brodersen et al. 2010)."""
    counts = confusion(labels, logits, weights)
    return float(np.mean(by_class(counts)[1][counts.sum(axis=1) > 0]))


def precision(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Of the examples that are predicted as 1, the share with label 1."""
    return float(by_class(confusion(labels, logits, weights))[0][1])


def recall(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Of the examples with label 1, the share that is predicted as 1."""
    return float(by_class(confusion(labels, logits, weights))[1][1])


def f1(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The harmonic mean of the precision and the recall of label 1."""
    return float(by_class(confusion(labels, logits, weights))[2][1])


def macro_precision(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The mean of the precisions of the classes that are a label or a prediction."""
    return _macro(confusion(labels, logits, weights), 0)


def macro_recall(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float:
    """The mean of the recalls of the classes that are a label or a prediction."""
    return _macro(confusion(labels, logits, weights), 1)


def pr_auc(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float | None:
    """Average precision: the sum of (R[n] - R[n - 1]) P[n] over the distinct scores from the highest on.

    P and R are precision and recall with the score as threshold. No interpolation, as `average_precision_score` of
    scikit-learn. None if all labels are of one class.
    """
    _, tie = np.unique(-logits, return_inverse=True)
    own = np.ones(len(labels)) if weights is None else weights
    ones, every = np.bincount(tie, own * labels), np.bincount(tie, own)
    total, positives = float(every.sum()), float(ones.sum())
    if not 0 < positives < total:
        return None
    above = np.cumsum(every)
    return float(np.sum(ones * _ratio(np.cumsum(ones), above))) / positives


def brier(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Mean squared difference of probabilities and labels (Brier 1950): of label 1, or the sum over all classes."""
    found = probabilities(logits)
    if logits.ndim == 1:
        return mean((found - labels) ** 2, weights)
    own = np.take_along_axis(found, labels[:, None].astype(np.int64), 1)[:, 0]
    return mean((found**2).sum(axis=1) - 2 * own + 1, weights)


def calibration_error(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Expected calibration error: the mean over bins of |share - probability| (Naeini et al. 2015).

    Binary: the share of label 1 and its mean probability. Classification: the accuracy and the mean probability of the
    predicted class (Guo et al. 2017).
    """
    found = probabilities(logits)
    right = labels if logits.ndim == 1 else found.argmax(axis=1) == labels
    sure = found if logits.ndim == 1 else found.max(axis=1)
    place = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    own = np.ones(len(labels)) if weights is None else weights
    return float(np.abs(np.bincount(place, own * (right - sure))).sum() / own.sum())


def grouped_auc(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None, groups: np.ndarray) -> float | None:
    """The mean of the AUC within each group that has both labels, weighted by its examples (Zhu et al. 2017, GAUC).

    Args:
        groups: integers [N].

    Returns:
        None if no group has both labels.
    """
    own = np.ones(len(labels)) if weights is None else weights
    order = np.lexsort((logits, groups))
    group, score, ones, every = groups[order], logits[order], (own * labels)[order], own[order]
    starts = np.r_[True, group[1:] != group[:-1]]
    tie = np.cumsum(starts | np.r_[True, score[1:] != score[:-1]]) - 1
    of_tie = (np.cumsum(starts) - 1)[np.r_[True, tie[1:] != tie[:-1]]]
    positives, negatives = np.bincount(tie, ones), np.bincount(tie, every - ones)
    ones_of, zeros_of = np.bincount(of_tie, positives), np.bincount(of_tie, negatives)
    before = np.cumsum(zeros_of) - zeros_of
    below = np.cumsum(negatives) - negatives / 2 - before[of_tie]
    wins, pairs = np.bincount(of_tie, positives * below), ones_of * zeros_of
    both = pairs > 0
    if not both.any():
        return None
    return mean(wins[both] / pairs[both], (ones_of + zeros_of)[both])


def probabilities(logits: np.ndarray) -> np.ndarray:
    """Of label 1, float64 [N], or of the classes, [N, C]."""
    z = logits.astype(np.float64)
    if z.ndim == 1:
        powers = np.exp(-np.abs(z))
        return np.asarray(np.where(z >= 0, 1, powers) / (1 + powers))
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def _macro(counts: np.ndarray, which: int) -> float:
    present = (counts.sum(axis=0) + counts.sum(axis=1)) > 0
    return float(np.mean(by_class(counts)[which][present]))


def _ratio(part: Any, whole: Any) -> np.ndarray:
    return np.asarray(np.divide(part, whole, out=np.zeros(len(whole)), where=whole > 0))


_RESAMPLED_CELLS = 1 << 19
"""Number of logits in a resample."""
MOST_CLASSES = 30
"""Classes whose confusion is recorded."""


def intervals_of_examples(
    task: Task,
    labels: np.ndarray,
    logits: np.ndarray,
    measures: Measures,
    seed: int,
    progress: Progress = unheard,
    *,
    rows: np.ndarray | None = None,
    without: Collection[str] = (),
) -> Intervals:
    """Intervals of the metrics of `metrics.evaluate`, by name: how far both ends are from the metric; see `around`.

    Those of metrics that are means over groups are of groups drawn again.

    Args:
        rows: int64 [N], which examples they are; None: nobody asks.
        without: names of metrics that are left out.
    """
    y, z = checked(task, labels, logits)
    order = np.argsort(z, kind="stable") if z.ndim == 1 else np.arange(len(z))  # sorted scores are ranked faster
    own = np.ones(len(y)) if measures.weights is None else measures.weights
    generator = np.random.default_rng(seed)

    def measured(rows: np.ndarray, counts: np.ndarray) -> dict[str, float]:
        weights = own[rows] * counts
        if not weights.any():
            return {}
        found = metric_specs.computed(task, "value", y[rows], z[rows], weights, listed=measures.listed)
        return {name: value for name, value in found.items() if name not in without}

    most = min(MOST, max(1000, _RESAMPLED_CELLS // (1 if z.ndim == 1 else z.shape[1])))
    some = np.sort(generator.choice(len(y), most, replace=False)) if len(y) > most else np.arange(len(y))
    kept = None
    if rows is not None:
        shown = partial(predicted, task)
        kept = Outcomes(rows, z, "prediction", shown, y, equal_weights=measures.weights is None)
    drawn = Drawn(measured, len(y), order, most=most, outcomes=kept)
    found = bootstrap(drawn, order[some], generator, progress)
    if measures.groups is None:
        return found
    _, group = np.unique(measures.groups, return_inverse=True)
    groups = int(group.max()) + 1
    chosen = np.arange(groups)
    if len(y) > most:
        shuffled = generator.permutation(groups)
        chosen = shuffled[: max(2, np.searchsorted(np.cumsum(np.bincount(group)[shuffled]), most))]
    names = [name for name, metric, _ in task.named_metrics((), measures.listed) if metric.grouped]
    last, used = chosen, order[np.isin(group[order], chosen)]

    def over_groups(some: np.ndarray, counts: np.ndarray) -> dict[str, float]:
        nonlocal last, used
        if some is not last:  # all resamples have the same groups, so their rows are found once
            last, used = some, order[np.isin(group[order], some)]
        times = np.zeros(groups)
        times[some] = counts
        weights = own[used] * times[group[used]]
        every = metric_specs.computed(
            task, "value", y[used], z[used], weights, listed=measures.listed, grouped=group[used]
        )
        return {name: every[name] for name in names if name in every}

    by_group = Drawn(over_groups, groups, unit="groups", most=len(chosen))
    return found.with_others(bootstrap(by_group, chosen, generator, progress))


def confusion_by_name(
    labels: np.ndarray, logits: np.ndarray, measures: Measures, names: Sequence[str]
) -> dict[str, Any]:
    """Of classes, no more than `MOST_CLASSES`: the confusion, and precision, recall, F1 and examples of each by name.

    Args:
        names: of the classes; empty: their numbers.
    """
    classes = 2 if logits.ndim == 1 else logits.shape[1]
    if classes > MOST_CLASSES:
        return {}
    counts = confusion(labels, logits, measures.weights)
    columns = (*by_class(counts), counts.sum(axis=1))
    known = tuple(names) or tuple(map(str, range(classes)))
    keys = ("precision", "recall", "f1", "examples" if measures.weights is None else "weight")
    each = {
        name: dict(zip(keys, (column[number].item() for column in columns), strict=True))
        for number, name in enumerate(known)
    }
    return {"confusion": counts.tolist(), "classes": each}
