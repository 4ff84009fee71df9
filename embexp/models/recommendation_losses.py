"""Losses of recommendation: from vectors of users [B, d] and items [N, d] to the mean over the interactions.

`labels` are float32 [B, 2]: the number of the item of each interaction in the catalogue (float32 is exact up to 2^24),
and the logarithm of its share of the training split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

import tensorflow as tf

from embexp.specs.models import BPR, RecommendationLoss, SampledSoftmax, Softmax

PairLoss = Callable[[tf.Tensor, tuple[tf.Tensor, tf.Tensor]], tf.Tensor]
"""From labels and (users, items) to a float32 scalar."""


def recommendation(loss: RecommendationLoss) -> PairLoss:
    """The loss that a config chooses."""
    match loss:
        case BPR():
            return bpr
        case SampledSoftmax():
            return sampled_softmax if loss.log_q else _uncorrected
        case Softmax():
            return softmax
        case _:
            assert_never(loss)


def bpr(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """The mean of -log sigmoid(positive - negative) over all B k pairs (Rendle et al. 2009, without its regularizer).

    Args:
        labels: not used.
        vectors: of users [B, d], and of items [B + B k, d]: the B positives, then k negatives of each user in turn.
    """
    users, items = vectors
    batch = tf.shape(users)[0]
    positives, negatives = items[:batch], items[batch:]
    negatives = tf.reshape(negatives, [batch, -1, users.shape[-1]])
    ahead = tf.reduce_sum(users * positives, -1, keepdims=True) - tf.linalg.matvec(negatives, users)
    return tf.reduce_mean(tf.nn.softplus(-ahead))


def sampled_softmax(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor], *, log_q: bool = True) -> tf.Tensor:
    """The mean of -log softmax over the items of the batch, as negatives of each other (Yi et al. 2019, eq. 3 to 6).

    The score of item j is corrected by - log q[j], as it is a negative as often as it is in the data. Another place of
    the batch with the item itself is no negative.

    Args:
        labels: see above.
        vectors: of users [B, d] and of their items [B, d].
        log_q: whether to correct.
    """
    users, items = vectors
    scores = tf.matmul(users, items, transpose_b=True)
    numbers, logs = labels[:, 0], labels[:, 1]
    if log_q:
        scores -= logs[None]
    same = tf.equal(numbers[:, None], numbers[None])
    same = tf.linalg.set_diag(same, tf.zeros_like(numbers, tf.bool))
    scores = tf.where(same, scores.dtype.min, scores)
    answers = tf.range(tf.shape(users)[0])
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=answers, logits=scores))


def softmax(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """The mean of -log softmax over the catalogue.

    Args:
        labels: see above.
        vectors: of users [B, d] and of all items [I, d].
    """
    users, items = vectors
    scores = tf.matmul(users, items, transpose_b=True)
    answers = tf.cast(labels[:, 0], tf.int32)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=answers, logits=scores))


def _uncorrected(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    return sampled_softmax(labels, vectors, log_q=False)
