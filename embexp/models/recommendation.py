"""Models of recommendation: a vector for each user and each item, whose dot product is the score.

An item's bias is one more number of its vector, where that of the user is 1. So whatever the model, scores of all items
are one product of matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import keras

from embexp.models import layers
from embexp.specs.models import TwoTower

Activations = Mapping[str, Any]
"""Symbolic tensors by feature: of the user [B, dim], of the item [N, dim] for N items, which are not those of the B
users one by one unless N is B."""


def matrix_factorization(
    activations: Activations, *, user_features: Sequence[str], item_features: Sequence[str], item_biases: Sequence[str]
) -> list[Any]:
    """Sums of the vectors of each side, as in Rendle et al.: "BPR: Bayesian personalized ranking" (2009).

    Args:
        activations: symbolic inputs.
        user_features: features of the user, of one dim.
        item_features: features of the item, of the same dim.
        item_biases: features of the item, of dim 1.

    Returns:
        Vectors of users [B, dim] and of items [N, dim], with biases one number longer.
    """
    user = reduce(keras.ops.add, [activations[name] for name in user_features])
    item = reduce(keras.ops.add, [activations[name] for name in item_features])
    return _with_biases(user, item, [activations[name] for name in item_biases])


def two_tower(activations: Activations, model: TwoTower, *, seed: int) -> list[Any]:
    """Two towers of hidden layers, as in Covington et al. (2016) and Yi et al. (2019).

    Args:
        activations: symbolic inputs.
        model: its settings.
        seed: the run's seed.

    Returns:
        Vectors of users [B, dim] and of items [N, dim], with biases one number longer. The users' are divided by
        the temperature.
    """
    user = _tower(activations, model.user_features, model, seed=seed, name="user")
    item = _tower(activations, model.item_features, model, seed=seed, name="item")
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
