"""Batches of histories, with the items that follow and the candidates that these are compared with.

| loss | candidates |
|---|---|
| softmax, and all evaluations | int32 [1, C], all items |
| sampled_softmax | int32 [1, k], drawn for the batch |
| binary | int32 [B, L], one drawn for each position |

In training, a history includes its answer. So S items have L = S - 1 positions that another item follows. Labels are
float32 [B, 1 + L + k]: the weight of a position, for each position the row of the item that follows or -1, and the k
items that sampled_softmax draws. Each draw is a pure function of the seed and the number of the step.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.data.batches import Batch, negatives_seed, plain
from embexp.data.columns import Columns
from embexp.runs.prepare import Data
from embexp.specs.run import RunSpec
from embexp.specs.tasks import CANDIDATES
from embexp_sequences.specs import HISTORY, NextItemLoss, SASRec


def complete(spec: RunSpec, data: Data) -> Data:
    """The data with the number of items to rank."""
    return replace(data, candidates=data.vocabularies[spec.features[HISTORY].table].size)


class Answers:
    """Adds the item that follows each item of a history; see `batches.Additions`."""

    def __init__(self, spec: RunSpec, data: Data) -> None:
        """Reads the loss and the maximum length of a history from the spec."""
        assert isinstance(spec.model, SASRec)  # a rule between the settings
        self._loss, self._negatives, self._seed = spec.model.loss, spec.model.negatives, spec.seed
        self._items, self._most = data.candidates, spec.features[HISTORY].max_sequence_length
        lengths = np.diff(data.scan.examples.lists[HISTORY].splits)[data.scan.splits["train"]]
        self._positions = float(np.mean(np.minimum(lengths, self._most) - 1))
        self.of_batch = self._loss is not NextItemLoss.SOFTMAX

    def columns(self, columns: Columns) -> Columns:
        """The columns, except the one that `added` makes."""
        return stored(columns)

    def of_rows(self, batch: Batch, rows: Any) -> Batch:
        """The batch, unchanged."""
        return batch

    def added(self, batches: tf.data.Dataset, read: Any, start_step: int, share: slice | None) -> tf.data.Dataset:
        """The batches with candidates and labels; see `batches.Additions`."""

        def add(step: Any, batch: Any) -> Any:
            history = batch.ids[HISTORY][:, -self._most :]
            targets = tf.cast(history, tf.int32).to_tensor(-1, shape=[None, self._most])[:, 1:]
            candidates, drawn = self._candidates(step, targets)
            labels = tf.cast(tf.concat([targets, drawn], 1), tf.float32)
            weights = tf.fill([tf.shape(labels)[0], 1], 1 / self._positions)
            batch = batch._replace(ids={HISTORY: history}, labels=tf.concat([weights, labels], 1))
            if share is not None:
                batch = tf.nest.map_structure(lambda part: part[share], batch)
                candidates = candidates if candidates.shape[0] == 1 else candidates[share]
            return batch._replace(ids={**batch.ids, CANDIDATES: candidates})

        return batches.enumerate(start_step).map(plain(add))

    def _candidates(self, step: Any, targets: Any) -> tuple[Any, Any]:
        """The candidates, and the drawn items for the labels, int32 [B, k]."""
        if self._loss is NextItemLoss.SOFTMAX:
            return tf.range(self._items)[None], targets[:, :0]
        if self._loss is NextItemLoss.SAMPLED_SOFTMAX:
            drawn = self._uniform(step, [1, self._negatives], self._items)
            return drawn, tf.repeat(drawn, tf.shape(targets)[0], 0)
        # Draw from one item fewer, and add 1 to all from the answer on: that is uniform over all other items.
        others = self._uniform(step, tf.shape(targets), self._items - 1)
        return others + tf.cast(others >= targets, tf.int32), targets[:, :0]

    def _uniform(self, step: Any, shape: Any, below: int) -> Any:
        return tf.random.stateless_uniform(shape, negatives_seed(self._seed, step), 0, below, tf.int32)


def stored(columns: Columns) -> Columns:
    """The columns, except the one that `Answers.added` makes."""
    return replace(columns, ids={name: table for name, table in columns.ids.items() if name != CANDIDATES})
