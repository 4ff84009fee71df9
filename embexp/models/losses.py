"""The loss of each task. What a user's model adds with `add_loss` comes on top, in the training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import tensorflow as tf

from embexp.specs.models import Task

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
        case _:
            assert_never(task)


def _squared_error(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.math.squared_difference(_like(labels, logits), labels)


def _log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=_like(labels, logits))


def _softmax_log_loss(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    return tf.nn.sparse_softmax_cross_entropy_with_logits(
        labels=tf.cast(labels, tf.int32), logits=tf.cast(logits, tf.float32)
    )


def _like(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    # [B, 1] against [B] would broadcast to [B, B] without a word.
    return tf.reshape(tf.cast(logits, tf.float32), tf.shape(labels))
