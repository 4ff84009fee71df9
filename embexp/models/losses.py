"""The loss of each task. What a user's model adds with `add_loss` comes on top, in the training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import tensorflow as tf

from embexp.specs.models import RankingLoss, Task

Loss = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""From labels, float32 [B], and logits, any float type [B] or [B, 1] ([B, C] for classes), to a float32 tensor."""


def of(task: Task) -> Loss:
    """The loss that training makes small: the mean of `per_example(task)` over the batch, a scalar."""
    each = per_example(task)

    def mean(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return tf.reduce_mean(each(labels, logits))

    return mean


def per_example(task: Task) -> Loss:
    """The loss of each example, [B].

    rating: (logit - label)^2. click: -label log p - (1 - label) log(1 - p) with p = sigmoid(logit), computed from the
    logit, so that it neither overflows nor loses digits. classification: -log p[label] with p = softmax(logits), from
    the logits too; labels are the numbers of classes, and of [B, C] logits.
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
            raise ValueError("a ranking has the loss of its model, see `ranking`")
        case _:
            assert_never(task)


def ranking(kind: RankingLoss, label_smoothing: float) -> Loss:
    """The loss of questions that have candidates, a scalar: the mean over them.

    Args:
        kind: softmax: -sum over c of y[c] log p[c] with p = softmax(scores). binary: the mean over c of
            -y[c] log p[c] - (1 - y[c]) log(1 - p[c]) with p = sigmoid(scores).
        label_smoothing: e in y[c] = (1 - e) [c is the answer] + e / C (Szegedy et al. 2016).

    Returns:
        A function of labels, float32 [B], the answers' places among the candidates, and scores, [B, C].
    """
    each = _softmax_of_targets if kind is RankingLoss.SOFTMAX else _binary_of_targets

    def mean(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        scores = tf.cast(scores, tf.float32)
        if kind is RankingLoss.SOFTMAX and not label_smoothing:
            return tf.reduce_mean(_softmax_log_loss(labels, scores))  # needs no [B, C] of its own
        candidates = tf.shape(scores)[1]
        share = label_smoothing / tf.cast(candidates, tf.float32)
        targets = tf.one_hot(tf.cast(labels, tf.int32), candidates, 1.0 - label_smoothing + share, share)
        return tf.reduce_mean(each(targets, scores))

    return mean


def _squared_error(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.math.squared_difference(_like(labels, logits), labels)


def _log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=_like(labels, logits))


def _softmax_log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.int32), logits=tf.cast(logits, tf.float32)
    )


def _softmax_of_targets(targets: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    return tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=scores)


def _binary_of_targets(targets: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=scores), axis=1)


def _like(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    # [B, 1] against [B] would broadcast to [B, B] without a word.
    return tf.reshape(tf.cast(logits, tf.float32), tf.shape(labels))
