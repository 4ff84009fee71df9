"""The items of a training step of recommendation: those of its interactions, and what they are compared with.

| items | columns of the item, after a batch of B interactions was read |
|---|---|
| drawn | [B + B k]: the items of the interactions, then k negatives for each interaction in turn |
| shared | [B + n]: the items of the interactions, then n negatives of all of them |
| of the batch | [B]: the items of the interactions, negatives of each other |
| all | [I]: the catalogue |

Where replicas divide a batch into equal parts, each has these items of its own interactions, next to each other: of
negatives that all share, [B + n], a copy; of the batch, its own B / parts first, then the others.

Labels become float32 [B, 2]: the number of the item in the catalogue, and the logarithm of its share of the training
split. Where negatives are shared they are [B + n, 2], of all items, with the share with which each is drawn. Features
of an item are read from its first training example, whatever interaction it is in. The draw is a pure function of the
seed and the number of the step, so that a training can continue at any step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.data.batches import Batch, Read, SharedArray, negatives_seed, plain
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.fields.recommendation.data import Interactions
from embexp.fields.recommendation.specs import DrawnNegatives, RecommendationLoss, SharedNegatives
from embexp.runs.prepare import Data
from embexp.specs.run import RunSpec


def additions(spec: RunSpec, data: Data) -> Items:
    """What a run adds to training batches."""
    assert isinstance(spec.loss, RecommendationLoss)  # a rule between the settings
    scan, interactions = data.scan, data.candidates.interactions
    return Items(interactions, scan.examples, scan.splits["train"], spec.loss, spec.seed, data.columns)


class Items:
    """Adds the columns of the item to batches of training interactions; `batches.Additions`."""

    of_batch = True

    def __init__(
        self,
        interactions: Interactions,
        examples: Examples,
        train: np.ndarray,
        loss: RecommendationLoss,
        seed: int,
        columns: Columns,
    ) -> None:
        """Reads the training split where the draw leaves out what a user has seen.

        Args:
            train: int64, rows of the training split.
            columns: what the run reads.
        """
        catalogue = interactions.catalogue
        self._user, self._item, self._loss, self._seed = interactions.user, interactions.item, loss, seed
        self._item_columns = interactions.item_columns
        self._of_items = _only(columns, self._item_columns)
        self._histories = [name for name, history in columns.histories.items() if history.column == self._item]
        self._size = catalogue.size
        last = int(catalogue.rows[-1])
        self._number = SharedArray(catalogue.numbers(np.arange(last + 1)).astype(np.int32))
        self._example = SharedArray(catalogue.examples)
        shares = catalogue.counts / catalogue.counts.sum()
        self._unseen = self._below = None
        if isinstance(loss, SharedNegatives) and loss.negatives is not None:
            shares = catalogue.counts.astype(np.float64) ** loss.power
            shares /= shares.sum()
            self._below = SharedArray(np.cumsum(shares))
        self._log_share = SharedArray(np.log(shares).astype(np.float32))
        if isinstance(loss, DrawnNegatives) and loss.exclude_seen:
            users = np.arange(int(examples.column(self._user, train).max()) + 1)
            self._unseen = _Unseen(interactions.seen(examples, [train], users), catalogue.size)

    def columns(self, columns: Columns) -> Columns:
        """The columns of the user, and the one that identifies the item."""
        return _only(columns, {*columns.ids, *columns.histories} - self._item_columns | {self._item})

    def of_rows(self, batch: Batch, rows: Any) -> Batch:
        """The batch itself."""
        return batch

    def added(
        self,
        batches: tf.data.Dataset,
        read: Callable[[Columns], Read],
        start_step: int,
        share: slice | None,
        parts: int = 1,
    ) -> tf.data.Dataset:
        """The batches with the columns of the item; see `batches.Additions`."""
        read_items = read(self._of_items)

        def add(step: Any, batch: Any) -> Any:
            numbers = self._number.at(batch.ids[self._item])
            compared = self._items(step, batch.ids[self._user], numbers)
            # A history with the item itself would reveal it.
            histories = {name: _without(batch.ids[name], batch.ids[self._item]) for name in self._histories}
            batch = batch._replace(ids={**batch.ids, **histories})
            if share is not None:
                compared = self._of_share(compared, tf.size(numbers), share)
                numbers, batch = tf.nest.map_structure(lambda part: part[share], (numbers, batch))
            if parts > 1:
                size = numbers.shape[0] // parts
                own = (slice(start, start + size) for start in range(0, numbers.shape[0], size))
                compared = tf.concat([self._of_share(compared, numbers.shape[0], part) for part in own], 0)
            items = read_items(self._example.at(compared))
            labelled = compared if isinstance(self._loss, SharedNegatives) else numbers
            labels = tf.stack([tf.cast(labelled, tf.float32), self._log_share.at(labelled)], 1)
            ids, weights = {**batch.ids, **items.ids}, {**batch.weights, **items.weights}
            return batch._replace(ids=ids, weights=weights, labels=labels)

        return batches.enumerate(start_step).map(plain(add))

    def _items(self, step: Any, users: Any, numbers: Any) -> Any:
        if self._loss.whole_catalogue:
            return tf.range(self._size)
        if isinstance(self._loss, SharedNegatives) and self._loss.negatives is not None:
            return tf.concat([numbers, self._shared(step, self._loss.negatives)], 0)
        if isinstance(self._loss, DrawnNegatives):
            return tf.concat([numbers, tf.reshape(self._drawn(step, users, numbers, self._loss.negatives), [-1])], 0)
        return numbers

    def _of_share(self, items: Any, batch: Any, share: slice) -> Any:
        """The items of some interactions, and what they are compared with, including the batch's other items."""
        if self._loss.whole_catalogue:
            return items
        others = items[batch:]
        if isinstance(self._loss, SharedNegatives) and self._loss.of_batch:
            others = tf.concat([items[: share.start], items[share.stop :]], 0)
        if isinstance(self._loss, DrawnNegatives):
            others = tf.reshape(tf.reshape(others, [batch, -1])[share], [-1])
        return tf.concat([items[:batch][share], others], 0)

    def _shared(self, step: Any, count: int) -> Any:
        """Draws the negatives of the whole batch, int32 [count]."""
        assert self._below is not None  # they are drawn
        drawn = tf.searchsorted(self._below.all(), self._uniform(step, [count]), side="right")
        return tf.minimum(drawn, self._size - 1)  # by rounding, the shares may sum to less than 1

    def _uniform(self, step: Any, shape: Any) -> Any:
        """The random numbers of a step in [0, 1), float64."""
        return tf.random.stateless_uniform(shape, negatives_seed(self._seed, step), dtype=tf.float64)

    def _drawn(self, step: Any, users: Any, numbers: Any, count: int) -> Any:
        """Draws negatives, int32 [B, count]."""
        uniform = self._uniform(step, [tf.size(numbers), count])
        if self._unseen is not None:
            return self._unseen.item(users[:, None], uniform)
        drawn = tf.cast(uniform * (self._size - 1), tf.int32)  # one fewer, and those from the item on move up by one
        return drawn + tf.cast(drawn >= numbers[:, None], tf.int32)


