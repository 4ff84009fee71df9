"""Batches of histories, with the items that follow them and those that these are compared with.

| loss | candidates |
|---|---|
| softmax; all that is evaluated | int32 [1, C], all items |
| sampled_softmax | int32 [1, k], drawn for the batch |
| binary | int32 [B, L], one drawn for each position |

In training a history holds the item that follows it, too: of S items, L = S - 1 are followed by another. Labels are
float32 [B, 1 + L + k]: the weight of a position, the row of the item that follows each, or -1, and the drawn items of
sampled_softmax. Each draw is a pure function of the seed and the number of the step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.data import batches
from embexp.data.batches import Batch, Read, negatives_seed, plain
from embexp.data.columns import Columns
from embexp.data.examples import Examples, ListColumn
from embexp.runs.prepare import Data
from embexp.specs.run import RunSpec
from embexp.specs.tasks import CANDIDATES, KNOWN
from embexp_sequences.specs import HISTORY, NextItemLoss, SASRec


@dataclass(frozen=True)
class Items:
    """What next items are ranked among.

    Attributes:
        count: number of items.
        positions: of a training example, the mean.
    """

    count: int
    positions: float


def complete(spec: RunSpec, data: Data) -> Data:
    """The data with the number of items."""
    most = spec.features[HISTORY].max_sequence_length
    lengths = np.diff(data.scan.examples.lists[HISTORY].splits)[data.scan.splits["train"]]
    items = data.vocabularies[spec.features[HISTORY].table].size
    return replace(data, candidates=Items(items, float(np.mean(np.minimum(lengths, most) - 1))))


def additions(spec: RunSpec, data: Data) -> Answers:
    """What a run adds to training batches."""
    assert isinstance(spec.model, SASRec)  # a rule between the settings
    return Answers(spec.model, data.candidates, spec.features[HISTORY].max_sequence_length, spec.seed)


class Answers:
    """Adds what follows each item of a history; `batches.Additions`."""

    def __init__(self, model: SASRec, items: Items, most: int, seed: int) -> None:
        """Takes the most items of a history, the last answer among them."""
        self._model, self._items, self._most, self._seed = model, items, most, seed
        self.of_batch = model.loss is not NextItemLoss.SOFTMAX

    def columns(self, columns: Columns) -> Columns:
        """All but the one that is made."""
        return stored(columns)

    def of_rows(self, batch: Batch, rows: Any) -> Batch:
        """The batch itself."""
        return batch

    def added(
        self, batches: tf.data.Dataset, read: Callable[[Columns], Read], start_step: int, share: slice | None
    ) -> tf.data.Dataset:
        """The batches with candidates and labels; see `batches.Additions`."""

        def add(step: Any, batch: Any) -> Any:
            history = batch.ids[HISTORY][:, -self._most :]
            targets = tf.cast(history, tf.int32).to_tensor(-1, shape=[None, self._most])[:, 1:]
            candidates, drawn = self._candidates(step, targets)
            labels = tf.cast(tf.concat([targets, drawn], 1), tf.float32)
            weights = tf.fill([tf.shape(labels)[0], 1], 1 / self._items.positions)
            batch = batch._replace(ids={HISTORY: history}, labels=tf.concat([weights, labels], 1))
            if share is not None:
                batch = tf.nest.map_structure(lambda part: part[share], batch)
                candidates = candidates if candidates.shape[0] == 1 else candidates[share]
            return batch._replace(ids={**batch.ids, CANDIDATES: candidates})

        return batches.enumerate(start_step).map(plain(add))

    def _candidates(self, step: Any, targets: Any) -> tuple[Any, Any]:
        """The candidates, and those of each example that labels name, int32 [B, k]."""
        batch, none = tf.shape(targets)[0], targets[:, :0]
        match self._model.loss:
            case NextItemLoss.SOFTMAX:
                return tf.range(self._items.count)[None], none
            case NextItemLoss.SAMPLED_SOFTMAX:
                drawn = self._uniform(step, [1, self._model.negatives], self._items.count)
                return drawn, tf.repeat(drawn, batch, 0)
        others = self._uniform(step, tf.shape(targets), self._items.count - 1)  # one fewer: those from the answer on
        others = tf.ensure_shape(others, [None, self._most - 1])  # move up by one
        return others + tf.cast(others >= targets, tf.int32), none

    def _uniform(self, step: Any, shape: Any, below: int) -> Any:
        return tf.random.stateless_uniform(shape, negatives_seed(self._seed, step), 0, below, tf.int32)


def stored(columns: Columns) -> Columns:
    """The columns without the one that is made."""
    return replace(columns, ids={name: table for name, table in columns.ids.items() if name != CANDIDATES})


def ranked(
    examples: Examples,
    rows: np.ndarray,
    columns: Columns,
    *,
    items: int,
    most: int,
    batch_size: int,
    known: ListColumn | None = None,
) -> tf.data.Dataset:
    """Histories in their order, with all items as candidates.

    Args:
        rows: int64, the examples.
        most: items of a history in training, the last answer among them.
        known: items of each example that ranks leave aside, each once, rising; None: scores are wanted.
    """
    columns = stored(columns)
    if known is not None:
        examples = replace(examples, lists={**examples.lists, KNOWN: known})
        columns = replace(columns, ids={**columns.ids, KNOWN: columns.ids[HISTORY]})

    def add(batch: Any) -> Any:
        ids = {**batch.ids, HISTORY: batch.ids[HISTORY][:, 1 - most :], CANDIDATES: tf.range(items)[None]}
        return batch._replace(ids=ids)

    return batches.evaluation_batches(examples, rows, columns, batch_size=batch_size).map(plain(add))
