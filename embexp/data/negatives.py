"""The items of a training step of recommendation: those of its interactions, and what they are compared with.

| items | columns of the item, after a batch of B interactions was read |
|---|---|
| drawn | [B + B k]: the items of the interactions, then k negatives for each interaction in turn |
| of the batch | [B]: the items of the interactions, negatives of each other |
| all | [I]: the catalogue |

Labels become float32 [B, 2]: the number of the item in the catalogue, and the logarithm of its share of the training
split. Features of an item are read from its first training example, whatever interaction it is in. The draw is a pure
function of the seed and the number of the step, so that a training can continue at any step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.data.interactions import Interactions
from embexp.data.shared_memory import SharedArray
from embexp.specs.losses import BPR, RecommendationLoss, Softmax
from embexp.system import digests

_plain = tf.autograph.experimental.do_not_convert


class Items:
    """Adds the columns of the item to batches of training interactions."""

    def __init__(
        self, interactions: Interactions, examples: Examples, train: np.ndarray, loss: RecommendationLoss, seed: int
    ) -> None:
        """Reads the training split where the draw leaves out what a user has seen.

        Args:
            interactions: of the run.
            examples: encoded.
            train: int64, rows of the training split.
            loss: what it compares decides which items.
            seed: of the run.
        """
        catalogue = interactions.catalogue
        self._user, self._item, self._loss, self._seed = interactions.user, interactions.item, loss, seed
        self._item_columns = interactions.item_columns
        self._size = catalogue.size
        last = int(catalogue.rows[-1])
        self._number = SharedArray(catalogue.numbers(np.arange(last + 1)).astype(np.int32))
        self._example = SharedArray(catalogue.examples)
        self._log_share = SharedArray(np.log(catalogue.counts / catalogue.counts.sum()).astype(np.float32))
        self._unseen = None
        if isinstance(loss, BPR) and loss.exclude_seen:
            users = np.arange(int(examples.ids[train, examples.id_columns.index(self._user)].max()) + 1)
            self._unseen = _Unseen(interactions.seen(examples, [train], users), catalogue.size)

    def columns(self, columns: Columns) -> Columns:
        """The columns of the item."""
        return _only(columns, self._item_columns)

    def other_columns(self, columns: Columns) -> Columns:
        """The columns of the user, and the one that identifies the item."""
        return _only(columns, {*columns.ids} - self._item_columns | {self._item})

    def added(self, batches: tf.data.Dataset, read: Callable[[Any], Any], start_step: int) -> tf.data.Dataset:
        """The batches with the columns of the item.

        Args:
            batches: with `other_columns`.
            read: from rows of examples to a batch with `columns`.
            start_step: the step of the first batch.
        """

        def add(step: Any, batch: Any) -> Any:
            numbers = self._number.at(batch.ids[self._item])
            items = read(self._example.at(self._items(step, batch.ids[self._user], numbers)))
            labels = tf.stack([tf.cast(numbers, tf.float32), self._log_share.at(numbers)], 1)
            ids, weights = {**batch.ids, **items.ids}, {**batch.weights, **items.weights}
            return batch._replace(ids=ids, weights=weights, labels=labels)

        return batches.enumerate(start_step).map(_plain(add))

    def _items(self, step: Any, users: Any, numbers: Any) -> Any:
        match self._loss:
            case Softmax():
                return tf.range(self._size)
            case BPR():
                return tf.concat([numbers, tf.reshape(self._drawn(step, users, numbers), [-1])], 0)
            case _:
                return numbers

    def _drawn(self, step: Any, users: Any, numbers: Any) -> Any:
        """Negatives, int32 [B, k]."""
        assert isinstance(self._loss, BPR)
        high, low = digests.seed_of(self._seed, "negatives")
        seed = tf.stack([tf.constant((high << 32) + low, tf.int64), step])
        uniform = tf.random.stateless_uniform([tf.size(numbers), self._loss.negatives], seed, dtype=tf.float64)
        if self._unseen is not None:
            return self._unseen.item(users[:, None], uniform)
        drawn = tf.cast(uniform * (self._size - 1), tf.int32)  # one fewer, and those from the item on moved up by one
        return drawn + tf.cast(drawn >= numbers[:, None], tf.int32)


class _Unseen:
    """The items that users have not seen, by their place among these.

    Of the items s[0] < s[1] < … that a user has seen, s[i] - i unseen ones are less than s[i]. So the unseen item at
    place r is r + (the number of i with s[i] - i <= r), which a search in sorted numbers finds.
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
        """Items, int32 [B, k], for users [B, 1] and numbers from [0, 1), float64 [B, k]."""
        users = tf.cast(users, tf.int64)
        place = tf.cast(uniform * tf.cast(self._counts.at(users), tf.float64), tf.int64)
        keys = users * (self._size + 1) + place
        smaller = tf.searchsorted(self._keys.all(), tf.reshape(keys, [-1]), side="right", out_type=tf.int64)
        item = place + tf.reshape(smaller, tf.shape(keys)) - self._starts.at(users)
        return tf.cast(tf.minimum(item, self._size - 1), tf.int32)  # who has seen everything gets a seen one


def _only(columns: Columns, names: Any) -> Columns:
    return replace(
        columns,
        ids={name: table for name, table in columns.ids.items() if name in names},
        weights={name: weighed for name, weighed in columns.weights.items() if weighed in names},
    )
