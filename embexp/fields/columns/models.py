"""Models of tables of columns that multiply vectors: biased products, DLRM, factorization machines, cross networks."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from functools import partial, reduce
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from embexp.fields.columns.specs import DLRM, FM, DCNv2, DeepFM, Dot
from embexp.specs.models import DENSE
from embexp.specs.tasks import Labels
from embexp.system import native
from embexp.training import models
from embexp.training.models import Head

if TYPE_CHECKING:
    from embexp.runs.serving import FeatureModel, Pieces, RowModel

_DEVIATION = 0.01
"""Deviation of the initial factors of dense features. Products of many large vectors would dwarf the rest."""


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
    return _Sum(head, name="head.sum")(_first_and_second_order(model, activations, head)[1])


def deepfm(model: DeepFM, activations: Mapping[str, Any], head: Head) -> Any:
    """Guo et al.: "DeepFM: a factorization-machine based neural network for CTR prediction" (2017), eq. 1 to 4.

    The sum of a factorization machine, see `fm`, and of hidden layers from the same vectors and dense features.

    Args:
        activations: see `fm`.

    Returns:
        Logits [B, outputs].
    """
    inputs, terms = _first_and_second_order(model, activations, head)
    if model.hidden:
        x = models.concatenated(inputs, name="deep.inputs")
        x = models.hidden(
            x, model.hidden, activation=model.activation, dropout=model.dropout, seed=head.seed, name="deep"
        )
        terms.append(models.linear(x, head.outputs, seed=head.seed, name="head.deep"))
    return _Sum(head, name="head.sum")(terms)


def _first_and_second_order(
    model: FM | DeepFM, activations: Mapping[str, Any], head: Head
) -> tuple[list[Any], list[Any]]:
    """All vectors next to each other, the dense features, and the terms [B, outputs] without the constant."""
    names = [name for name in sorted(activations) if name not in (DENSE, *model.biases)]
    vectors = [activations[name] for name in names]
    dense = [activations[DENSE]] if DENSE in activations else []
    row = models.concatenated(vectors, name="first_order.inputs")
    terms = [activations[name] for name in model.biases]
    if not model.biases:
        terms.append(models.linear(row, head.outputs, seed=head.seed, name="first_order.vectors"))
    terms += [models.linear(x, head.outputs, seed=head.seed, name="first_order.dense") for x in dense]
    dim = max(x.shape[-1] for x in vectors)
    factors = [
        x if x.shape[-1] == dim else models.linear(x, dim, seed=head.seed, name=f"factors.{name}")
        for name, x in zip(names, vectors, strict=True)
    ]
    alike = all(x.shape[-1] == dim for x in vectors)
    of_one_dim = row if alike else models.concatenated(factors, name="factors.inputs")
    products = PairwiseProducts(head.seed, dim, summed=head.outputs == 1, name="factors.interactions")
    x = products({"vectors": of_one_dim, "dense": dense})
    if head.outputs > 1:
        x = models.linear(x, head.outputs, seed=head.seed, name="head.interactions")
    return [row, *dense], [*terms, x]


class PairwiseProducts(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The sum of v_i v_j x_i x_j over all pairs i < j, number by number, as ((sum v x)^2 - sum (v x)^2) / 2.

    Its weight are the factors of dense features, float32 [n, d].
    """

    def __init__(self, seed: int, dim: int, *, summed: bool, **kwargs: Any) -> None:
        """With `summed`, the d numbers are summed to one: the dot products of all pairs."""
        super().__init__(**kwargs)
        self._seed, self._dim, self._summed = seed, dim, summed

    def build(self, shapes: Mapping[str, Any]) -> None:
        """Makes the weight, if there are dense features."""
        for shape in shapes["dense"]:
            self.kernel = self.add_weight(
                shape=(shape[-1], self._dim),
                initializer=models.normal(self._seed, self.name, _DEVIATION),
                name="kernel",
            )

    def call(self, inputs: Mapping[str, Any]) -> Any:
        """Takes [B, F·d] under vectors and at most one [B, n] under dense; returns [B, d], or [B, 1]."""
        row = inputs["vectors"]
        total, squares = _sums(tf.reshape(row, [-1, row.shape[-1] // self._dim, self._dim]))
        for x in inputs["dense"]:
            total += tf.matmul(x, self.kernel)
            squares += tf.matmul(tf.square(x), tf.square(self.kernel))
        products = (tf.square(total) - squares) / 2
        return tf.reduce_sum(products, 1, keepdims=True) if self._summed else products


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _sums(vectors: Any) -> Any:
    """The sums over F of vectors [B, F, d], and the sums of their squares, [B, d] each.

    TensorFlow's own gradient copies both of them to [B, F, d] first.
    """

    def gradient(total: Any, squares: Any) -> Any:
        return vectors * (2 * squares)[:, tf.newaxis] + total[:, tf.newaxis]

    return (tf.reduce_sum(vectors, 1), tf.reduce_sum(tf.square(vectors), 1)), gradient


class _Sum(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Adds all inputs [B, outputs] and `bias`, float32 [outputs], which starts from the head's bias."""

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
    x = start = models.concatenated([activations[name] for name in sorted(activations)], name="cross.inputs")
    width = start.shape[-1]
    rank = model.low_rank(width)
    for number in range(model.layers):
        name = f"cross.{number}"
        inner = x if rank is None else models.linear(x, rank, seed=head.seed, name=f"{name}.down")
        weighted = keras.layers.Dense(width, kernel_initializer=models.glorot(head.seed, name), name=name)(inner)
        crossed = keras.layers.Multiply(name=f"{name}.product")([start, weighted])
        x = keras.layers.Add(name=f"{name}.sum")([crossed, x])
    stacked = model.structure == "stacked"
    deep = models.hidden(
        x if stacked else start,
        model.hidden,
        activation=model.activation,
        dropout=model.dropout,
        seed=head.seed,
        name="deep",
    )
    if model.hidden and not stacked:
        deep = models.concatenated([x, deep], name="head.inputs")
    return models.logits(deep if model.hidden else x, head)


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


_TRIED = 64
"""Number of examples on which the bits of both ways are compared."""
_FEWEST_ZEROS, _MULTIPLE = 5, 16
"""Vectors of zeros follow the given ones: at least so many, up to a total that is a multiple of this."""


def dlrm(model: DLRM, activations: Mapping[str, Any], head: Head) -> Any:
    """Naumov et al.: "Deep Learning Recommendation Model for Personalization and Recommendation Systems" (2019), §2.

    The bottom MLP maps the dense features to the embeddings' dim d. The dot products of all pairs of vectors (bottom
    output and embeddings, each pair once, none with itself) and the bottom output are the input of the top MLP.

    Args:
        activations: symbolic tensors [B, d] by feature, and [B, n] under `DENSE` if there are dense features;
            without these there is no bottom MLP. Features are taken in the order of their names.

    Returns:
        Logits [B, outputs].
    """
    activation, seed = model.activation, head.seed
    embeddings = [activations[name] for name in sorted(activations) if name != DENSE]
    processed = []
    if DENSE in activations:
        widths = (*model.bottom, embeddings[0].shape[-1])
        processed = [
            models.hidden(activations[DENSE], widths, activation=activation, dropout=0.0, seed=seed, name="bottom")
        ]
    vectors = [*processed, *embeddings]
    x = PairwiseDots(len(vectors if model.concat else processed), name="interactions.dots")(vectors)
    x = models.hidden(x, model.top, activation=activation, dropout=model.dropout, seed=seed, name="top")
    return models.logits(x, head)


class PairwiseDots(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The first of F vectors, and the dot products of each pair once: F times [B, d] -> [B, lead·d + F(F-1)/2].

    Pairs come in the order (0, 1), (0, 2), …, (1, 2), …
    """

    def __init__(self, lead: int = 0, **kwargs: Any) -> None:
        """Takes the number of vectors that come first, themselves."""
        super().__init__(**kwargs)
        self._lead = lead

    def get_config(self) -> dict[str, Any]:
        """What makes the layer again."""
        return {**super().get_config(), "lead": self._lead}

    def call(self, vectors: list[Any], training: bool | None = None) -> Any:
        """Computes the upper triangle, without the diagonal, of the vectors' Gram matrix."""
        return pair_products(vectors, lead=self._lead, training=bool(training))


def pair_products(vectors: list[Any], *, lead: int = 0, training: bool) -> Any:
    """Scalar products x_i x_j of F vectors [B, d] for all i < j, behind the first vectors themselves.

    Args:
        vectors: float32.
        lead: how many of them come first.
        training: whether a gradient is wanted; what is exported has TensorFlow's own operations only.

    Returns:
        [B, lead·d + F(F-1)/2]: x_0, x_1, …, then the products (0, 1), (0, 2), …, (1, 2), ….
    """
    if training and models.usable("pairs") and _same_bits(len(vectors), int(vectors[0].shape[-1])):
        return _by_library(lead)(*vectors)
    return _plain(lead, *vectors)


def _plain(lead: int, *vectors: Any) -> Any:
    products = by_matrices(tf.stack(vectors, axis=1))
    return tf.concat([*vectors[:lead], products], 1) if lead else products


@tf.custom_gradient  # type: ignore[untyped-decorator]
def by_matrices(vectors: Any) -> Any:
    """The same of vectors [B, F, d], by matrix products.

    Products are picked with the batch as the last axis, where each is one piece of memory. Zeros follow the vectors:
    oneDNN's kernel for AVX2 sums products of the last few in another order than the others, so the last are zeros.
    """
    count = vectors.shape[1]
    size = -(-(count + _FEWEST_ZEROS) // _MULTIPLE) * _MULTIPLE
    upper, _ = _pairs(count, size)
    padded = tf.pad(vectors, [[0, 0], [0, size - count], [0, 0]])
    gram = tf.reshape(tf.matmul(padded, padded, transpose_b=True), [-1, size * size])
    products = tf.transpose(tf.gather(tf.transpose(gram), upper))
    return products, partial(_gradient_by_matrices, padded, count)


def _gradient_by_matrices(padded: Any, count: int, upstream: Any) -> Any:
    """The gradient of x_i: the sum over j of g_ij x_j with g_ji = g_ij, which is a product with a symmetric matrix.

    TensorFlow's own gradient of a slice would be F times as large as all products. For a gather, it is a sum by
    segments.
    """
    size = padded.shape[1]
    _, place = _pairs(count, size)
    by_pair = tf.pad(tf.transpose(upstream), [[0, 1], [0, 0]])  # the last one is for x_i x_i and for zeros: 0
    symmetric = tf.reshape(tf.transpose(tf.gather(by_pair, place)), [-1, size, size])
    return tf.matmul(symmetric, padded)[:, :count]


@functools.cache
def _by_library(lead: int) -> Any:
    """The same as `_plain` with `native_code/pairs.cc`, which keeps an example's products in the nearest cache."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def products(*vectors: Any) -> Any:
        library = native.library("pairs")

        def gradient(upstream: Any) -> Any:
            return library.embexp_pairs_grad(vectors=vectors, upstream=upstream, lead=lead)

        return library.embexp_pairs(vectors=vectors, lead=lead), gradient

    return products


@functools.cache
def _same_bits(count: int, dim: int) -> bool:
    """Whether both ways give the same bits.

    They do if TensorFlow's matrix products are chains of fused multiply-adds in rising order. With oneDNN, they are for
    these sizes.
    """
    random = np.random.default_rng(0)
    vectors = [random.standard_normal((_TRIED, dim)).astype(np.float32) for _ in range(count)]
    upstream = random.standard_normal((_TRIED, dim + count * (count - 1) // 2)).astype(np.float32)
    return models.same_bits(_by_library(1), partial(_plain, 1), vectors, upstream)


def _pairs(count: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The place of each pair of `count` vectors in the Gram matrix, and the place of each element among the pairs.

    Returns:
        int32 [P], for P pairs, and int32 [size²], which is P if the element belongs to no pair.
    """
    left, right = np.triu_indices(count, 1)
    place = np.full((size, size), len(left), np.int32)
    place[left, right] = place[right, left] = np.arange(len(left))
    return (left * size + right).astype(np.int32), place.reshape(-1)


def model(pieces: Pieces) -> FeatureModel | RowModel:
    """The model of a run, with the outputs of its task."""
    from embexp.runs.serving import row_model

    classes = tuple(pieces.run.summary.get("classes", ()))
    labels, outputs = pieces.run.spec.task.labels, _number
    if labels is Labels.BINARY:
        outputs = _rate
    elif labels is Labels.CLASS:
        outputs = partial(_classes, classes)
    return row_model(pieces, outputs)


def _number(logits: Any) -> dict[str, Any]:
    return {"predictions": logits}


def _rate(logits: Any) -> dict[str, Any]:
    # In double precision, as in `embexp predict`.
    return {"predictions": tf.cast(tf.sigmoid(tf.cast(logits, tf.float64)), tf.float32)}


def _classes(classes: tuple[str, ...], logits: Any) -> dict[str, Any]:
    names = tf.constant(classes)
    return {
        "predictions": tf.gather(names, tf.argmax(logits, axis=1)),
        "probabilities": tf.cast(tf.nn.softmax(tf.cast(logits, tf.float64)), tf.float32),
        # A row for each example, because servers cut outputs by example.
        "classes": tf.tile(names[None], [tf.shape(logits)[0], 1]),
    }
