"""Models of recommendation: vectors of users and items, whose products are scores.

An item's bias is one more number of its vector, where that of the user is 1. So whatever the model, scores of all items
are one product of matrices.

Losses take vectors of users [B, d] and items [N, d], and give the mean over the interactions. Their `labels` are
float32 [B, 2]: the number of the item of each interaction in the catalogue (float32 is exact up to 2^24), and the
logarithm of its share of the training split.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from typing import Any

import keras
import tensorflow as tf

from embexp.fields.recommendation.specs import (
    BPR,
    CosineContrastive,
    MatrixFactorization,
    SampledSoftmax,
    Softmax,
    TwoTower,
)
from embexp.specs.models import Model
from embexp.specs.tasks import Task
from embexp.training import models
from embexp.training.models import Head, PairLoss

Activations = Mapping[str, Any]
"""Symbolic tensors by feature: of the user [B, dim], of the item [N, dim] for N items, which are not those of the B
users one by one unless N is B."""


def matrix_factorization(model: MatrixFactorization, activations: Activations, head: Head) -> list[Any]:
    """Sums of the vectors of each side, as in Rendle et al.: "BPR: Bayesian personalized ranking" (2009).

    Returns:
        Vectors of users [B, dim] and of items [N, dim], with biases one number longer. The users' are divided by
        the temperature.
    """
    user = reduce(keras.ops.add, [activations[name] for name in model.user_features])
    item = reduce(keras.ops.add, [activations[name] for name in model.item_features])
    return _scored(model, user, item, activations)


def two_tower(model: TwoTower, activations: Activations, head: Head) -> list[Any]:
    """Two towers of hidden layers, as in Covington et al. (2016) and Yi et al. (2019).

    Returns:
        Vectors of users [B, dim] and of items [N, dim], with biases one number longer. The users' are divided by
        the temperature.
    """
    user = _tower(activations, model.user_features, model, seed=head.seed, name="user")
    item = _tower(activations, model.item_features, model, seed=head.seed, name="item")
    return _scored(model, user, item, activations)


def _tower(activations: Activations, features: Sequence[str], model: TwoTower, *, seed: int, name: str) -> Any:
    x = models.concatenated([activations[feature] for feature in features], name=f"{name}.features")
    x = models.hidden(
        x, model.hidden, activation=model.activation, dropout=model.dropout, seed=seed, name=f"{name}.tower"
    )
    return models.linear(x, model.dim, seed=seed, name=f"{name}.vector")


def _scored(model: MatrixFactorization | TwoTower, user: Any, item: Any, activations: Activations) -> list[Any]:
    """Vectors whose products are the scores, normalized, divided by the temperature and with biases if configured."""
    if model.normalize:
        user = keras.layers.UnitNormalization(axis=-1, name="user.unit")(user)
        item = keras.layers.UnitNormalization(axis=-1, name="item.unit")(item)
    if model.temperature != 1:  # settled, see `Recommender.with_temperature`
        user = user / model.temperature
    biases = [activations[name] for name in model.item_biases]
    if not biases:
        # Layers with their own names, so that a model may return an input unchanged.
        return [user, item]
    bias = reduce(keras.ops.add, biases)
    return [
        keras.ops.concatenate([user, keras.ops.ones_like(user[:, :1])], axis=-1),
        keras.ops.concatenate([item, bias], axis=-1),
    ]


def bpr(loss: BPR, model: Model, task: Task, outputs: int) -> PairLoss:
    """`loss=bpr`."""
    return pairwise


def pairwise(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
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


def sampled_softmax(loss: SampledSoftmax, model: Model, task: Task, outputs: int) -> PairLoss:
    """`loss=sampled_softmax`."""
    return partial(over_batch if loss.of_batch else over_drawn, log_q=loss.log_q)


def over_batch(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor], *, log_q: bool = True) -> tf.Tensor:
    """The mean of -log softmax over the items of the batch, as negatives of each other (Yi et al. 2019, eq. 3 to 6).

    The score of item j is corrected by - log q[j], as it is a negative as often as it is in the data. Another place of
    the batch with the item itself is no negative.

    Args:
        labels: see above, of all items.
        vectors: of users [b, d] and of the batch's items [B, d], those of the users first: b is less than B where
            several processes share the batch.
        log_q: whether to correct.
    """
    users, items = vectors
    scores, own = tf.matmul(users, items, transpose_b=True), tf.shape(users)[0]
    numbers, logs = labels[:, 0], labels[:, 1]
    if log_q:
        scores -= logs[None]
    same = tf.equal(numbers[:own, None], numbers[None])
    same = tf.linalg.set_diag(same, tf.zeros([own], tf.bool))
    scores = tf.where(same, scores.dtype.min, scores)
    answers = tf.range(own)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=answers, logits=scores))


def over_drawn(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor], *, log_q: bool = True) -> tf.Tensor:
    """The mean of -log softmax over the item of an interaction and n items that are drawn for the whole batch.

    Jean et al.: "On using very large target vocabulary for neural machine translation" (2015), eq. 6. An item that was
    drawn is no negative of itself.

    Args:
        labels: float32 [B + n, 2]: of the items, their numbers, and the logarithms of the shares with which each is
            drawn.
        vectors: of users [B, d], and of items [B + n, d]: those of the interactions, then the drawn ones.
        log_q: whether scores are corrected by these logarithms.
    """
    positives, negatives = _of_drawn(labels, vectors)
    if log_q:
        batch = tf.shape(positives)[0]
        positives, negatives = positives - labels[:batch, 1], negatives - labels[batch:, 1]
    return tf.reduce_mean(tf.reduce_logsumexp(tf.concat([positives[:, None], negatives], 1), 1) - positives)


def _of_drawn(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Scores of the items of the interactions, [B], and of the drawn ones, [B, n]: very low for the item itself."""
    users, items = vectors
    batch = tf.shape(users)[0]
    positives = tf.reduce_sum(users * items[:batch], 1)
    negatives = tf.matmul(users, items[batch:], transpose_b=True)
    same = tf.equal(labels[:batch, :1], labels[batch:, 0])
    return positives, tf.where(same, negatives.dtype.min, negatives)


