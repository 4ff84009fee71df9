"""Models of knowledge graphs: the score of each candidate for a query (source, relation, ?).

Each combines source and relation into one vector and compares it with the candidates' vectors. Head prediction is a
query with the inverse relation. If the inverse has no row in the table, the dense input is 1 for it, and the relation's
vector is inverted, so that a triple has the same score in both directions:

| model | score of (s, r, c) | inverse relation |
|---|---|---|
| transe | margin - |s + r - c| | -r |
| distmult | sum s r c | r |
| complex | Re(sum s r conj(c)) | conj(r) |
| rotate | margin - sum |s r/|r| - c| | conj(r) |

The same layers score all relations between a source and an answer, for the loss that predicts relations.

Candidates may be a query's own. Those that all queries share may be as many as there are entities: `scores` and
`gradients` then work on blocks of them, so that nothing is larger than scores [B, C] and rows [C, dim].
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.fields.graphs.specs import ComplEx, DistMult, KnowledgeGraph, RotatE, TransE
from embexp.specs.footprint import DIFFERENCES
from embexp.specs.models import DENSE, RankingLoss
from embexp.specs.tasks import ALL_RELATIONS, CANDIDATES, RELATION, SOURCE, Task
from embexp.system import native
from embexp.training import models
from embexp.training.models import Head, Loss, softmax_log_loss
from embexp.training.one_vs_all import OneVsAll, Scoring, SharedProducts

_TINY = 1e-24
"""The least squared distance or modulus, because the square root has no derivative at 0."""

Activations = Mapping[str, Any]
"""Symbolic tensors: source and relation [B, dim], candidates [1, C, dim] or [B, C, dim], and, if relations may be
inverse, under `DENSE` 1 for an inverse relation and 0 for others, [B, 1]."""

Combine = Callable[[Any, Any, Any], Any]
"""From source and relation, [B, dim], and -1 for inverse and 1 for other relations, [B, 1] or None, to [B, dim]."""

Distance = Callable[[Any], Any]
"""From differences [..., dim] to distances [...]."""


def transe(model: TransE, activations: Activations, head: Head) -> Any:
    """Bordes et al.: "Translating embeddings for modeling multi-relational data" (2013). Returns scores [B, C]."""
    query = _query(model, activations, _translated, head)
    return Distances(_norm(model), model.margin, name="head.distances")([query, activations[CANDIDATES]])


def distmult(model: DistMult, activations: Activations, head: Head) -> Any:
    """Yang et al.: "Embedding entities and relations for learning and inference in knowledge bases" (2015)."""
    return Products(name="head.products")([_query(model, activations, _scaled, head), activations[CANDIDATES]])


def complex_product(model: ComplEx, activations: Activations, head: Head) -> Any:
    """Trouillon et al.: "Complex embeddings for simple link prediction" (2016).

    The first half of a row holds real parts, the second half imaginary parts; n3 applies to moduli.
    """
    # Re(a conj(c)) is the scalar product of a and c as real vectors.
    return Products(name="head.products")([_query(model, activations, _rotated, head), activations[CANDIDATES]])


def rotate(model: RotatE, activations: Activations, head: Head) -> Any:
    """Sun et al.: "RotatE: knowledge graph embedding by relational rotation in complex space" (2019).

    The first half of a row holds real parts, the second half imaginary parts. Each complex number of a relation is
    divided by its modulus, so it only rotates; n3 applies to moduli, those of relations before.
    """
    query = _query(model, activations, _turned, head)
    return Distances(moduli, model.margin, name="head.distances")([query, activations[CANDIDATES]])


class Query(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """One vector from source and relation, and the loss that regularises both."""

    def __init__(self, combine: Combine, *, n3: float, l2: float, complex_valued: bool, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._combine, self._n3, self._l2, self._complex_valued = combine, n3, l2, complex_valued

    def call(self, inputs: list[Any]) -> Any:
        """Takes source and relation, [B, dim], and optionally 1 for inverse relations, [B, 1]; returns [B, dim]."""
        source, relation, *inverse = inputs
        sign = 1 - 2 * inverse[0] if inverse else None
        if self._n3 or self._l2:
            # The mean over the batch, as Keras adds it to the loss unchanged.
            self.add_loss(keras.ops.mean(self._penalty(source) + self._penalty(relation)))
        return self._combine(source, relation, sign)

    def _penalty(self, x: Any) -> Any:
        squares = keras.ops.square(x)
        penalty = self._l2 * keras.ops.sum(squares, axis=-1)
        if self._n3:
            if self._complex_valued:
                real, imaginary = keras.ops.split(squares, 2, axis=-1)
                squares = real + imaginary
            penalty += self._n3 * keras.ops.sum(keras.ops.power(squares, 1.5), axis=-1)
        return penalty


def _query(model: KnowledgeGraph, activations: Activations, combine: Combine, head: Head) -> Any:
    inputs = [activations[SOURCE], activations[RELATION]]
    if DENSE in activations:
        inputs.append(activations[DENSE])
    query = Query(
        combine,
        n3=0.0 if model.n3 == "auto" else model.n3,
        l2=model.l2,
        complex_valued=model.complex_valued,
        name="head.query",
    )(inputs)
    # The layer's name seeds its dropout, so it must not change: equal specs give equal bits.
    return models.dropped(query, model.dropout, seed=head.seed, name="head.question.dropout")


def _translated(source: Any, relation: Any, sign: Any) -> Any:
    return source + (relation if sign is None else relation * sign)


def _scaled(source: Any, relation: Any, sign: Any) -> Any:
    return source * relation


def _rotated(source: Any, relation: Any, sign: Any) -> Any:
    """The product of complex numbers, with the conjugates of inverse relations."""
    a, b = keras.ops.split(source, 2, axis=-1)
    c, d = keras.ops.split(relation, 2, axis=-1)
    d = d if sign is None else d * sign
    return keras.ops.concatenate([a * c - b * d, a * d + b * c], axis=-1)


def _turned(source: Any, relation: Any, sign: Any) -> Any:
    """The product of complex numbers, where those of relations are divided by their moduli."""
    modulus = _modulus(relation)
    return _rotated(source, relation / keras.ops.concatenate([modulus, modulus], axis=-1), sign)


def _norm(model: TransE) -> Distance:
    return absolute if model.norm == 1 else euclidean


def _modulus(numbers: Any) -> Any:
    """Moduli of complex numbers, whose real parts come first: [..., dim] -> [..., dim / 2]."""
    real, imaginary = keras.ops.split(keras.ops.square(numbers), 2, axis=-1)
    return keras.ops.sqrt(keras.ops.maximum(real + imaginary, _TINY))


_TRIED = 16
"""Number of queries on which the bits of both ways are compared."""


class Products(SharedProducts):
    """Scalar products, also with candidates of each query's own."""

    def call(self, inputs: list[Any], training: bool | None = None) -> Any:
        """Takes the vectors and the candidates."""
        if inputs[1].shape[0] == 1:
            return super().call(inputs)
        return products_of_own(*inputs, training=bool(training))


