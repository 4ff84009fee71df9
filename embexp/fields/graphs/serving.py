"""A served model of a knowledge graph: scores of triples, and the best entities for queries.

In a model of a knowledge graph with inverse relations in the table (`data.reciprocal`), a triple has two scores, that
of its tail for (head, relation) and that of its head for (tail, inverse relation). The score of a triple is the former.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.data.batches import Batch
from embexp.fields.graphs.specs import Triples
from embexp.runs.serving import LENGTH, Pieces, Served, Signatures, lengths, longest, traced, with_same_counts
from embexp.specs.tasks import CANDIDATES, RELATION, SOURCE


def model(pieces: Pieces) -> TripleModel:
    """The model of a run."""
    data, ids = pieces.run.spec.data, pieces.columns.ids
    assert isinstance(data, Triples)  # a rule between the settings
    entities = ids[SOURCE]
    return TripleModel(
        pieces.step.predict,
        pieces.vocabularies[entities],
        pieces.vocabularies[ids[RELATION]],
        pieces.run.vocabulary(entities).tokens(),
        reciprocal=data.reciprocal,
        parts=pieces.parts,
    )


class TripleModel(tf.Module):  # type: ignore[misc]  # TensorFlow is untyped
    """A model that scores triples."""

    def __init__(
        self,
        predict: Callable[[Batch], Any],
        entities: Served,
        relations: Served,
        names: Sequence[str],
        *,
        reciprocal: bool,
        parts: Sequence[Any],
    ) -> None:
        """Takes the pieces of a model.

        Args:
            predict: computes scores [B, C] of candidates [1, C] or [B, C].
            names: of the entities, by row.
            reciprocal: whether each relation's inverse has the row after it.
            parts: what holds the variables that `predict` reads.
        """
        super().__init__()
        self._predict, self._reciprocal = predict, reciprocal
        self._entities, self._relations, self._parts = entities, relations, list(parts)
        with tf.device("/cpu:0"):
            self._names = tf.Variable(list(names), trainable=False, dtype=tf.string, name="entities")

    def signatures(self) -> Signatures:
        """Traces the signatures; those with `k` return the best k entities and their scores, best first."""
        tokens, rows = tf.TensorSpec([None], tf.string), tf.TensorSpec([None], tf.int64)
        return {
            "serving_default": traced(self._triples, head=tokens, relation=tokens, tail=tokens),
            "serving_ids": traced(self._triples, head=rows, relation=rows, tail=rows),
            "tails": traced(self._tails, head=tokens, relation=tokens, k=LENGTH),
            "heads": traced(self._heads, relation=tokens, tail=tokens, k=LENGTH),
        }

    def _triples(self, head: Any, relation: Any, tail: Any) -> dict[str, Any]:
        given = with_same_counts({"head": head, "relation": relation, "tail": tail})
        head, relation = self._entities.rows(given["head"]), self._relations.rows(given["relation"])
        scores = self._scores(head, relation, self._entities.rows(given["tail"])[:, None], inverse=False)
        return {"predictions": tf.reshape(scores, [-1])}

    def _tails(self, head: Any, relation: Any, k: Any) -> dict[str, Any]:
        given = with_same_counts({"head": head, "relation": relation})
        return self._best(given["head"], given["relation"], k, inverse=False)

    def _heads(self, relation: Any, tail: Any, k: Any) -> dict[str, Any]:
        given = with_same_counts({"tail": tail, "relation": relation})
        return self._best(given["tail"], given["relation"], k, inverse=True)

    def _best(self, source: Any, relation: Any, k: Any, *, inverse: bool) -> dict[str, Any]:
        source, relation = self._entities.rows(source), self._relations.rows(relation)
        each = lengths(k, tf.size(source))
        scores = self._scores(source, relation, tf.range(self._entities.size, dtype=tf.int64)[None], inverse=inverse)
        length = longest(each, self._entities.size)
        best, rows = tf.math.top_k(scores, length)
        within = tf.range(length)[None] < each
        names = tf.where(within, tf.gather(self._names.read_value(), rows), "")
        return {"entities": names, "scores": tf.where(within, best, -np.inf)}

    def _scores(self, source: Any, relation: Any, candidates: Any, *, inverse: bool) -> Any:
        dense = tf.zeros([1, 0])
        if not self._reciprocal:
            dense = tf.fill([tf.size(source), 1], float(inverse))
        elif inverse:
            # A relation has an even row, and its inverse the next row. The inverse of an inverse is the relation.
            relation = tf.bitwise.bitwise_xor(relation, tf.constant(1, tf.int64))
        return self._predict(Batch({SOURCE: source, RELATION: relation, CANDIDATES: candidates}, {}, dense, None))