class _Unseen:
    """Finds an item that a user has not seen by its place among these items.

    If a user has seen the items s[0] < s[1] < …, then s[i] - i unseen items are less than s[i]. So the unseen item at
    place r is r + (the number of i with s[i] - i <= r). A search in sorted numbers finds it.
    """

    def __init__(self, seen: Any, size: int) -> None:
        lengths = np.diff(seen.splits)
        user = np.repeat(np.arange(len(lengths)), lengths)
        below = seen.values - (np.arange(len(seen.values)) - seen.splits[user])
        self._size = size
        self._keys = SharedArray(user * (size + 1) + below)
        self._starts = SharedArray(seen.splits[:-1].astype(np.int64))
        self._counts = SharedArray(size - lengths)

    def item(self, users: Any, uniform: Any) -> Any:
        """The items, int32 [B, k], for users [B, 1] and numbers in [0, 1), float64 [B, k]."""
        users = tf.cast(users, tf.int64)
        place = tf.cast(uniform * tf.cast(self._counts.at(users), tf.float64), tf.int64)
        keys = users * (self._size + 1) + place
        smaller = tf.searchsorted(self._keys.all(), tf.reshape(keys, [-1]), side="right", out_type=tf.int64)
        item = place + tf.reshape(smaller, tf.shape(keys)) - self._starts.at(users)
        return tf.cast(tf.minimum(item, self._size - 1), tf.int32)  # a user who has seen everything gets a seen item


def _without(several: Any, own: Any) -> Any:
    """Ragged ids [B, None] without each example's own id, [B]."""
    others = several.values != tf.cast(tf.gather(own, several.value_rowids()), several.values.dtype)
    kept = tf.ragged.boolean_mask(several, several.with_values(others))
    # The mask loses the number of examples, which a TPU must know.
    return tf.RaggedTensor.from_row_splits(
        kept.values, tf.ensure_shape(kept.row_splits, several.row_splits.shape), validate=False
    )


def _only(columns: Columns, names: Any) -> Columns:
    return replace(
        columns,
        histories={name: history for name, history in columns.histories.items() if name in names},
        ids={name: table for name, table in columns.ids.items() if name in names},
        weights={name: weighed for name, weighed in columns.weights.items() if weighed in names},
    )