class Distances(Scoring):
    """Margin minus distances.

    They are computed from differences, as small distances would lose their digits in matrix products.
    """

    def __init__(self, distance: Distance, margin: float, **kwargs: Any) -> None:
        """Takes the distance, as a function of differences, and the score of a distance of 0."""
        super().__init__(**kwargs)
        self._distance, self._margin = distance, margin

    def call(self, inputs: list[Any], training: bool | None = None) -> Any:
        """Takes the vectors and the candidates."""
        query, candidates = inputs
        if candidates.shape[0] != 1 and self._distance is absolute:
            return self._margin - absolute_of_own(query, candidates, training=bool(training))
        if candidates.shape[0] != 1 or self.is_small(query, candidates):
            return self._plain(query, candidates)
        return self.scores(query, candidates[0])

    def scores(self, query: Any, candidates: Any) -> Any:
        """By blocks of candidates."""
        blocks = _Blocks(query, candidates)

        def add(number: Any, found: Any) -> Any:
            return number + 1, found.write(number, self._plain(query, blocks.candidates[number][None]))

        first = tf.TensorArray(tf.float32, blocks.count)
        _, found = tf.while_loop(lambda number, _: number < blocks.count, add, (0, first), parallel_iterations=1)
        scores = tf.reshape(tf.transpose(found.stack(), [1, 0, 2]), [tf.shape(query)[0], -1])
        return tf.ensure_shape(scores[:, : blocks.rows], [query.shape[0], candidates.shape[0]])

    def gradients(self, query: Any, candidates: Any, upstream: Any, weights: Any) -> tuple[Any, Any]:
        """By blocks of candidates, whose differences are made again."""
        blocks = _Blocks(query, candidates)
        upstream = tf.pad(weights * upstream, [[0, 0], [0, blocks.padding]])
        upstream = tf.reshape(upstream, [tf.shape(query)[0], blocks.count, blocks.width])

        def add(number: Any, of_query: Any, found: Any) -> Any:
            some = blocks.candidates[number]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch((query, some))
                scores = self._plain(query, some[None])
            own, theirs = tape.gradient(scores, (query, some), upstream[:, number])
            return number + 1, of_query + own, found.write(number, theirs)

        first = (0, tf.zeros_like(query), tf.TensorArray(tf.float32, blocks.count))
        _, of_query, found = tf.while_loop(lambda number, *_: number < blocks.count, add, first, parallel_iterations=1)
        of_candidates = tf.reshape(found.stack(), [-1, candidates.shape[1]])[: blocks.rows]
        return of_query, tf.ensure_shape(of_candidates, candidates.shape)

    def is_small(self, query: Any, candidates: Any) -> bool:
        """Whether the differences take at most `DIFFERENCES` bytes."""
        batch, count = query.shape[0], candidates.shape[1]
        return None not in (batch, count) and 4 * batch * count * query.shape[1] <= DIFFERENCES

    def _plain(self, query: Any, candidates: Any) -> Any:
        return self._margin - self._distance(query[:, None, :] - candidates)


