"""Batches for TensorFlow, gathered in C++ from the memory-mapped columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from embexp.data.candidates import Candidates, KnownAnswers, stored
from embexp.data.columns import Columns
from embexp.data.examples import Examples
from embexp.data.negatives import Items
from embexp.data.order import Order, batch_groups
from embexp.data.shared_memory import SharedArray
from embexp.specs.triples import KNOWN

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
        labels: float32 [B]; NaN where the data has no labels.
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
) -> tf.data.Dataset:
    """The batches of steps `start_step` to `steps` of a training.

    Place i of the batch of step s is element s * batch_size + i of an endless stream of epochs, so every batch is full
    and may straddle two epochs. The stream is that of `order.Order`: starting later gives the tail of starting at 0.

    Args:
        examples: encoded examples.
        rows: int64, those that train.
        columns: what to read.
        batch_size: examples per batch.
        seed: seed of the order.
        shuffle: False: the order of the file.
        window: examples that are shuffled among each other.
        steps: at which step the training ends.
        start_step: with which step to begin.
        candidates: makes the column of candidates, for queries.
        items: adds the columns of the item, for recommendation.

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

    read = _Reader(examples, columns)
    numbers = SharedArray(rows)
    places = tf.data.Dataset.from_generator(groups, output_signature=tf.TensorSpec([None, batch_size], tf.int64))
    batches = (
        # One group ahead, so that the next is in the making while this one is trained on.
        places.prefetch(1)
        # A whole group is gathered at once and cut into batches afterwards: small operations are dear.
        .map(_plain(lambda place: read.scalars(numbers.at(place))))
        .flat_map(_plain(lambda batch, rows: tf.data.Dataset.from_tensor_slices((batch, rows))))
    )
    positives = None if candidates is None or candidates.positives is None else Known(candidates.positives)

    def with_columns(batch: Batch, rows: Any) -> Batch:
        batch = read.with_lists(batch, rows) if read.has_lists else batch
        return batch if positives is None else positives.added(batch, rows)

    batches = batches.map(_plain(with_columns))
    if candidates is not None:
        batches = candidates.for_training(batches, start_step)
    if items is not None and read_items is not None:
        batches = items.added(batches, read_items.batch, start_step)
    batches = batches.prefetch(_AHEAD)
    return batches.apply(tf.data.experimental.assert_cardinality(steps - start_step)).with_options(_options())


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
        examples: encoded examples.
        rows: int64, which to read.
        columns: what to read.
        batch_size: examples per batch.
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


class _Reader:
    """Gathers rows from the columns. Tensors share the memory of the mapped files."""

    def __init__(self, examples: Examples, columns: Columns) -> None:
        self._columns = columns
        self._places = {name: number for number, name in enumerate(examples.id_columns)}
        self._ids = SharedArray(examples.ids)
        self._lists = {
            name: (SharedArray(column.values), SharedArray(column.splits))
            for name, column in examples.lists.items()
            if name in columns.ids
        }
        self._weights = {name: SharedArray(examples.weights[name]) for name in columns.weights}
        self._dense = SharedArray(examples.dense)
        self._labels = None if examples.labels is None else SharedArray(examples.labels)

    @property
    def has_lists(self) -> bool:
        """Whether a column has several values per example."""
        return bool(self._lists)

    def batch(self, rows: Any) -> Batch:
        """The batch of some rows, int64 [B]."""
        return self.with_lists(*self.scalars(rows))

    def scalars(self, rows: Any) -> tuple[Batch, Any]:
        """All but the columns with several values per example, for rows of any shape, and the rows themselves."""
        found = tf.unstack(self._ids.at(rows), axis=-1) if self._places else []
        ids = {name: found[self._places[name]] for name in self._columns.id_columns if name not in self._lists}
        weights = {
            name: self._weights[name].at(rows)
            for name, weighed in self._columns.weights.items()
            if weighed not in self._lists
        }
        labels = tf.fill(tf.shape(rows), float("nan")) if self._labels is None else self._labels.at(rows)
        return Batch(ids, weights, self._dense.at(rows), labels), rows

    def with_lists(self, batch: Batch, rows: Any) -> Batch:
        """Adds the columns with several values per example for rows [B]."""
        spans = {
            name: tf.ragged.range(splits.at(rows), splits.at(rows + 1)) for name, (_, splits) in self._lists.items()
        }
        ids = {name: span.with_values(self._lists[name][0].at(span.values)) for name, span in spans.items()}
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
