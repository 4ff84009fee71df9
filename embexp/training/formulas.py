"""The formulas of metrics, computed exactly: NumPy, float64, over all examples at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_CELLS = 1 << 20
"""Logits that are converted to float64 at a time."""


def rmse(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Root of the mean squared error."""
    y, z = vectors(labels, predictions)
    return float(np.sqrt(np.mean((z - y) ** 2)))


def mae(labels: ArrayLike, predictions: ArrayLike) -> float:
    """Mean absolute error."""
    y, z = vectors(labels, predictions)
    return float(np.mean(np.abs(z - y)))


def log_loss(labels: ArrayLike, logits: ArrayLike) -> float:
    """Mean of -y log p - (1 - y) log(1 - p) with p = sigmoid(logit), in nats; stable for any finite logit."""
    y, z = vectors(labels, logits)
    # max(z, 0) - z y + log(1 + e^-|z|), arranged so that the first two don't cancel where y = 1 and z is large.
    return float(np.mean(np.maximum(z, 0) * (1 - y) - np.minimum(z, 0) * y + np.log1p(np.exp(-np.abs(z)))))


def auc(labels: ArrayLike, scores: ArrayLike) -> float:
    """Probability that a positive scores higher than a negative, ties counting half (Mann & Whitney 1947).

    Counted in integers, in O(N log N).

    Raises:
        ValueError: all labels are of one class.
    """
    y, scores = vectors(labels, scores)
    _, tie = np.unique(scores, return_inverse=True)
    positives = np.bincount(tie, weights=y).astype(np.int64)
    negatives = np.bincount(tie).astype(np.int64) - positives
    pairs = int(positives.sum()) * int(negatives.sum())
    if pairs == 0:
        raise ValueError("AUC compares two classes, and there is only one")
    below = np.cumsum(negatives) - negatives
    wins_twice = int(np.sum(positives * (2 * below + negatives)))
    return wins_twice / (2 * pairs)


def softmax_log_loss(labels: ArrayLike, logits: ArrayLike) -> float:
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
    return float(np.mean(losses))


def macro_f1(labels: ArrayLike, predicted: ArrayLike) -> float:
    """Mean over the classes of F1 = 2 TP / (2 TP + FP + FN) (van Rijsbergen 1979, with equal weights).

    A class that is neither a label nor a prediction anywhere has no F1 and is ignored, as by scikit-learn's
    `f1_score` with `average="macro"`.

    Args:
        labels: class numbers [N].
        predicted: class numbers [N].
    """
    y, z = np.asarray(labels, np.int64).reshape(-1), np.asarray(predicted, np.int64).reshape(-1)
    classes = int(max(y.max(), z.max())) + 1
    true_positives = np.bincount(y[y == z], minlength=classes)
    # 2 TP + FP + FN: every label and every prediction of the class.
    occurrences = np.bincount(y, minlength=classes) + np.bincount(z, minlength=classes)
    present = occurrences > 0
    return float(np.mean(2 * true_positives[present] / occurrences[present]))


def vectors(labels: ArrayLike, values: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
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
