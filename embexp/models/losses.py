"""The loss of each task. The training step adds the losses that a user's model adds with `add_loss`."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import tensorflow as tf

from embexp.specs.models import RankingLoss, Task

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""From labels, float32 [B], and logits, any float type [B] or [B, 1] ([B, C] for classes), to a float32 tensor."""


def mean_loss(task: Task) -> Loss:
    """The loss that training minimises: the mean of `per_example(task)` over the batch, a scalar."""
    loss = per_example(task)

    def mean(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(loss(labels, logits))

    return mean


def per_example(task: Task) -> Loss:
    """The loss of each example, [B].

    rating: (logit - label)^2. click: -label log p - (1 - label) log(1 - p) with p = sigmoid(logit), computed from the
    logit, so that it neither overflows nor loses digits. classification: -log p[label] with p = softmax(logits),
    computed from logits [B, C]; labels are the numbers of classes.
    """
    # Chosen here, not inside the loss: AutoGraph can't read `match` and would warn at every trace.
    match task:
        case Task.RATING:
            return _squared_error
        case Task.CLICK:
            return _log_loss
        case Task.CLASSIFICATION:
            return _softmax_log_loss
        case Task.RANKING:
            raise ValueError("the loss of task ranking is a setting of its model: use `ranking`")
        case Task.RECOMMENDATION:
            raise ValueError("the loss of task recommendation is a choice: use `recommendation_losses`")
        case _:
            assert_never(task)


def ranking(kind: RankingLoss, label_smoothing: float) -> Loss:
    """The loss of queries with candidates: the mean over the queries, a scalar.

    Args:
        kind: softmax: -sum over c of y[c] log p[c] with p = softmax(scores). binary: the mean over c of
            -y[c] log p[c] - (1 - y[c]) log(1 - p[c]) with p = sigmoid(scores).
        label_smoothing: e in y[c] = (1 - e) [c is the answer] + e / C (Szegedy et al. 2016).

    Returns:
        A function of labels, float32 [B], the answers' positions among the candidates, and scores, [B, C].
    """
    loss = _softmax_cross_entropy if kind is RankingLoss.SOFTMAX else _binary_cross_entropy

    def mean(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        scores = tf.cast(scores, tf.float32)
        if kind is RankingLoss.SOFTMAX and not label_smoothing:
            return tf.reduce_mean(_softmax_log_loss(labels, scores))  # needs no targets [B, C]
        candidates = tf.shape(scores)[1]
        share = label_smoothing / tf.cast(candidates, tf.float32)
        targets = tf.one_hot(tf.cast(labels, tf.int32), candidates, 1.0 - label_smoothing + share, share)
        return tf.reduce_mean(loss(targets, scores))

    return mean


def _squared_error(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.math.squared_difference(_like(labels, logits), labels)


def _log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=_like(labels, logits))


def _softmax_log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.int32), logits=tf.cast(logits, tf.float32)
    )


def _softmax_cross_entropy(targets: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=scores)


def _binary_cross_entropy(targets: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=scores), axis=1)


def _like(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    # [B, 1] against [B] would silently broadcast to [B, B].
    return tf.reshape(tf.cast(logits, tf.float32), tf.shape(labels))
