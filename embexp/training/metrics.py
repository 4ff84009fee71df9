"""The metrics of each task, and the labels that it takes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from embexp.errors import DataError, DivergedError
from embexp.specs.models import Task
from embexp.training.formulas import auc, log_loss, macro_f1, mae, rmse, softmax_log_loss, vectors


def evaluate(task: Task, labels: ArrayLike, logits: ArrayLike) -> dict[str, float]:
    """All metrics of a task.

    Args:
        task: rating gives rmse, mae and loss (the mean squared error); click gives log_loss, auc and loss (the log
            loss again, under the name that all tasks share); classification gives accuracy, log_loss, macro_f1 and
            loss.
        labels: numbers [N]; 0 or 1 for click, 0 to C - 1 for classification.
        logits: numbers [N]; [N, C] for classification.

    Returns:
        The metrics in the order of `names`. auc is missing where it is undefined; `undefined` says why.

    Raises:
        DivergedError: a logit is not finite.
        DataError: a click label other than 0 and 1, or a class without a logit.
        ValueError: there are no examples, the lengths differ, or the task is ranking or recommendation, which
            `ranking` and `top_n` evaluate.
    """
    if task in (Task.RANKING, Task.RECOMMENDATION):
        raise ValueError("a rank depends on other items: use embexp.training.ranking or embexp.training.top_n")
    if task is Task.CLASSIFICATION:
        return _classification_metrics(labels, logits)
    y, z = vectors(labels, logits)
    _check_finite(z)
    match task:
        case Task.RATING:
            return {"rmse": rmse(y, z), "mae": mae(y, z), "loss": float(np.mean((z - y) ** 2))}
        case Task.CLICK:
            check_labels(task, y)
            loss = log_loss(y, z)
            ranking = {} if undefined(task, y) else {"auc": auc(y, z)}
            return {"log_loss": loss, **ranking, "loss": loss}


def _classification_metrics(labels: ArrayLike, logits: ArrayLike) -> dict[str, float]:
    y, z = np.asarray(labels).reshape(-1), np.asarray(logits)
    if z.ndim != 2 or len(z) != y.size:
        raise ValueError(f"{y.size} labels, but logits of shape {list(z.shape)}")
    if not y.size:
        raise ValueError("there is nothing to evaluate: no examples")
    _check_finite(z)
    check_labels(Task.CLASSIFICATION, y, classes=z.shape[1])
    y = y.astype(np.int64)
    predicted = z.argmax(axis=1)
    loss = softmax_log_loss(y, z)
    return {
        "accuracy": float(np.mean(predicted == y)),
        "log_loss": loss,
        "macro_f1": macro_f1(y, predicted),
        "loss": loss,
    }


def _check_finite(logits: np.ndarray) -> None:
    if wrong := int(np.count_nonzero(~np.isfinite(logits).reshape(len(logits), -1).all(axis=1))):
        raise DivergedError(
            f"{wrong:,} of {len(logits):,} predictions are not finite numbers: the training has diverged"
        )


def undefined(task: Task, labels: ArrayLike) -> dict[str, str]:
    """The task's metrics that are undefined for these labels, each with the reason."""
    y = np.asarray(labels)
    if task is Task.CLICK and y.size and np.all(y == y.flat[0]):
        return {"auc": f"all {y.size:,} labels are {y.flat[0]:g}, and AUC compares two classes"}
    return {}


def check_labels(task: Task, labels: np.ndarray, *, classes: int | None = None) -> None:
    """Checks that a task can be trained on these labels.

    Args:
        task: of the run.
        labels: of all examples, [N].
        classes: number of classes, for classification; None: one more than the largest label.

    Raises:
        DataError: it can't.
    """
    match task:
        # A ranking's labels are made with its data, and a threshold makes those of interactions.
        case Task.RATING | Task.RANKING | Task.RECOMMENDATION:
            return
        case Task.CLICK:
            wrong = labels[(labels != 0) & (labels != 1)]
            if wrong.size:
                raise DataError(
                    f"task click needs labels of 0 and 1, but {wrong.size:,} of {labels.size:,} are others, such as"
                    f" {wrong[0]:g}; set data.label_threshold, or task=rating"
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
    """The names of the classes by number; none for tasks other than classification.

    Args:
        task: of the run.
        labels: of all examples.
        named: the names in the source of data; without any, classes are named by their numbers.
    """
    if task is not Task.CLASSIFICATION or labels is None:
        return ()
    return tuple(named) or tuple(str(number) for number in range(int(labels.max()) + 1))
