"""Models of tables of columns that multiply them: factorization machines, and deep & cross networks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from embexp.models import layers
from embexp.models.layers import Head
from embexp.specs.models import DENSE, FM, DCNv2, DeepFM

_DEVIATION = 0.01
"""Of the initial factors of dense features: products of many large vectors would dwarf the rest."""


def fm(model: FM, activations: Mapping[str, Any], head: Head) -> Any:
    """Rendle: "Factorization machines" (2010), eq. 1: w_0 + sum of w_i x_i + sum of <v_i, v_j> x_i x_j for i < j.

    A category's x is 1, and its factors v are its vector; a dense feature's are weights here. First-order weights are
    the rows of `biases`. Without these, that of a category is linear in its vector: one table for both.

    Args:
        activations: symbolic tensors [B, dim] by feature, and [B, n] under `DENSE` if there are dense features. Vectors
            that are shorter than the longest are mapped to its dim by a linear layer without bias, as in Ginart et al.:
            "Mixed dimension embeddings" (2019).

    Returns:
        Logits [B, outputs]. Of C classes each weighs the numbers of the products on its own, as in He & Chua: "Neural
        factorization machines for sparse predictive analytics" (2017), §3.1; one output has weights of 1.
    """
    vectors, dense = _vectors(model, activations), _dense(activations)
    return _Sum(head, name="head.sum")(_first_and_second_order(model, activations, vectors, dense, head))


def deepfm(model: DeepFM, activations: Mapping[str, Any], head: Head) -> Any:
    """Guo et al.: "DeepFM: a factorization-machine based neural network for CTR prediction" (2017), eq. 1 to 4.

    The sum of a factorization machine, see `fm`, and of hidden layers from the same vectors and dense features.

    Args:
        activations: see `fm`.

    Returns:
        Logits [B, outputs].
    """
    vectors, dense = _vectors(model, activations), _dense(activations)
    terms = _first_and_second_order(model, activations, vectors, dense, head)
    if model.hidden:
        x = layers.concatenated([*vectors.values(), *dense], name="deep.inputs")
        x = layers.hidden(
            x, model.hidden, activation=model.activation, dropout=model.dropout, seed=head.seed, name="deep"
        )
        terms.append(layers.linear(x, head.outputs, seed=head.seed, name="head.deep"))
    return _Sum(head, name="head.sum")(terms)


def _vectors(model: FM | DeepFM, activations: Mapping[str, Any]) -> dict[str, Any]:
    return {name: activations[name] for name in sorted(activations) if name not in (DENSE, *model.biases)}


def _dense(activations: Mapping[str, Any]) -> list[Any]:
    return [activations[DENSE]] if DENSE in activations else []


def _first_and_second_order(
    model: FM | DeepFM, activations: Mapping[str, Any], vectors: Mapping[str, Any], dense: list[Any], head: Head
) -> list[Any]:
    """The terms of a factorization machine, each [B, outputs], but for the constant."""
    terms = [activations[name] for name in model.biases]
    if not model.biases:
        row = layers.concatenated([*vectors.values()], name="first_order.inputs")
        terms.append(layers.linear(row, head.outputs, seed=head.seed, name="first_order.vectors"))
    terms += [layers.linear(x, head.outputs, seed=head.seed, name="first_order.dense") for x in dense]
    dim = max(x.shape[-1] for x in vectors.values())
    factors = [
        x if x.shape[-1] == dim else layers.linear(x, dim, seed=head.seed, name=f"factors.{name}")
        for name, x in vectors.items()
    ]
    products = PairwiseProducts(head.seed, summed=head.outputs == 1, name="factors.interactions")
    x = products({"vectors": factors, "dense": dense})
    if head.outputs > 1:
        x = layers.linear(x, head.outputs, seed=head.seed, name="head.interactions")
    return [*terms, x]


class PairwiseProducts(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The sum of v_i v_j x_i x_j over all pairs i < j, number by number, as ((sum v x)^2 - sum (v x)^2) / 2.

    Its weight are the factors of dense features, float32 [n, d].
    """

    def __init__(self, seed: int, *, summed: bool, **kwargs: Any) -> None:
        """With `summed`, the d numbers are summed to one: the dot products of all pairs."""
        super().__init__(**kwargs)
        self._seed, self._summed = seed, summed

    def build(self, shapes: Mapping[str, Sequence[Any]]) -> None:
        """Makes the weight, if there are dense features."""
        for shape in shapes["dense"]:
            self.kernel = self.add_weight(
                shape=(shape[-1], shapes["vectors"][0][-1]),
                initializer=layers.normal(self._seed, self.name, _DEVIATION),
                name="kernel",
            )

    def call(self, inputs: Mapping[str, list[Any]]) -> Any:
        """Takes F times [B, d] under vectors and at most one [B, n] under dense; returns [B, d], or [B, 1]."""
        stacked = tf.stack(inputs["vectors"], axis=1)
        total, squares = tf.reduce_sum(stacked, 1), tf.reduce_sum(tf.square(stacked), 1)
        for x in inputs["dense"]:
            total += tf.matmul(x, self.kernel)
            squares += tf.matmul(tf.square(x), tf.square(self.kernel))
        products = (tf.square(total) - squares) / 2
        return tf.reduce_sum(products, 1, keepdims=True) if self._summed else products


class _Sum(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The sum of all inputs [B, outputs] and of `bias`, float32 [outputs], which starts at the head's."""

    def __init__(self, head: Head, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        initializer = keras.initializers.Constant(head.bias)
        self.bias = self.add_weight(shape=(head.outputs,), initializer=initializer, name="bias")

    def call(self, terms: list[Any]) -> Any:
        """Returns [B, outputs]."""
        return tf.add_n(terms) + self.bias


def dcn_v2(model: DCNv2, activations: Mapping[str, Any], head: Head) -> Any:
    """Wang et al.: "DCN V2: improved deep & cross network" (2021), eq. 1 and 2: x_{l+1} = x_0 * (W x_l + b) + x_l.

    x_0 is the concatenation of all inputs, and * is number by number. W is U V^T where its rank is low.

    Args:
        activations: symbolic tensors [B, dim] or [B, L, dim], the latter flattened, and [B, n] under `DENSE` if there
            are dense features. They are concatenated in the order of their names.

    Returns:
        Logits [B, outputs], from the crosses and the hidden layers next to each other (parallel), or from hidden layers
        of the crosses (stacked).
    """
    x = start = layers.concatenated([activations[name] for name in sorted(activations)], name="cross.inputs")
    width = start.shape[-1]
    rank = model.low_rank(width)
    for number in range(model.layers):
        name = f"cross.{number}"
        inner = x if rank is None else layers.linear(x, rank, seed=head.seed, name=f"{name}.down")
        weighted = keras.layers.Dense(width, kernel_initializer=layers.glorot(head.seed, name), name=name)(inner)
        crossed = keras.layers.Multiply(name=f"{name}.product")([start, weighted])
        x = keras.layers.Add(name=f"{name}.sum")([crossed, x])
    stacked = model.structure == "stacked"
    deep = layers.hidden(
        x if stacked else start,
        model.hidden,
        activation=model.activation,
        dropout=model.dropout,
        seed=head.seed,
        name="deep",
    )
    if model.hidden and not stacked:
        deep = layers.concatenated([x, deep], name="head.inputs")
    return layers.logits(deep if model.hidden else x, head)
