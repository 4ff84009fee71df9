"""Models of recommendation: biased matrix factorisation of ratings, and vectors of users and items for rankings.

An item's bias is one more number of its vector, where that of the user is 1. So whatever the model, scores of all items
are one product of matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import keras

from embexp.models import layers
from embexp.models.layers import Head
from embexp.specs.models import Dot, MatrixFactorization, TwoTower

Activations = Mapping[str, Any]
"""Symbolic tensors by feature: of the user [B, dim], of the item [N, dim] for N items, which are not those of the B
users one by one unless N is B."""


def matrix_factorization(model: MatrixFactorization, activations: Activations, head: Head) -> list[Any]:
    """Sums of the vectors of each side, as in Rendle et al.: "BPR: Bayesian personalized ranking" (2009).

    Returns:
        Vectors of users [B, dim] and of items [N, dim], with biases one number longer.
    """
    user = reduce(keras.ops.add, [activations[name] for name in model.user_features])
    item = reduce(keras.ops.add, [activations[name] for name in model.item_features])
    return _with_biases(user, item, [activations[name] for name in model.item_biases])


def two_tower(model: TwoTower, activations: Activations, head: Head) -> list[Any]:
    """Two towers of hidden layers, as in Covington et al. (2016) and Yi et al. (2019).

    Returns:
        Vectors of users [B, dim] and of items [N, dim], with biases one number longer. The users' are divided by
        the temperature.
    """
    user = _tower(activations, model.user_features, model, seed=head.seed, name="user")
    item = _tower(activations, model.item_features, model, seed=head.seed, name="item")
    if model.temperature != 1:
        user = user / model.temperature
    return _with_biases(user, item, [activations[name] for name in model.item_biases])


def _tower(activations: Activations, features: Sequence[str], model: TwoTower, *, seed: int, name: str) -> Any:
    x = layers.concatenated([activations[feature] for feature in features], name=f"{name}.features")
    x = layers.hidden(
        x, model.hidden, activation=model.activation, dropout=model.dropout, seed=seed, name=f"{name}.tower"
    )
    x = layers.linear(x, model.dim, seed=seed, name=f"{name}.vector")
    return keras.layers.UnitNormalization(axis=-1, name=f"{name}.unit")(x) if model.normalize else x


def _with_biases(user: Any, item: Any, biases: Sequence[Any]) -> list[Any]:
    if not biases:
        # Layers with names of their own, so that a model may return an input as it is.
        return [user, item]
    bias = reduce(keras.ops.add, biases)
    return [
        keras.ops.concatenate([user, keras.ops.ones_like(user[:, :1])], axis=-1),
        keras.ops.concatenate([item, bias], axis=-1),
    ]


def dot(model: Dot, activations: Mapping[str, Any], head: Head) -> Any:
    """A global bias + sum of `biases` + <sum of `left`, sum of `right`>.

    Koren, Bell, Volinsky: "Matrix factorization techniques for recommender systems" (2009), eq. 4, with more than one
    vector on a side as in its SVD++. The global bias is trained and starts at the head's.

    Returns:
        Logits [B, 1].
    """
    named = {"left": model.left, "right": model.right, "biases": model.biases}
    inputs = {side: [activations[name] for name in names] for side, names in named.items()}
    return BiasedDot(head.bias, name="head.dot")(inputs)


class BiasedDot(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The formula of `dot` as one layer; its only weight is `bias`, float32 [1]."""

    def __init__(self, bias: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.bias = self.add_weight(shape=(1,), initializer=keras.initializers.Constant(bias), name="bias")

    def call(self, inputs: Mapping[str, list[Any]]) -> Any:
        """Takes lists of [B, d] under left and right and of [B, 1] under biases; returns [B, 1]."""
        left = reduce(keras.ops.add, inputs["left"])
        right = reduce(keras.ops.add, inputs["right"])
        product = keras.ops.sum(left * right, axis=-1, keepdims=True)
        return reduce(keras.ops.add, inputs["biases"], product + self.bias)
