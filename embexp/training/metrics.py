"""The metrics of each task, computed exactly, for a whole split; and the labels that a task takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from embexp.errors import DataError, DivergedError
from embexp.specs import metrics as metric_specs
from embexp.specs.models import Task
from embexp.training import ranking
from embexp.training.loop import Predictor
from embexp.training.ranking import Queries

_CELLS = 1 << 20
"""Logits that are converted to float64 at a time."""


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
        The metrics in the order of their names. auc is missing where it is undefined; `undefined` says why.

    Raises:
        DivergedError: a logit is not finite.
        DataError: a binary label other than 0 and 1, a class without a logit, or weights that are all 0.
        ValueError: there are no examples, the lengths differ, or the task is ranking or recommendation, which
            `ranking` evaluates.
    """
    y, z = checked(task, labels, logits)
    weights = measures.weights
    if weights is not None and not weights.any():
        raise DataError(f"the weights of all {len(weights):,} examples are 0: nothing counts")
    return metric_specs.computed(task, "value", y, z, weights, listed=measures.listed, grouped=measures.groups)


def checked(task: Task, labels: ArrayLike, logits: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Labels and logits as the functions of metrics take them: float64 [N], or int64 [N] and [N, C].

    Raises:
        see `evaluate`.
    """
    if task in (Task.RANKING, Task.RECOMMENDATION):
        raise ValueError("a rank depends on other items: use embexp.training.ranking")
    if task is Task.CLASSIFICATION:
        y, z = np.asarray(labels).reshape(-1), np.asarray(logits)
        if z.ndim != 2 or len(z) != y.size:
            raise ValueError(f"{y.size} labels, but logits of shape {list(z.shape)}")
        if not y.size:
            raise ValueError("there is nothing to evaluate: no examples")
    else:
        y, z = vector_metrics(labels, logits)
    _check_finite(z)
    check_labels(task, y, classes=z.shape[1] if task is Task.CLASSIFICATION else None)
    return y.astype(np.int64) if task is Task.CLASSIFICATION else y, z


def mean(values: np.ndarray, weights: np.ndarray | None) -> float:
    """The mean of values [N], weighted where there are weights [N], as by `numpy.average`."""
    # Not a dot product: BLAS starts all its threads for it, which takes milliseconds where other processes are at work.
    return float(np.mean(values)) if weights is None else float(np.sum(values * weights) / weights.sum())


def _check_finite(logits: np.ndarray) -> None:
    if wrong := int(np.count_nonzero(~np.isfinite(logits).reshape(len(logits), -1).all(axis=1))):
        raise DivergedError(
            f"{wrong:,} of {len(logits):,} predictions are not finite numbers: the training has diverged"
        )


def undefined(task: Task, labels: ArrayLike, listed: Collection[str] = ()) -> dict[str, str]:
    """The task's metrics that are undefined for these labels, each with the reason.

    Args:
        listed: see `Measures`.
    """
    y = np.asarray(labels)
    if not y.size or np.any(y != y.flat[0]):
        return {}
    reason = f"all {y.size:,} labels are {y.flat[0]:g}, and"
    names = [name for name, metric, _ in metric_specs.named(task, listed=listed) if metric.both_classes]
    return {name: f"{reason} {name.upper()} compares two classes" for name in names}


def check_labels(task: Task, labels: np.ndarray, *, classes: int | None = None) -> None:
    """Checks that a task can be trained on these labels.

    Args:
        labels: of all examples, [N].
        classes: number of classes, for classification; None: one more than the largest label.

    Raises:
        DataError: it can't.
    """
    match task:
        # A ranking's labels are made with its data, and a threshold makes those of interactions.
        case Task.REGRESSION | Task.RANKING | Task.RECOMMENDATION:
            return
        case Task.BINARY:
            wrong = labels[(labels != 0) & (labels != 1)]
            if wrong.size:
                raise DataError(
                    f"task binary needs labels of 0 and 1, but {wrong.size:,} of {labels.size:,} are others, such as"
                    f" {wrong[0]:g}; set data.positive to the value that is 1, data.label_threshold, or task=regression"
                )
        case Task.CLASSIFICATION:
            # A label as large as the number of examples is a mistake, not the number of a class.
            count = labels.size if classes is None else classes
            wrong = labels[~((labels >= 0) & (labels < count) & (labels == np.floor(labels)))]
            if wrong.size:
                last = "" if classes is None else f" to {classes - 1}"
                raise DataError(
                    f"task classification needs the numbers of classes as labels, 0, 1, 2, …{last}, but {wrong.size:,}"
                    f" of {labels.size:,} are others, such as {wrong[0]:g}"
                )
            if (labels.max() if classes is None else classes - 1) < 1:
                raise DataError("task classification needs two classes to tell apart, but there is only one")


def class_names(task: Task, labels: np.ndarray | None, named: Sequence[str]) -> tuple[str, ...]:
    """The names of the classes by label; of task binary, if the data names them; none for other tasks.

    Args:
        named: the names in the source of data; without any, those of classification are named by their numbers.
    """
    if task is Task.BINARY:
        return tuple(named)
    if task is not Task.CLASSIFICATION or labels is None:
        return ()
    return tuple(named) or tuple(str(number) for number in range(int(labels.max()) + 1))


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


def accuracy(labels: np.ndarray, logits: np.ndarray, weights: np.ndarray | None = None) -> float:
    """Share of the examples whose class has the largest logit; logits [N, C]."""
    right = logits.argmax(axis=1) == labels
    return mean(right, weights)


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


def predictions(runtime: Predictor, batches: Iterable[Any], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels and logits of the first `count` examples, float32 [count], the logits of C classes [count, C].

    All are in memory at once. Any examples of the last batch beyond `count` are padding and dropped.
    """
    labels, logits = [], []
    for batch_labels, batch_logits in runtime.predict(batches):
        labels.append(batch_labels)
        logits.append(batch_logits)
    return np.concatenate(labels)[:count], np.concatenate(logits)[:count]


def predicted(task: Task, logits: np.ndarray) -> np.ndarray:
    """What logits predict, float32: the label [N]; the probability of 1 [N]; or those of the classes [N, C]."""
    if task is Task.REGRESSION:
        return logits
    z = logits.astype(np.float64)
    if task is Task.BINARY:
        return np.asarray(1 / (1 + np.exp(-z)), np.float32)
    powers = np.exp(z - z.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)


def evaluate_split(
    task: Task,
    runtime: Predictor,
    batches: Iterable[Any],
    count: int,
    queries: Queries | None = None,
    own: Callable[[np.ndarray, np.ndarray], dict[str, float]] | None = None,
    measures: Measures = NOTHING_MORE,
    closer: Callable[[np.ndarray, np.ndarray], None] | None = None,
) -> dict[str, float]:
    """Metrics of a task over the first `count` examples.

    Args:
        queries: for task ranking.
        own: further metrics of labels and logits, or others under the same names.
        closer: is called with labels and logits, or with ranks, which it may look at closer.
    """
    if queries is not None:
        ranks = ranking.ranks_of_queries(runtime.predict(batches), queries)
        if closer is not None:
            closer(ranks, queries.predict_head)
        return ranking.metrics(ranks, queries.predict_head)
    labels, logits = predictions(runtime, batches, count)
    found = evaluate(task, labels, logits, measures)
    if closer is not None:
        closer(labels, logits)
    return found if own is None else found | own(labels, logits)
