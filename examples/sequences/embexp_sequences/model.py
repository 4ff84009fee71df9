"""SASRec: causal self-attention over the items of a history (Kang & McAuley 2018), and its loss.

A history has L positions, and the last ones may be padding. Position i sees only positions 0 to i. Its state is
compared with rows of the table that also has the history's rows. A block follows the paper's equation 7, x +
dropout(g(norm(x))), both for attention and for the two linear layers.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from embexp.specs.models import DENSE, RankingLoss
from embexp.specs.tasks import CANDIDATES, Task
from embexp.training import models as layers
from embexp.training.models import Head
from embexp.training.one_vs_all import OneVsAll, SharedProducts
from embexp_sequences.specs import HISTORY, NextItemLoss, SASRec

_STATES = "head.states"


def sasrec(model: SASRec, activations: Mapping[str, Any], head: Head) -> Any:
    """The scores of the candidates, given whole histories, [B, C].

    Args:
        activations: symbolic tensors: the history [B, L + 1, dim], whose last position is only read in training, the
            candidates [1, C, dim] and, under `DENSE`, the number of items in the history, [B, 1].
    """
    x, seed = activations[HISTORY][:, :-1], head.seed
    x = Positions(layers.normal(seed, "positions", 0.02), name="history.positions")(x)
    x = layers.dropped(x, model.dropout, seed=seed, name="history.dropout")
    for number in range(model.blocks):
        x = _block(x, model, seed, f"block.{number}")
    states = _normed(x, _STATES)
    # A longer history has only its last items here. A history without items has the state of padding.
    last = ops.clip(ops.cast(activations[DENSE], "int32") - 1, 0, states.shape[1] - 1)
    last = ops.take_along_axis(states, last[:, :, None], axis=1)[:, 0]
    return SharedProducts(name="head.products")([last, activations[CANDIDATES]])


def _block(x: Any, model: SASRec, seed: int, name: str) -> Any:
    (length, dim), normed = x.shape[1:], _normed(x, f"{name}.attention_norm")

    def dropped(x: Any, part: str) -> Any:
        return layers.dropped(x, model.dropout, seed=seed, name=f"{name}.{part}.dropout")

    def projected(part: str) -> Any:  # [B, heads, L, dim / heads]
        found = layers.linear(normed, dim, seed=seed, name=f"{name}.{part}")
        return ops.swapaxes(ops.reshape(found, (-1, length, model.heads, dim // model.heads)), 1, 2)

    query, key, value = map(projected, ("query", "key", "value"))
    scores = ops.matmul(query, ops.swapaxes(key, 2, 3)) / float(np.sqrt(dim // model.heads))
    later = np.triu(np.ones((length, length), bool), 1)
    weights = dropped(ops.softmax(ops.where(later, -1e9, scores)), "attention")
    attended = ops.reshape(ops.swapaxes(ops.matmul(weights, value), 1, 2), (-1, length, dim))
    x = x + dropped(attended, "attended")
    y = _normed(x, f"{name}.linear_norm")
    for part, activation in (("linear.0", "relu"), ("linear.1", None)):
        kernel = layers.glorot(seed, f"{name}.{part}")
        y = keras.layers.Dense(dim, activation, kernel_initializer=kernel, name=f"{name}.{part}")(y)
        y = dropped(y, part)
    return x + y


def _normed(x: Any, name: str) -> Any:
    return keras.layers.LayerNormalization(epsilon=1e-8, name=name)(x)


class Positions(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Adds a vector to each position: [B, L, dim] -> [B, L, dim]."""

    def __init__(self, initializer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._initializer = initializer

    def build(self, shape: Any) -> None:
        """Creates the vectors, [L, dim]."""
        self.vectors = self.add_weight(shape=tuple(shape[1:]), initializer=self._initializer, name="vectors")

    def call(self, x: Any) -> Any:
        """See the class."""
        return x + self.vectors


def loss(model: SASRec, task: Task) -> Any:
    """No loss from logits, because the loss needs all positions; see `in_step`."""
    return lambda labels, logits: None


def in_step(model: keras.Model, settings: SASRec, inputs: Collection[str]) -> dict[str, Any]:
    """The model's parts of a step; see `DenseModel.in_step`."""
    return {"loss_of_inputs": OfPositions(model, settings.loss)}


class OfPositions:
    """The loss at all positions of a batch: each example's sum, divided by the mean number of positions."""

    def __init__(self, model: keras.Model, loss: NextItemLoss) -> None:
        """Keeps the layers of the model that compute states."""
        inputs = {each.name: each for each in model.inputs if each.name != CANDIDATES}
        self._states = keras.Model(inputs=inputs, outputs=model.get_layer(_STATES).output, name="states")
        self._loss, self._softmax = loss, OneVsAll(model, RankingLoss.SOFTMAX, 0.0)

    def takes(self, inputs: Mapping[str, Any], labels: Any) -> bool:
        """Whether it computes this loss: always."""
        return True

    def __call__(self, inputs: Mapping[str, Any], labels: Any, known: Any = None) -> Any:
        """The loss, a scalar; the module `batches` describes the labels."""
        history, candidates = inputs[HISTORY], inputs[CANDIDATES]
        states = self._states({name: each for name, each in inputs.items() if name != CANDIDATES}, training=True)
        targets, drawn = labels[:, 1 : history.shape[1]], labels[:, history.shape[1] :]
        real = targets >= 0
        state, answer, own = (tf.boolean_mask(each, real) for each in (states, targets, history[:, 1:]))
        share = tf.reduce_sum(tf.where(real, labels[:, :1], 0.0)) / tf.cast(tf.shape(labels)[0], tf.float32)
        if self._loss is NextItemLoss.SOFTMAX:
            return share * self._softmax.mean(state, tf.squeeze(candidates, 0), tf.cast(answer, tf.int32))
        score = tf.reduce_sum(state * own, 1)
        if self._loss is NextItemLoss.BINARY:
            other = tf.reduce_sum(state * tf.boolean_mask(candidates, real), 1)
            return share * tf.reduce_mean(tf.nn.softplus(-score) + tf.nn.softplus(other))
        others = tf.matmul(state, candidates[0], transpose_b=True)
        others = tf.where(answer[:, None] == drawn[:1], others.dtype.min, others)  # never its own negative
        return share * tf.reduce_mean(tf.reduce_logsumexp(tf.concat([score[:, None], others], 1), 1) - score)
