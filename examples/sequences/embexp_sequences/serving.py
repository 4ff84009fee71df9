"""The exported model: from histories to the best next items."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from embexp.data.batches import Batch
from embexp.runs.serving import Pieces, Signatures, traced
from embexp.specs.tasks import CANDIDATES
from embexp_sequences.specs import HISTORY, Sequences


class NextItemModel(tf.Module):  # type: ignore[misc]  # TensorFlow is untyped
    """Lists the best next items of histories."""

    def __init__(self, pieces: Pieces) -> None:
        """Keeps the pieces of the model, and the name of each row's item."""
        super().__init__()
        spec, table = pieces.run.spec, pieces.columns.ids[HISTORY]
        assert isinstance(spec.data, Sequences)  # a rule between the settings
        self._predict, self._parts, self._items = pieces.step.predict, list(pieces.parts), pieces.vocabularies[table]
        self._most, self._rank_seen = spec.features[HISTORY].max_sequence_length, spec.data.rank_seen
        with tf.device("/cpu:0"):
            self._names = tf.Variable(pieces.run.vocabulary(table).tokens(), trainable=False, name="items")

    def signatures(self) -> Signatures:
        """`serving_default`: from histories, string [B, N] padded with "", to the best k items and their scores."""
        specs = {"history": tf.TensorSpec([None, None], tf.string), "k": tf.TensorSpec([], tf.int32)}
        return {"serving_default": traced(self._next, **specs)}

    def _next(self, history: Any, k: Any) -> dict[str, Any]:
        rows = self._items.find(history)
        known = tf.ragged.boolean_mask(rows, (rows >= 0) & (history != ""))
        ids = {HISTORY: known[:, 1 - self._most :], CANDIDATES: tf.range(self._items.size, dtype=tf.int64)[None]}
        scores = self._predict(Batch(ids, {}, tf.cast(known.row_lengths(), tf.float32)[:, None], None))
        if not self._rank_seen:
            seen = tf.stack([known.value_rowids(), known.values], 1)
            scores = tf.tensor_scatter_nd_update(scores, seen, tf.fill([tf.size(known.values)], float("-inf")))
        best, rows = tf.math.top_k(scores, tf.minimum(k, self._items.size))
        return {"items": tf.gather(self._names.read_value(), rows), "scores": best}
