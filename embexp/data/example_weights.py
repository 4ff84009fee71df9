"""How much each training example counts in the loss: its own weight times that of its class, 1 on average.

The loss of a batch is the mean over its examples of weight times loss. Its expectation is the weighted mean over the
training split, sum(w loss) / sum(w), as the weights are divided by their mean once, over the whole split. Divided by
their sum in each batch instead, an example would count more in the batches that happen to have light ones. And as the
mean is 1, steps are as long as without weights, whatever the unit of the weights.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from embexp.errors import ConfigError, DataError, Fault

_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class ExampleWeights:
    """The weights of the examples in training.

    Attributes:
        own: of all examples, float32 [N], which may be memory-mapped; None: all count the same.
        of_class: factors of the classes by label, float32 [C], by which the mean of all weights is 1; without classes
            the factor of all examples, [1].
        label_mean: the weighted mean of the labels of the training split.
    """

    own: np.ndarray | None
    of_class: np.ndarray
    label_mean: float


def fitted(
    labels: np.ndarray,
    rows: np.ndarray,
    own: np.ndarray | None,
    of_classes: Literal["balanced"] | Mapping[str, float] | None,
    classes: Sequence[str],
) -> ExampleWeights | None:
    """The weights by which a training split trains; None: all examples count the same.

    Args:
        labels: of all examples, float32 [N].
        rows: int64, the training split.
        own: weights of all examples, float32 [N]; None: there are none.
        of_classes: balanced: all classes of the training split count the same in total, n / (C n_c) as in scikit-learn,
            with the examples' own weights counted. By name: a class that is not there counts 1.
        classes: names of the classes by label; empty where labels have no classes.

    Raises:
        ConfigError: there is no class of a name.
        DataError: all weights are 0.
    """
    if own is None and of_classes is None:
        return None
    number = max(1, len(classes)) if of_classes is not None else 1
    sums, means = np.zeros(number), np.zeros(number)
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        place = labels[some].astype(np.int64) if number > 1 else np.zeros(len(some), np.int64)
        weights = np.ones(len(some)) if own is None else own[some].astype(np.float64)
        sums += np.bincount(place, weights, minlength=number)
        means += np.bincount(place, weights * labels[some], minlength=number)
    if isinstance(of_classes, str):
        factors = np.divide(1.0, sums, out=np.zeros(number), where=sums > 0)
    else:
        named = dict(of_classes or {})
        _check_names(named, classes)
        factors = np.array([named.get(name, 1.0) for name in classes]) if number > 1 else np.ones(1)
    total = float(factors @ sums)
    if total <= 0:
        raise DataError(f"the weights of all {len(rows):,} training examples are 0: see data.weight")
    return ExampleWeights(own, (factors * (len(rows) / total)).astype(np.float32), float(factors @ means) / total)


def check(weights: np.ndarray, rows: np.ndarray, split: str) -> None:
    """Checks that something of a split counts.

    Raises:
        DataError: all weights are 0.
    """
    if len(rows) and not any(weights[rows[at : at + _AT_ONCE]].any() for at in range(0, len(rows), _AT_ONCE)):
        raise DataError(f"the weights of all {len(rows):,} examples of the {split} split are 0: see data.weight")


def _check_names(named: Mapping[str, float], classes: Sequence[str]) -> None:
    faults = []
    for name in named:
        if name not in classes:
            near = difflib.get_close_matches(name, classes, n=1)
            rule = f"the classes of the data are {', '.join(classes[:20])}{', …' if len(classes) > 20 else ''}"
            faults.append(
                Fault(f"train.class_weights.{name}", repr(name), rule, f"did you mean {near[0]!r}?" if near else "")
            )
    if faults:
        raise ConfigError(faults)
