"""Metrics of predicted classes and of probabilities, for tasks binary and classification: those that a config lists.

All take labels [N], logits [N] (binary) or [N, C] (classification), and weights of the examples, float64 [N] or None,
which count as `sample_weight` does in scikit-learn. A predicted class is the one with the largest probability; of task
binary it is 1 above 0.5. Ratios whose denominator is 0 are 0, as scikit-learn has them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from embexp.fields.columns.metrics import mean

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
