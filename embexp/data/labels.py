"""Labels that tasks take, the names of classes, and metrics that labels leave undefined."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import ArrayLike

from embexp.errors import DataError
from embexp.specs.tasks import Labels, Task


def undefined(task: Task, labels: ArrayLike, listed: Collection[str] = ()) -> dict[str, str]:
    """The task's metrics that are undefined for these labels, each with the reason.

    Args:
        listed: keys of metrics that the config lists.
    """
    y = np.asarray(labels)
    if not y.size or np.any(y != y.flat[0]):
        return {}
    reason = f"all {y.size:,} labels are {y.flat[0]:g}, and"
    names = [name for name, metric, _ in task.named_metrics(listed=listed) if metric.both_classes]
    return {name: f"{reason} {name.upper()} compares two classes" for name in names}


def check_labels(task: Task, labels: np.ndarray, *, classes: int | None = None) -> None:
    """Checks that a task can be trained on these labels.

    Args:
        labels: of all examples, [N].
        classes: number of classes, for classification; None: one more than the largest label.

    Raises:
        DataError: it can't.
    """
    match task.labels:
        # Where candidates are compared, labels are made with the data.
        case Labels.NUMBER | None:
            return
        case Labels.BINARY:
            wrong = labels[(labels != 0) & (labels != 1)]
            if wrong.size:
                raise DataError(
                    f"task binary needs labels of 0 and 1, but {wrong.size:,} of {labels.size:,} are others, such as"
                    f" {wrong[0]:g}; set data.positive to the value that is 1, data.label_threshold, or task=regression"
                )
        case Labels.CLASS:
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
    if task.labels is Labels.BINARY:
        return tuple(named)
    if task.labels is not Labels.CLASS or labels is None:
        return ()
    return tuple(named) or tuple(str(number) for number in range(int(labels.max()) + 1))
