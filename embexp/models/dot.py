"""Biased matrix factorisation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import keras


def dot(
    activations: Mapping[str, Any],
    *,
    left: Sequence[str],
    right: Sequence[str],
    biases: Sequence[str],
    output_bias: float,
) -> Any:
    """A global bias + sum of `biases` + <sum of `left`, sum of `right`>.

    Koren, Bell, Volinsky: "Matrix factorization techniques for recommender systems" (2009), eq. 4, with more than one
    vector on a side as in its SVD++. The global bias is trained and starts at `output_bias`.

    Args:
        activations: symbolic tensors by feature, [B, d] for `left` and `right`, [B, 1] for `biases`.
        left: features whose sum is the left vector.
        right: features whose sum is the right vector.
        biases: features of dim 1.
        output_bias: initial value of the global bias.

    Returns:
        Logits [B, 1].
    """
    layer = BiasedDot(output_bias, name="head.dot")
    return layer(
        {
            "left": [activations[name] for name in left],
            "right": [activations[name] for name in right],
            "biases": [activations[name] for name in biases],
        }
    )


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
