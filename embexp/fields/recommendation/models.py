"""Models of recommendation: vectors of users and items, whose products are scores.

An item's bias is one more number of its vector, where that of the user is 1. So whatever the model, scores of all items
are one product of matrices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import keras

from embexp.fields.recommendation.specs import MatrixFactorization, TwoTower
from embexp.training.models import layers
from embexp.training.models.layers import Head

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
    x = layers.concatenated([activations[feature] for feature in features], name=f"{name}.features")
    x = layers.hidden(
        x, model.hidden, activation=model.activation, dropout=model.dropout, seed=seed, name=f"{name}.tower"
    )
    return layers.linear(x, model.dim, seed=seed, name=f"{name}.vector")


def _scored(model: MatrixFactorization | TwoTower, user: Any, item: Any, activations: Activations) -> list[Any]:
    """Vectors whose products are the scores: of length 1, by temperature, and with biases, as the model says."""
    if model.normalize:
        user = keras.layers.UnitNormalization(axis=-1, name="user.unit")(user)
        item = keras.layers.UnitNormalization(axis=-1, name="item.unit")(item)
    if model.temperature != 1:  # settled, see `Recommender.with_temperature`
        user = user / model.temperature
    biases = [activations[name] for name in model.item_biases]
    if not biases:
        # Layers with names of their own, so that a model may return an input as it is.
        return [user, item]
    bias = reduce(keras.ops.add, biases)
    return [
        keras.ops.concatenate([user, keras.ops.ones_like(user[:, :1])], axis=-1),
        keras.ops.concatenate([item, bias], axis=-1),
    ]
