"""The loss of queries whose candidates are all entities (1-vs-all), in bounded memory.

Scores [B, C] of many entities are large, and so are their gradients. Here both are made for a block of queries at a
time: the gradients of the loss by the queries' vectors and by the entities follow at once from the block's scores, and
are kept instead of them. For products this takes exactly three matrix products, those of any backward pass.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import tensorflow as tf

from embexp.models.scoring import Scoring
from embexp.specs.models import RankingLoss
from embexp.specs.triples import CANDIDATES

BLOCK = 32 << 20
"""Bytes of scores in a block of queries. There are two of them at a time, scores and gradients. Smaller blocks would
add the gradients of all entities, which are as large as the table, more often."""


class OneVsAll:
    """The mean loss of a batch, computed by blocks of queries.

    Attributes:
        query: model of the queries' vectors, [B, dim], with its own losses; it shares the layers of the whole model.
    """

    def __init__(self, model: keras.Model, kind: RankingLoss, label_smoothing: float) -> None:
        """Takes a model of knowledge graphs, and the settings of `losses.ranking`."""
        self._scoring = next(layer for layer in model.layers if isinstance(layer, Scoring))
        inputs = {each.name: each for each in model.inputs if each.name != CANDIDATES}
        self.query = keras.Model(inputs=inputs, outputs=self._scoring.input[0], name="queries")
        self._kind, self._smoothing = kind, label_smoothing

    def takes(self, inputs: Mapping[str, Any]) -> bool:
        """Whether a batch has so many candidates, the same for all queries, that blocks are needed."""
        candidates = inputs[CANDIDATES]
        some_query = next(value for name, value in inputs.items() if name != CANDIDATES)
        query = tf.TensorSpec([some_query.shape[0], candidates.shape[-1]])
        return candidates.shape[0] == 1 and not self._scoring.is_small(query, candidates)

    def __call__(self, inputs: Mapping[str, Any], labels: Any) -> Any:
        """The mean loss, a scalar, with the query model's own losses.

        Args:
            inputs: of the whole model, with candidates [1, C, dim].
            labels: float32 [B], rows of the answers.
        """
        query = self.query({name: value for name, value in inputs.items() if name != CANDIDATES}, training=True)
        loss = self._mean(query, inputs[CANDIDATES][0], tf.cast(labels, tf.int32))
        return tf.add_n([loss, *(tf.cast(each, loss.dtype) for each in self.query.losses)])

    def _mean(self, query: Any, candidates: Any, answers: Any) -> Any:
        @tf.custom_gradient  # type: ignore[untyped-decorator]
        def mean(query: Any, candidates: Any) -> Any:
            loss, of_query, of_candidates = self._all(query, candidates, answers)
            return loss, lambda upstream: (upstream * of_query, upstream * of_candidates)

        return mean(query, candidates)

    def _all(self, query: Any, candidates: Any, answers: Any) -> tuple[Any, Any, Any]:
        """The mean loss and its gradients by queries and candidates."""
        size = query.shape[0] or tf.shape(query)[0]
        rows = _rows(candidates.shape[0] or tf.shape(candidates)[0], size)
        count = -(-size // rows)
        scale = 1.0 / tf.cast(size, tf.float32)

        def add(number: Any, loss: Any, of_query: Any, of_candidates: Any) -> Any:
            some = slice(number * rows, tf.minimum((number + 1) * rows, size))
            mine = query[some]
            scores = self._scoring.scores(mine, candidates)
            each, upstream = _loss_and_gradient(self._kind, self._smoothing, scores, answers[some])
            own, theirs = self._scoring.gradients(mine, candidates, upstream)
            return number + 1, loss + tf.reduce_sum(each), of_query.write(number, own), of_candidates + theirs

        found = tf.TensorArray(tf.float32, count, infer_shape=False, element_shape=[None, query.shape[1]])
        first = (0, tf.constant(0.0), found, tf.zeros_like(candidates))
        loop = tf.while_loop(lambda number, *_: number < count, add, first, parallel_iterations=1)
        _, loss, found, of_candidates = loop
        return loss * scale, tf.ensure_shape(found.concat(), query.shape) * scale, of_candidates * scale


def _rows(candidates: Any, queries: Any) -> Any:
    """Queries in a block."""
    if isinstance(candidates, int) and isinstance(queries, int):
        return min(max(1, BLOCK // (4 * candidates)), queries)
    return tf.clip_by_value(BLOCK // 4 // candidates, 1, queries)


def _loss_and_gradient(kind: RankingLoss, smoothing: float, scores: Any, answers: Any) -> tuple[Any, Any]:
    """The loss of each query, [b], see `losses.ranking`, and its gradient by the scores [b, C]."""
    count = tf.cast(tf.shape(scores)[1], tf.float32)
    places = tf.stack([tf.range(tf.shape(scores)[0]), answers], 1)
    own = tf.gather_nd(scores, places)
    if kind is RankingLoss.SOFTMAX:
        loss, gradient = tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=scores, labels=answers)
        if not smoothing:
            return loss, gradient
        loss += smoothing * (own - tf.reduce_mean(scores, 1))
        gradient = tf.tensor_scatter_nd_add(gradient, places, tf.fill(tf.shape(answers), smoothing))
        return loss, gradient - smoothing / count
    share = smoothing / count
    answered = tf.fill(tf.shape(answers), 1.0 - smoothing)
    loss = tf.reduce_mean(tf.nn.softplus(scores) - share * scores, 1) - (1.0 - smoothing) * own / count
    gradient = tf.tensor_scatter_nd_sub(tf.sigmoid(scores) - share, places, answered)
    return loss, gradient / count
