"""Batches for TensorFlow, gathered in C++ from the memory-mapped columns; with drawn items, or answers to rank.

The items of a training step of recommendation: those of its interactions, and what they are compared with.

| items | columns of the item, after a batch of B interactions was read |
|---|---|
| drawn | [B + B k]: the items of the interactions, then k negatives for each interaction in turn |
| shared | [B + n]: the items of the interactions, then n negatives of all of them |
| of the batch | [B]: the items of the interactions, negatives of each other |
| all | [I]: the catalogue |

Labels become float32 [B, 2]: the number of the item in the catalogue, and the logarithm of its share of the training
split. Where negatives are shared they are [B + n, 2], of all items, with the share with which each is drawn. Features
of an item are read from its first training example, whatever interaction it is in. The draw is a pure function of the
seed and the number of the step, so that a training can continue at any step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import tensorflow as tf

from embexp.data.columns import Columns
from embexp.data.example_weights import ExampleWeights
from embexp.data.examples import Examples, History, ListColumn
from embexp.data.interactions import Interactions
from embexp.data.queries import Candidates, KnownAnswers, negatives_seed, stored
from embexp.data.splits import Order, batch_groups
from embexp.specs.data.graphs import ALL_RELATIONS, KNOWN
from embexp.specs.losses import DrawnNegatives, RecommendationLoss, SharedNegatives
from embexp.system import arrays

_GROUP_CELLS = 262_144
_AHEAD = 4
_plain = tf.autograph.experimental.do_not_convert
"""What datasets map needs no rewriting by AutoGraph, which takes longer than tracing it."""


class Batch(NamedTuple):
    """Some examples.

    Attributes:
        ids: id column -> int32 or int64 [B], or ragged [B, None] for a column with several values per example;
            candidates are int32 [1, C] or [B, 1 + k], known answers int32 [B, None].
        weights: weight column -> float32, of the shape of its ids.
        dense: float32 [B, number of dense columns].
        labels: float32 [B]; NaN where the data has no labels; [B, 2], with their weights, where a training has any.
    """

    ids: dict[str, Any]
    weights: dict[str, Any]
    dense: Any
    labels: Any


def training_batches(
    examples: Examples,
    rows: np.ndarray,
    columns: Columns,
    *,
    batch_size: int,
    seed: int,
    shuffle: bool,
    window: int,
    steps: int,
    start_step: int = 0,
    candidates: Candidates | None = None,
    items: Items | None = None,
    weights: ExampleWeights | None = None,
    share: slice | None = None,
) -> tf.data.Dataset:
    """The batches of steps `start_step` to `steps` of a training.

    Place i of the batch of step s is element s * batch_size + i of an endless stream of epochs, so every batch is full
    and may straddle two epochs. The stream is that of `order.Order`: starting later gives the tail of starting at 0.

    Args:
        rows: int64, those that train.
        shuffle: False: the order of the file.
        window: examples that are shuffled among each other.
        candidates: makes the column of candidates, for queries.
        items: adds the columns of the item, for recommendation.
        weights: of the examples; labels then are [B, 2], each with its weight.
        share: the examples of each batch that are wanted; None: all. What depends on the whole batch, as what is drawn
            for it, is made first.

    Returns:
        A dataset of `steps - start_step` batches.
    """
    columns = columns if candidates is None else stored(columns)
    read_items = None if items is None else _Reader(examples, items.columns(columns))
    columns = columns if items is None else items.other_columns(columns)
    order = Order(len(rows), seed, shuffle, window)
    group = max(1, _GROUP_CELLS // batch_size)

    def groups() -> Iterator[np.ndarray]:
        start = start_step * batch_size
        yield from batch_groups(order, start, batch_size=batch_size, batches=steps - start_step, group=group)

    read = _Reader(examples, columns, weights)
    of_batch = items is not None or (candidates is not None and candidates.negatives is not None)
    early = None if of_batch else share
    numbers = SharedArray(rows)
    places = tf.data.Dataset.from_generator(groups, output_signature=tf.TensorSpec([None, batch_size], tf.int64))
    batches = (
        # One group ahead, so that the next is in the making while this one is trained on.
        places.prefetch(1)
        # A whole group is gathered at once and cut into batches afterwards: small operations are dear.
        .map(_plain(lambda place: read.scalars(numbers.at(place if early is None else place[:, early]))))
        .flat_map(_plain(lambda batch, rows: tf.data.Dataset.from_tensor_slices((batch, rows))))
    )
    positives = None if candidates is None or candidates.positives is None else Known(candidates.positives)

    def with_columns(batch: Batch, rows: Any) -> Batch:
        batch = read.with_lists(batch, rows) if read.lists else batch
        return batch if positives is None else positives.added(batch, rows)

    batches = batches.map(_plain(with_columns))
    if candidates is not None:
        batches = batches.enumerate(start_step).map(_plain(candidates.for_training))
    if items is not None and read_items is not None:
        batches = items.added(batches, read_items.batch, start_step, share)
    elif share is not None and early is None:
        batches = batches.map(_plain(partial(_of_share, share=share)))
    batches = batches.prefetch(_AHEAD)
    return batches.apply(tf.data.experimental.assert_cardinality(steps - start_step)).with_options(_options())


def _of_share(batch: Batch, share: slice) -> Batch:
    """Some examples of a batch; the numbers of all relations are not those of examples."""
    some = tf.nest.map_structure(lambda part: part[share], batch)
    whole = {name: ids for name, ids in batch.ids.items() if name == ALL_RELATIONS}
    return cast(Batch, some._replace(ids={**some.ids, **whole}))


def evaluation_batches(
    examples: Examples,
    rows: np.ndarray,
    columns: Columns,
    *,
    batch_size: int,
    full: bool = False,
    candidates: Candidates | None = None,
) -> tf.data.Dataset:
    """Some rows in their order; the last batch may be smaller, or is filled up by repeating the last row.

    Args:
        rows: int64, which to read.
        full: whether the last batch is filled up, so that all have the same size, known while tracing.
        candidates: makes the column of candidates, for queries: all entities.
    """
    columns = columns if candidates is None else stored(columns)
    read = _Reader(examples, columns)
    numbers = SharedArray(rows)
    count = -(-len(rows) // batch_size)

    def places(number: Any) -> Any:
        start = number * batch_size
        if full:
            return tf.minimum(start + tf.range(batch_size, dtype=tf.int64), len(rows) - 1)
        return tf.range(start, tf.minimum(start + batch_size, len(rows)))

    read_batch = _plain(lambda number: read.batch(numbers.at(places(number))))
    batches = tf.data.Dataset.range(count).map(read_batch).prefetch(_AHEAD)
    return (batches if candidates is None else batches.map(_plain(candidates.for_all))).with_options(_options())


@dataclass(frozen=True)
class OneBatch:
    """A single batch, read at once: to trace how a dataset reads takes longer than to predict a few examples.

    Attributes:
        element_spec: that of the batches of `evaluation_batches`, of any size.
    """

    batch: Batch
    element_spec: Any

    def __iter__(self) -> Iterator[Batch]:
        yield self.batch


def one_batch(examples: Examples, columns: Columns) -> OneBatch:
    """All examples as one batch."""
    batch = _Reader(examples, columns).batch(tf.range(examples.count, dtype=tf.int64))
    return OneBatch(batch, tf.nest.map_structure(_of_any_size, batch))


def _of_any_size(tensor: Any) -> Any:
    if isinstance(tensor, tf.RaggedTensor):
        return tf.RaggedTensorSpec([None, None], tensor.dtype, 1, tensor.row_splits.dtype)
    return tf.TensorSpec([None, *tensor.shape[1:]], tensor.dtype)


class _Reader:
    """Gathers rows from the columns. Tensors share the memory of the mapped files."""

    def __init__(self, examples: Examples, columns: Columns, weights: ExampleWeights | None = None) -> None:
        self._columns = columns
        self._own = None if weights is None or weights.own is None else SharedArray(weights.own)
        self._of_class = None if weights is None else tf.Variable(weights.of_class, trainable=False)
        self._places = {name: number for number, name in enumerate(examples.id_columns)}
        self._ids = SharedArray(examples.ids)
        several: dict[str, ListColumn] = {
            name: column for name, column in examples.lists.items() if name in columns.ids
        }
        several |= {name: column for name, column in examples.histories.items() if name in columns.histories}
        self.lists = {
            name: (SharedArray(column.values), SharedArray(column.splits)) for name, column in several.items()
        }
        self._users = {name: column.user for name, column in several.items() if isinstance(column, History)}
        self._weights = {name: SharedArray(examples.weights[name]) for name in columns.weights}
        self._dense = SharedArray(examples.dense)
        self._labels = None if examples.labels is None else SharedArray(examples.labels)

    def batch(self, rows: Any) -> Batch:
        """The batch of some rows, int64 [B]."""
        return self.with_lists(*self.scalars(rows))

    def scalars(self, rows: Any) -> tuple[Batch, Any]:
        """All but the columns with several values per example, for rows of any shape, and the rows themselves."""
        found = tf.unstack(self._ids.at(rows), axis=-1) if self._places else []
        ids = {name: found[self._places[name]] for name in self._columns.id_columns if name not in self.lists}
        weights = {
            name: self._weights[name].at(rows)
            for name, weighed in self._columns.weights.items()
            if weighed not in self.lists
        }
        labels = tf.fill(tf.shape(rows), float("nan")) if self._labels is None else self._labels.at(rows)
        if self._of_class is not None:
            factors = self._of_class.read_value()
            classes = tf.cast(labels, tf.int32) if factors.shape[0] > 1 else tf.zeros_like(labels, tf.int32)
            weights = tf.gather(factors, classes)
            labels = tf.stack([labels, weights if self._own is None else weights * self._own.at(rows)], -1)
        return Batch(ids, weights, self._dense.at(rows), labels), rows

    def with_lists(self, batch: Batch, rows: Any) -> Batch:
        """Adds the columns with several values per example for rows [B]."""
        spans = {}
        for name, (_, splits) in self.lists.items():
            place = batch.ids[self._users[name]] if name in self._users else rows  # a history follows from the user
            spans[name] = tf.ragged.range(splits.at(place), splits.at(place + 1))
        ids = {name: span.with_values(self.lists[name][0].at(span.values)) for name, span in spans.items()}
        weights = {
            name: spans[weighed].with_values(self._weights[name].at(spans[weighed].values))
            for name, weighed in self._columns.weights.items()
            if weighed in spans
        }
        return batch._replace(ids={**batch.ids, **ids}, weights={**batch.weights, **weights})


class Known:
    """The known answers of queries, as TensorFlow sees them."""

    def __init__(self, known: KnownAnswers) -> None:
        self._places, self._values, self._splits = (
            SharedArray(each) for each in (known.places, known.lists.values, known.lists.splits)
        )

    def added(self, batch: Batch, places: Any) -> Batch:
        """The batch with the column of known answers, those at some places of `KnownAnswers.places`, int64 [B]."""
        lists = self._places.at(places)
        span = tf.ragged.range(self._splits.at(lists), self._splits.at(lists + 1))
        return batch._replace(ids={**batch.ids, KNOWN: span.with_values(self._values.at(span.values))})


def _options() -> Any:
    options = tf.data.Options()
    options.deterministic = True
    options.autotune.enabled = False
    options.experimental_optimization.apply_default_optimizations = False
    return options


class SharedArray:
    """An array as a variable whose value shares the array's memory.

    Not a plain tensor: tf.data would write the tensors that its functions capture, with all their bytes, into the graph
    that it optimises.
    """

    def __init__(self, array: np.ndarray) -> None:
        shared = array.size and arrays.is_aligned(array)
        tensor = tf.experimental.dlpack.from_dlpack(array.__dlpack__()) if shared else tf.constant(array)
        self._variable = tf.Variable(tensor, trainable=False)

    def at(self, rows: Any) -> Any:
        """The values at some rows. `read_value`, because a gather from the variable itself would first copy it."""
        return tf.gather(self._variable.read_value(), rows)

    def all(self) -> Any:
        """All values."""
        return self._variable.read_value()


def ranked_batches(
    examples: Examples,
    rows: np.ndarray,
    columns: Columns,
    *,
    batch_size: int,
    candidates: Candidates,
    known: KnownAnswers,
) -> tf.data.Dataset:
    """Queries in their order, each with its known answers; the last batch may be smaller.

    Args:
        rows: int64, the queries.
        batch_size: queries per batch.
    """
    answers = Known(known)

    def with_known(number: tf.Tensor, batch: Batch) -> Batch:
        start = number * batch_size
        return answers.added(batch, tf.range(start, start + tf.size(batch.labels, tf.int64)))

    queries = evaluation_batches(examples, rows, columns, batch_size=batch_size, candidates=candidates)
    return queries.enumerate().map(tf.autograph.experimental.do_not_convert(with_known))


class Items:
    """Adds the columns of the item to batches of training interactions."""

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
        """The columns of the item."""
        return _only(columns, self._item_columns)

    def other_columns(self, columns: Columns) -> Columns:
        """The columns of the user, and the one that identifies the item."""
        return _only(columns, {*columns.ids, *columns.histories} - self._item_columns | {self._item})

    def added(
        self, batches: tf.data.Dataset, read: Callable[[Any], Any], start_step: int, share: slice | None
    ) -> tf.data.Dataset:
        """The batches with the columns of the item.

        Args:
            batches: with `other_columns`.
            read: from rows of examples to a batch with `columns`.
            start_step: the step of the first batch.
            share: the interactions of each batch that are wanted; None: all.
        """

        def add(step: Any, batch: Any) -> Any:
            numbers = self._number.at(batch.ids[self._item])
            compared = self._items(step, batch.ids[self._user], numbers)
            # A history that has the item itself would tell it.
            histories = {name: _without(batch.ids[name], batch.ids[self._item]) for name in self._histories}
            batch = batch._replace(ids={**batch.ids, **histories})
            if share is not None:
                compared = self._of_share(compared, tf.size(numbers), share)
                numbers, batch = tf.nest.map_structure(lambda part: part[share], (numbers, batch))
            items = read(self._example.at(compared))
            labelled = compared if isinstance(self._loss, SharedNegatives) else numbers
            labels = tf.stack([tf.cast(labelled, tf.float32), self._log_share.at(labelled)], 1)
            ids, weights = {**batch.ids, **items.ids}, {**batch.weights, **items.weights}
            return batch._replace(ids=ids, weights=weights, labels=labels)

        return batches.enumerate(start_step).map(_plain(add))

    def _items(self, step: Any, users: Any, numbers: Any) -> Any:
        if self._loss.whole_catalogue:
            return tf.range(self._size)
        if isinstance(self._loss, SharedNegatives) and self._loss.negatives is not None:
            return tf.concat([numbers, self._shared(step, self._loss.negatives)], 0)
        if isinstance(self._loss, DrawnNegatives):
            return tf.concat([numbers, tf.reshape(self._drawn(step, users, numbers, self._loss.negatives), [-1])], 0)
        return numbers

    def _of_share(self, items: Any, batch: Any, share: slice) -> Any:
        """The items of some interactions of a batch, and what these are compared with: also the batch's other items."""
        if self._loss.whole_catalogue:
            return items
        others = items[batch:]
        if isinstance(self._loss, SharedNegatives) and self._loss.of_batch:
            others = tf.concat([items[: share.start], items[share.stop :]], 0)
        if isinstance(self._loss, DrawnNegatives):
            others = tf.reshape(tf.reshape(others, [batch, -1])[share], [-1])
        return tf.concat([items[:batch][share], others], 0)

    def _shared(self, step: Any, count: int) -> Any:
        """Negatives of the whole batch, int32 [count]."""
        assert self._below is not None  # they are drawn
        drawn = tf.searchsorted(self._below.all(), self._uniform(step, [count]), side="right")
        return tf.minimum(drawn, self._size - 1)  # the sum of the shares may be less than 1 by rounding

    def _uniform(self, step: Any, shape: Any) -> Any:
        """Random numbers of a step from [0, 1), float64."""
        return tf.random.stateless_uniform(shape, negatives_seed(self._seed, step), dtype=tf.float64)

    def _drawn(self, step: Any, users: Any, numbers: Any, count: int) -> Any:
        """Negatives, int32 [B, count]."""
        uniform = self._uniform(step, [tf.size(numbers), count])
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


def _without(several: Any, own: Any) -> Any:
    """Ragged ids [B, None] without those that are the example's own, [B]."""
    others = several.values != tf.cast(tf.gather(own, several.value_rowids()), several.values.dtype)
    return tf.ragged.boolean_mask(several, several.with_values(others))


def _only(columns: Columns, names: Any) -> Columns:
    return replace(
        columns,
        histories={name: history for name, history in columns.histories.items() if name in names},
        ids={name: table for name, table in columns.ids.items() if name in names},
        weights={name: weighed for name, weighed in columns.weights.items() if weighed in names},
    )
