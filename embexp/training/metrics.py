"""Metrics of a task, computed exactly: NumPy, float64, over all examples at once."""

from __future__ import annotations

import difflib
from enum import StrEnum

import numpy as np
from numpy.typing import ArrayLike

from embexp.errors import ConfigError, DataError, DivergedError, Fault
from embexp.specs.models import Task


class Direction(StrEnum):
    """Which way a metric gets better."""

    LOWER = "lower"
    HIGHER = "higher"


DIRECTIONS = {
    "rmse": Direction.LOWER,
    "mae": Direction.LOWER,
    "log_loss": Direction.LOWER,
    "auc": Direction.HIGHER,
    "loss": Direction.LOWER,
}
"""Every metric that `evaluate` gives, and which way it gets better."""


def names(task: Task) -> tuple[str, ...]:
    """The metrics of a task; early stopping watches the first unless told otherwise."""
    match task:
        case Task.RATING:
            return ("rmse", "mae", "loss")
        case Task.CLICK:
            return ("log_loss", "auc", "loss")


def headline(task: Task) -> str:
    """The metric that a report names first."""
    match task:
        case Task.RATING:
            return "rmse"
        case Task.CLICK:
            return "auc"


def watched(task: Task, metric: str | None) -> str:
    """The metric that early stopping watches: `metric`, or the task's first if that is None.

    Raises:
        ConfigError: the task has no such metric.
    """
    known = names(task)
    if metric is None:
        return known[0]
    if metric not in known:
        near = difflib.get_close_matches(metric, known, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else ""
        rule = f"the metrics of task {task} are {', '.join(known)}"
        raise ConfigError([Fault("train.early_stopping.metric", repr(metric), rule, remedy)])
    return metric


def evaluate(task: Task, labels: ArrayLike, logits: ArrayLike) -> dict[str, float]:
    """All metrics of a task.

    Args:
        task: rating gives rmse, mae and loss (the mean squared error); click gives log_loss, auc and loss (the log
            loss once more, under the name that both tasks share).
        labels: numbers [N]; 0 or 1 for click.
        logits: numbers [N].

    Returns:
        The metrics in the order of `names`. auc is left out where it is undefined; `undefined` says why.

    Raises:
        DivergedError: a logit is not finite.
        DataError: a click label other than 0 and 1.
        ValueError: nothing to evaluate, or the lengths differ.
    """
    y, z = _vectors(labels, logits)
    if wrong := int(np.count_nonzero(~np.isfinite(z))):
        raise DivergedError(f"{wrong:,} of {z.size:,} predictions are not finite numbers: the training has diverged")
    match task:
        case Task.RATING:
            return {"rmse": rmse(y, z), "mae": mae(y, z), "loss": float(np.mean((z - y) ** 2))}
        case Task.CLICK:
            check_labels(task, y)
            loss = log_loss(y, z)
            ranking = {} if undefined(task, y) else {"auc": auc(y, z)}
            return {"log_loss": loss, **ranking, "loss": loss}


def undefined(task: Task, labels: ArrayLike) -> dict[str, str]:
    """Metrics of the task that these labels leave undefined, each with the reason."""
    y = np.asarray(labels)
    if task is Task.CLICK and y.size and np.all(y == y.flat[0]):
        return {"auc": f"all {y.size:,} labels are {y.flat[0]:g}, and AUC compares two classes"}
    return {}


def rmse(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Root of the mean squared error."""
    y, z = _vectors(labels, predictions)
    return float(np.sqrt(np.mean((z - y) ** 2)))


def mae(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Mean absolute error."""
    y, z = _vectors(labels, predictions)
    return float(np.mean(np.abs(z - y)))


def log_loss(labels: ArrayLike, logits: ArrayLike) -> float:
    """Mean of -y log p - (1 - y) log(1 - p) with p = sigmoid(logit), in nats; stable for any finite logit."""
    y, z = _vectors(labels, logits)
    # max(z, 0) - z y + log(1 + e^-|z|), arranged so that the first two don't cancel where y = 1 and z is large.
    return float(np.mean(np.maximum(z, 0) * (1 - y) - np.minimum(z, 0) * y + np.log1p(np.exp(-np.abs(z)))))


def auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Probability that a positive scores higher than a negative, ties counting half (Mann & Whitney 1947).

    Counted in whole numbers, in O(N log N).

    Raises:
        ValueError: only one class is there.
    """
    y, scores = _vectors(labels, scores)
    _, tie = np.unique(scores, return_inverse=True)
    positives = np.bincount(tie, weights=y).astype(np.int64)
    negatives = np.bincount(tie).astype(np.int64) - positives
    pairs = int(positives.sum()) * int(negatives.sum())
    if pairs == 0:
        raise ValueError("AUC compares two classes, and only one is there")
    below = np.cumsum(negatives) - negatives
    wins_twice = int(np.sum(positives * (2 * below + negatives)))
    return wins_twice / (2 * pairs)


def _vectors(labels: ArrayLike, values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    y = np.asarray(labels, np.float64).reshape(-1)
    z = np.asarray(values, np.float64).reshape(-1)
    if y.size != z.size:
        raise ValueError(f"{y.size} labels, but {z.size} values")
    if not y.size:
        raise ValueError("there is nothing to evaluate: no examples")
    return y, z


def check_labels(task: Task, labels: np.ndarray) -> None:
    """Raises DataError if labels [N] are none that the task can be trained on."""
    if task is not Task.CLICK:
        return
    wrong = labels[(labels != 0) & (labels != 1)]
    if wrong.size:
        raise DataError(
            f"task click needs labels of 0 and 1, but {wrong.size:,} of {labels.size:,} are others, such as"
            f" {wrong[0]:g}; set data.label_threshold, or task=rating"
        )
