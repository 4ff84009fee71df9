"""Queries whose candidates are all entities (1-vs-all, KvsAll): their loss and their ranks, in bounded memory.

Scores [B, C] of many entities are large, and so are their gradients. Here both are made for a block of queries at a
time: the gradients of the loss by the queries' vectors and by the entities follow at once from the block's scores, and
are kept instead of them. For products this takes exactly three matrix products, those of any backward pass.

How an answer stands among all entities, counted where the scores are, in bounded memory. Scores [B, C] are compared as
they are and dropped, so only one number for each query leaves the device. The score of an answer is taken from those of
all entities: computed by itself it could differ in its last bit, and lose its ties.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from embexp.specs.footprint import ROWS, TRAINED_SCORES
from embexp.specs.models import RankingLoss
from embexp.specs.tasks import CANDIDATES
from embexp.tables.row_updates import add_at

SMALL = 16 << 20
"""Bytes of scores up to which a training step makes them all at once, with their gradients."""
_LEAST_LIKELIHOOD = 1e-30
"""Below this, float32 has lost some or all digits of a likelihood."""


class Scoring(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """Scores of candidates, [B, C], from vectors [B, dim] and candidates [1, C, dim] or [B, C, dim]."""

    @abstractmethod
    def scores(self, query: Any, candidates: Any) -> Any:
        """Scores [B, C] of candidates [C, dim] that all queries share."""

    @abstractmethod
    def gradients(self, query: Any, candidates: Any, upstream: Any, weights: Any) -> tuple[Any, Any]:
        """Gradients of sum(weights * upstream * scores) by `query` [B, dim] and by `candidates` [C, dim].

        Args:
            query: [B, dim].
            candidates: [C, dim].
            upstream: [B, C].
            weights: of each query, [B, 1]; apart from upstream, as that would be one more pass over [B, C].
        """

    @abstractmethod
    def is_small(self, query: Any, candidates: Any) -> bool:
        """Whether `call` makes little at once of these: [B, dim] and [1, C, dim], with shapes that are known."""


class SharedProducts(Scoring):
    """Scalar products with candidates that all queries share."""

    def call(self, inputs: list[Any], training: bool | None = None) -> Any:
        """Takes the vectors and the candidates [1, C, dim]: one matrix product."""
        query, candidates = inputs
        return keras.ops.matmul(query, keras.ops.transpose(candidates[0]))

    def scores(self, query: Any, candidates: Any) -> Any:
        """One matrix product."""
        return tf.matmul(query, candidates, transpose_b=True)

    def gradients(self, query: Any, candidates: Any, upstream: Any, weights: Any) -> tuple[Any, Any]:
        """Two matrix products, one after the other: each takes all threads."""
        own = weights * tf.matmul(upstream, candidates)
        with tf.control_dependencies([own]):
            return own, tf.matmul(upstream, weights * query, transpose_a=True)

    def is_small(self, query: Any, candidates: Any) -> bool:
        """Whether the scores take at most `SMALL` bytes."""
        batch, count = query.shape[0], candidates.shape[1]
        return None not in (batch, count) and 4 * batch * count <= SMALL


class OneVsAll:
    """The mean loss of a batch, computed by blocks of queries.

    Attributes:
        query: model of the queries' vectors, [B, dim], with its own losses; it shares the layers of the whole model.
    """

    def __init__(self, model: keras.Model, kind: RankingLoss, label_smoothing: float) -> None:
        """Takes a model of knowledge graphs, and the settings of `fields.graphs.models.ranking`."""
        self._scoring = next(layer for layer in model.layers if isinstance(layer, Scoring))
        inputs = {each.name: each for each in model.inputs if each.name != CANDIDATES}
        self.query = keras.Model(inputs=inputs, outputs=self._scoring.input[0], name="queries")
        self._kind, self._smoothing = kind, label_smoothing

    def takes(self, inputs: Mapping[str, Any], labels: Any) -> bool:
        """Whether all entities are candidates of a batch, and so many that blocks are needed."""
        candidates = inputs[CANDIDATES]
        if labels.shape.rank == 2:  # shared negatives
            return False
        some_query = next(value for name, value in inputs.items() if name != CANDIDATES)
        query = tf.TensorSpec([some_query.shape[0], candidates.shape[-1]])
        return candidates.shape[0] == 1 and not self._scoring.is_small(query, candidates)

    def __call__(self, inputs: Mapping[str, Any], labels: Any, known: Any = None) -> Any:
        """The mean loss, a scalar, with the query model's own losses.

        Args:
            inputs: of the whole model, with candidates [1, C, dim].
            labels: float32 [B], rows of the answers.
            known: ragged integers [B, None], all positives of each query, each once (KvsAll); None: its answer only.
        """
        query = self.query({name: value for name, value in inputs.items() if name != CANDIDATES}, training=True)
        # Reshaped, not sliced, whose gradient would be a copy of all rows.
        loss = self.mean(query, tf.squeeze(inputs[CANDIDATES], 0), tf.cast(labels, tf.int32), known)
        return tf.add_n([loss, *(tf.cast(each, loss.dtype) for each in self.query.losses)])

    def mean(self, query: Any, candidates: Any, answers: Any, known: Any = None) -> Any:
        """The mean loss of queries by their vectors, a scalar, whose gradients are made with it.

        Args:
            query: float32 [B, dim].
            candidates: float32 [C, dim].
            answers: int32 [B], rows of the candidates.
            known: see `__call__`.
        """

        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def mean(query: Any, candidates: Any) -> Any:
            loss, of_query, of_candidates = self._all(query, candidates, answers, known)

            def gradients(upstream: Any) -> Any:
                if tf.get_static_value(upstream) == 1:
                    return of_query, of_candidates
                return upstream * of_query, upstream * of_candidates

            return loss, gradients

        return mean(query, candidates)

    def _all(self, query: Any, candidates: Any, answers: Any, known: Any) -> tuple[Any, Any, Any]:
        """The mean loss, and its gradients by queries and by candidates."""
        size = query.shape[0] or tf.shape(query)[0]
        rows = _rows(candidates.shape[0] or tf.shape(candidates)[0], size)
        count = -(-size // rows)
        scale = 1.0 / tf.cast(size, tf.float32)

        def block(start: Any, stop: Any) -> Any:
            mine = query[start:stop]
            scores = self._scoring.scores(mine, candidates)
            positives = _positives(answers, known, start, stop)
            each, upstream, weights = _loss_and_gradient(self._kind, self._smoothing, scores, positives)
            return tf.reduce_sum(each), *self._scoring.gradients(mine, candidates, upstream, weights * scale)

        if isinstance(count, int) and count == 1:
            loss, of_query, of_candidates = block(0, size)
            return loss * scale, of_query, of_candidates

        def add(number: Any, loss: Any, of_query: Any, of_candidates: Any) -> Any:
            more, own, theirs = block(number * rows, tf.minimum((number + 1) * rows, size))
            return number + 1, loss + more, of_query.write(number, own), of_candidates + theirs

        found = tf.TensorArray(tf.float32, count, infer_shape=False, element_shape=[None, query.shape[1]])
        first = (0, tf.constant(0.0), found, tf.zeros_like(candidates))
        loop = tf.while_loop(lambda number, *_: number < count, add, first, parallel_iterations=1)
        _, loss, found, of_candidates = loop
        return loss * scale, tf.ensure_shape(found.concat(), query.shape), of_candidates


@dataclass(frozen=True, eq=False)
class _Positives:
    """The positives of a block of b queries.

    Attributes:
        answers: one positive per query, int32 [b].
        query: the query of each positive, int32 [m]; None: there are no positives besides the answers.
        rows: the positives, int32 [m].
        counts: number of positives per query, float32 [b].
    """

    answers: Any
    query: Any = None
    rows: Any = None
    counts: Any = None


def _positives(answers: Any, known: Any, start: Any, stop: Any) -> _Positives:
    """The positives of the queries [start, stop)."""
    if known is None:
        return _Positives(answers[start:stop])
    splits = tf.cast(known.row_splits, tf.int32)[start : stop + 1]
    lengths = splits[1:] - splits[:-1]
    rows = tf.cast(known.values[splits[0] : splits[-1]], tf.int32)
    query = tf.repeat(tf.range(stop - start), lengths)
    return _Positives(answers[start:stop], query, rows, tf.cast(lengths, tf.float32))


def _rows(candidates: Any, queries: Any) -> Any:
    """Number of queries in a block."""
    if isinstance(candidates, int) and isinstance(queries, int):
        most = max(1, TRAINED_SCORES // (4 * candidates))
        return -(-queries // -(-queries // most))  # as equal as possible
    return tf.clip_by_value(TRAINED_SCORES // 4 // candidates, 1, queries)


def _loss_and_gradient(kind: RankingLoss, smoothing: float, scores: Any, positives: _Positives) -> tuple[Any, Any, Any]:
    """The loss of each query, [b], and its gradient by the scores as two factors, [b, C] and [b, 1].

    The target is y = (1 - e) t + e / C, where t is 1 (binary) or 1 / K (softmax) for each of K positives. See
    `fields.graphs.models.ranking`, and for K > 1 Dettmers et al. 2018 and Ruffinelli et al. 2020.
    """
    answers, count = positives.answers, tf.cast(tf.shape(scores)[1], tf.float32)
    softmax = kind is RankingLoss.SOFTMAX
    each = tf.range(tf.size(answers))
    own = tf.stack([each, answers], 1)
    if positives.query is None:
        query, places, share = each, own, tf.ones_like(answers, tf.float32)
    else:
        query, places = positives.query, tf.stack([positives.query, positives.rows], 1)
        share = tf.gather(1.0 / positives.counts, query) if softmax else tf.ones_like(query, tf.float32)
    target = tf.math.unsorted_segment_sum(share * tf.gather_nd(scores, places), query, tf.size(answers))
    if not softmax:
        loss = (
            tf.reduce_mean(tf.nn.softplus(scores) - smoothing / count * scores, 1) - (1.0 - smoothing) * target / count
        )
        gradient = tf.sigmoid(scores) - smoothing / count if smoothing else tf.sigmoid(scores)
        gradient = add_at(gradient, places, (smoothing - 1.0) * share)
        return loss, gradient, tf.fill([tf.size(answers), 1], 1.0 / count)
    # The likelihood of an answer gives the logarithm of the denominator without another pass over [b, C].
    gradient = tf.nn.softmax(scores)
    likelihood, score = tf.gather_nd(gradient, own), tf.gather_nd(scores, own)
    normalizer = tf.cond(
        tf.reduce_all(likelihood > _LEAST_LIKELIHOOD),
        lambda: score - tf.math.log(likelihood),
        lambda: tf.reduce_logsumexp(scores, 1),
    )
    loss = normalizer - (1.0 - smoothing) * target
    if smoothing:
        loss -= smoothing * tf.reduce_mean(scores, 1)
        gradient -= smoothing / count
    with tf.control_dependencies([likelihood]):  # nothing else reads the softmax, so it is changed in place
        return loss, add_at(gradient, places, (smoothing - 1.0) * share), tf.ones([tf.size(answers), 1])


def block_rows(entities: int, dim: int) -> int:
    """Entities whose rows are gathered at once; at least 1."""
    return max(1, min(entities, ROWS // (4 * dim)))


@dataclass(frozen=True)
class Part:
    """The candidates that this process scores, of those that it and others share.

    Attributes:
        count: how many they are; they have numbers of their own below it.
        places: from candidates, integers [n], to those of them that are here: which of the n, and their own numbers,
            integers [m] both.
        summed: from float32 [B] to its sum over all processes; the argument is 0 for the first sum of a step, then 1.
    """

    count: int
    places: Callable[[Any], tuple[Any, Any]]
    summed: Callable[[Any, int], Any]

    @classmethod
    def whole(cls, entities: int) -> Part:
        """All candidates."""
        return cls(entities, lambda ids: (tf.range(tf.size(ids)), ids), lambda values, number: values)


def standings(score: Callable[[int, int], Any], part: Part, block: int, answers: Any, known: Any) -> Any:
    """Candidates with a higher score minus those with a lower one, by query; NaN if the scores have no finite sum.

    Each process counts its own candidates, and they add whole numbers: so it makes no difference how they share them.

    Args:
        score: from [start, stop) to the scores of these candidates of the part, float32 [B, stop - start]; called for
            each block.
        part: of all candidates at most 2^24, up to which float32 counts exactly.
        block: candidates in each block.
        answers: int32 [B].
        known: ragged integers [B, None], all known answers of each query, each once. They are no candidates; whether
            the answer itself is among them makes no difference.

    Returns:
        float32 [B], whole numbers.
    """
    parts: list[Any] = []
    for start in range(0, max(1, part.count), block):  # scores have a shape even without candidates
        with tf.control_dependencies(parts[-1:]):  # one block of rows at a time
            parts.append(score(start, min(start + block, part.count)))
    scores = parts[0] if len(parts) == 1 else tf.concat(parts, 1)
    queries = tf.size(answers)
    query, place = part.places(answers)
    found = tf.gather_nd(scores, tf.stack([query, place], 1))
    own = part.summed(tf.math.unsorted_segment_sum(found, query, queries), 0)
    standing = tf.reduce_sum(_sign(scores, own[:, None]), 1)
    which, place = part.places(tf.cast(known.values, tf.int32))
    query = tf.gather(tf.cast(known.value_rowids(), tf.int32), which)
    removed = tf.gather_nd(scores, tf.stack([query, place], 1))
    standing -= tf.math.unsorted_segment_sum(_sign(removed, tf.gather(own, query)), query, queries)
    # No sum of infinities is finite. Scores of 1e33 could overflow in theirs; they mean a training gone wrong, too.
    return part.summed(tf.where(tf.math.is_finite(tf.reduce_sum(scores, 1)), standing, float("nan")), 1)


def _sign(scores: Any, own: Any) -> Any:
    """1 if a score is higher, -1 if it is lower, 0 if they tie, NaN if one is NaN."""
    return tf.sign(scores - own)