class Turns(Distances):
    """Margin minus distances of RotatE between sources and answers, for relations as candidates.

    Takes source and answer one after the other, [B, 2 dim], and relations [..., dim].
    """

    def _plain(self, query: Any, candidates: Any) -> Any:
        source, answer = tf.split(query[:, None, :], 2, axis=-1)
        return self._margin - moduli(_turned(source, candidates, None) - answer)


class _Blocks:
    """Candidates in blocks of equal size; the last one is padded with zeros.

    Attributes:
        rows: number of candidates.
        width: candidates in each block.
        count: number of blocks.
        padding: rows of zeros in the last block.
        candidates: float32 [count, width, dim].
    """

    def __init__(self, query: Any, candidates: Any) -> None:
        dim = candidates.shape[1]
        batch, self.rows = (each.shape[0] or tf.shape(each)[0] for each in (query, candidates))
        if isinstance(batch, int) and isinstance(self.rows, int):
            self.width: Any = min(max(1, DIFFERENCES // (4 * batch * dim)), self.rows)
        else:
            self.width = tf.clip_by_value(DIFFERENCES // (4 * dim) // batch, 1, tf.maximum(1, self.rows))
        self.count = -(-self.rows // self.width)
        self.padding = self.count * self.width - self.rows
        self.candidates = tf.reshape(tf.pad(candidates, [[0, self.padding], [0, 0]]), [self.count, self.width, dim])


def products_of_own(query: Any, candidates: Any, *, training: bool) -> Any:
    """Scalar products, [B, C], of queries [B, d] with candidates [B, C, d].

    Args:
        query: float32.
        candidates: float32.
        training: whether a gradient is wanted; what is exported has TensorFlow's own operations only.
    """
    return _scores("products", query, candidates, training)


def absolute_of_own(query: Any, candidates: Any, *, training: bool) -> Any:
    """The same of sums of absolute differences."""
    return _scores("absolute", query, candidates, training)


def _scores(kind: str, query: Any, candidates: Any, training: bool) -> Any:
    count, dim = candidates.shape[1:]
    if training and count and models.usable("candidates") and _same_bits(kind, count, dim):
        return _by_library(kind)(query, candidates)
    return _PLAIN[kind](query, candidates)


def _plain_products(query: Any, candidates: Any) -> Any:
    return keras.ops.squeeze(keras.ops.matmul(candidates, query[:, :, None]), axis=-1)


def _plain_absolute(query: Any, candidates: Any) -> Any:
    return absolute(query[:, None, :] - candidates)


_PLAIN = {"products": _plain_products, "absolute": _plain_absolute}


@functools.cache
def _by_library(kind: str) -> Any:
    """The same with `native_code/candidates.cc`, which reads the candidates once, and once more for their gradients."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def scores(query: Any, candidates: Any) -> Any:
        library = native.library("candidates")
        gradient = functools.partial(library.embexp_own_scores_grad, query, candidates, kind=kind)
        return library.embexp_own_scores(query, candidates, kind=kind), lambda upstream: tuple(gradient(upstream))

    return scores


@functools.cache
def _same_bits(kind: str, count: int, dim: int) -> bool:
    """Whether both ways give the same bits: if products are fused multiply-adds in order, and sums are Eigen's."""
    random = np.random.default_rng(0)
    query, candidates, upstream = (
        random.standard_normal((_TRIED, *shape)).astype(np.float32) for shape in ((dim,), (count, dim), (count,))
    )
    return models.same_bits(_by_library(kind), _PLAIN[kind], (query, candidates), upstream)


def absolute(differences: Any) -> Any:
    """The sum of absolute differences."""
    return keras.ops.sum(keras.ops.abs(differences), axis=-1)


def euclidean(differences: Any) -> Any:
    """The root of the sum of squared differences."""
    squared = keras.ops.sum(keras.ops.square(differences), axis=-1)
    return keras.ops.sqrt(keras.ops.maximum(squared, _TINY))


def moduli(differences: Any) -> Any:
    """The sum of the moduli of complex differences."""
    return keras.ops.sum(_modulus(differences), axis=-1)


def in_step(model: keras.Model, settings: KnowledgeGraph, inputs: Collection[str]) -> dict[str, Any]:
    """The parts of a step of such a model: see `DenseModel.in_step`."""
    predicts = ALL_RELATIONS in inputs
    return {
        "loss_of_inputs": OneVsAll(model, settings.loss, settings.label_smoothing),
        "relation_prediction": RelationPrediction(settings) if predicts else None,
    }


class RelationPrediction:
    """-log p[relation] of a query's source and answer, times a weight: the mean over the queries.

    p is the softmax of the scores of all relations between source and answer; where inverse relations have rows, every
    second one, only those of the same direction. See Chen et al.: "Relation prediction as an auxiliary training
    objective for improving multi-relational graph representations" (2021), eq. 2, where the weight is lambda.
    """

    def __init__(self, model: KnowledgeGraph) -> None:
        """Takes a model's description."""
        self._weight, self._between, self._scoring = model.relation_prediction, *_relations(model)

    def __call__(self, inputs: Mapping[str, Any], relations: Any, asked: Any, labels: Any) -> Any:
        """The loss, a float32 scalar.

        Args:
            inputs: of the whole model.
            relations: the rows of all relations, [1, R, dim].
            asked: integers [B], the queries' relations.
            labels: of the loss of candidates: the answers' positions among these, [B], or of shared candidates [C, 2].
        """
        source, candidates = inputs[SOURCE], inputs[CANDIDATES]
        if labels.shape.rank == 2:
            answer = candidates[0, : tf.shape(source)[0]]
        elif candidates.shape[0] == 1:
            answer = tf.gather(tf.squeeze(candidates, 0), tf.cast(labels, tf.int32))
        else:
            answer = candidates[:, 0]
        numbers = tf.range(tf.shape(relations)[1])
        if DENSE in inputs:
            pair, others = self._between(source, answer, 1 - 2 * inputs[DENSE]), None
        else:
            pair, others = self._between(source, answer, None), (tf.cast(asked, tf.int32)[:, None] - numbers) % 2 == 1
        own = self._scoring([pair, inputs[RELATION][:, None]])[:, 0]
        return self._weight * tf.reduce_mean(self._normalizer(pair, tf.squeeze(relations, 0), others) - own)

    def _normalizer(self, pair: Any, relations: Any, others: Any) -> Any:
        """The logarithms of the softmax denominators, [B]. Their gradients are computed in bounded memory.

        Args:
            others: bool [B, R], the relations that may not be predicted; None: all may be predicted.
        """

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def normalizer(pair: Any, relations: Any) -> Any:
            scores = self._scoring.scores(pair, relations)
            if others is not None:
                scores = tf.where(others, scores.dtype.min, scores)

            def gradients(upstream: Any) -> Any:
                return self._scoring.gradients(pair, relations, tf.nn.softmax(scores), upstream[:, None])

            return tf.reduce_logsumexp(scores, 1), gradients

        return normalizer(pair, relations)


def _relations(model: KnowledgeGraph) -> tuple[Combine, Scoring]:
    """Two functions: one combines source and answer like `Combine`, and one scores the result with relations."""
    match model:
        case TransE():
            return _difference, Distances(_norm(model), model.margin)
        case ComplEx():
            return _quotient, Products()
        case RotatE():
            return _both, Turns(moduli, model.margin)
    return _scaled, Products()


def _difference(source: Any, answer: Any, sign: Any) -> Any:
    """|s + r - o| = |(o - s) - r|, and |s - r - o| = |(s - o) - r|."""
    return answer - source if sign is None else (answer - source) * sign


def _quotient(source: Any, answer: Any, sign: Any) -> Any:
    """Re(s r conj(o)) is the dot product of conj(s) o and r; Re(s conj(r) conj(o)) is that of s conj(o) and r."""
    a, b = tf.split(source, 2, axis=-1)
    c, d = tf.split(answer, 2, axis=-1)
    imaginary = a * d - b * c
    return tf.concat([a * c + b * d, imaginary if sign is None else imaginary * sign], -1)


def _both(source: Any, answer: Any, sign: Any) -> Any:
    """|s conj(r) - o| = |conj(s) r - conj(o)|."""
    if sign is None:
        return tf.concat([source, answer], -1)
    parts = [each for both in (source, answer) for each in tf.split(both, 2, axis=-1)]
    return tf.concat([parts[0], parts[1] * sign, parts[2], parts[3] * sign], -1)


def of_queries(model: KnowledgeGraph, task: Task) -> Loss:
    """The loss of a model of knowledge graphs."""
    return ranking(model.loss, model.label_smoothing)


def ranking(kind: RankingLoss, label_smoothing: float) -> Loss:
    """The loss of queries with candidates: the mean over the queries, a scalar.

    Args:
        kind: softmax: -sum over c of y[c] log p[c] with p = softmax(scores). binary: the mean over c of
            -y[c] log p[c] - (1 - y[c]) log(1 - p[c]) with p = sigmoid(scores).
        label_smoothing: e in y[c] = (1 - e) [c is the answer] + e / C (Szegedy et al. 2016).

    Returns:
        A function of labels, float32 [B], the answers' positions among the candidates, and scores, [B, C]; or of the
        labels and scores of `over_shared`.
    """

    def mean(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
        scores = tf.cast(scores, tf.float32)
        if labels.shape.rank == 2:
            return over_shared(labels, scores)
        if kind is RankingLoss.SOFTMAX and not label_smoothing:
            return tf.reduce_mean(softmax_log_loss(labels, scores))  # this needs no targets [B, C]
        candidates = tf.shape(scores)[1]
        share = label_smoothing / tf.cast(candidates, tf.float32)
        targets = tf.one_hot(tf.cast(labels, tf.int32), candidates, 1.0 - label_smoothing + share, share)
        if kind is RankingLoss.SOFTMAX:
            return tf.reduce_mean(tf.nn.softmax_cross_entropy_with_logits(labels=targets, logits=scores))
        each = tf.nn.sigmoid_cross_entropy_with_logits(labels=targets, logits=scores)
        return tf.reduce_mean(tf.reduce_mean(each, axis=1))

    return mean


def over_shared(labels: tf.Tensor, scores: tf.Tensor) -> tf.Tensor:
    """The mean of -log softmax of each query's answer over all entities, estimated from B + k candidates of a batch.

    An entity that is a candidate m times, where a step is expected to have it q times, counts m / q times in the sum of
    exp(score), so that its expectation is the sum over all entities; the answer itself counts once, as it is. See
    Bengio and Senécal: "Adaptive importance sampling to accelerate training of a neural probabilistic language model"
    (2008), for one distribution; q here is the sum of those of the answers of a batch, and of k uniform draws.

    Args:
        labels: float32 [B + k, 2], of each candidate the entity, and log q. Candidate i is the answer of query i.
        scores: float32 [B, B + k].
    """
    batch = tf.shape(scores)[0]
    answers = tf.linalg.diag_part(scores)
    same = tf.equal(labels[:batch, :1], labels[None, :, 0])
    others = tf.where(same, scores.dtype.min, scores - labels[None, :, 1])
    return tf.reduce_mean(tf.reduce_logsumexp(tf.concat([answers[:, None], others], 1), 1) - answers)