def cosine_contrastive(loss: CosineContrastive, model: Model, task: Task, outputs: int) -> PairLoss:
    """`loss=cosine_contrastive`."""
    return partial(contrastive, margin=loss.margin, weight=loss.negative_weight, of_batch=loss.of_batch)


def contrastive(
    labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor], *, margin: float, weight: float, of_batch: bool
) -> tf.Tensor:
    """The mean of 1 - s[item] + weight * mean of max(0, s[negative] - margin), for cosines s.

    Mao et al.: "SimpleX: a simple and strong baseline for collaborative filtering" (2021), eq. 1.

    Args:
        labels: see `over_drawn`, or with `of_batch` above.
        vectors: see `over_drawn`, or with `of_batch` as in `over_batch`.
    """
    if of_batch:
        (users, items), own = vectors, tf.shape(vectors[0])[0]
        vectors, labels = (users, tf.concat([items[:own], items], 0)), tf.concat([labels[:own], labels], 0)
    positives, negatives = _of_drawn(labels, vectors)
    over = tf.nn.relu(negatives - margin)
    return tf.reduce_mean(1.0 - positives + weight * tf.reduce_mean(over, 1))


def softmax(loss: Softmax, model: Model, task: Task, outputs: int) -> PairLoss:
    """`loss=softmax`."""
    return over_catalogue


def over_catalogue(labels: tf.Tensor, vectors: tuple[tf.Tensor, tf.Tensor]) -> tf.Tensor:
    """The mean of -log softmax over the catalogue.

    Args:
        labels: see above.
        vectors: of users [B, d] and of all items [I, d].
    """
    users, items = vectors
    scores = tf.matmul(users, items, transpose_b=True)
    answers = tf.cast(labels[:, 0], tf.int32)
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=answers, logits=scores))
