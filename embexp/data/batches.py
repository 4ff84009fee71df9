"""Batches for TensorFlow, gathered in C++ from the memory-mapped columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import tensorflow as tf

from embexp.data.columns import Columns
from embexp.data.examples import Examples, ExampleWeights, History, ListColumn
from embexp.data.splits import Order, batch_groups
from embexp.system import arrays, digests

_GROUP_CELLS = 262_144
_AHEAD = 4
plain = tf.autograph.experimental.do_not_convert
"""What datasets map needs no rewriting by AutoGraph, which takes longer than tracing it."""


class Batch(NamedTuple):
    """Some examples.

    Attributes:
        ids: id column -> int32 or int64 [B], or ragged [B, None] for a column with several values per example;
            candidates are int32 [1, C] or [B, 1 + k], known answers int32 [B, None].
        weights: weight column -> float32, of the shape of its ids.
        dense: float32 [B, number of dense columns].
        labels: float32 [B]; NaN where the data has no labels; [B, 2], with their weights, where a training has any;
            [B, 1 + n] with n further labels, which have no weights.
    """

    ids: dict[str, Any]
    weights: dict[str, Any]
    dense: Any
    labels: Any


Read = Callable[[Any], Batch]
"""From rows of examples, int64 [n], to some of their columns."""


class Additions(Protocol):
    """What a task adds to training batches, such as what their answers are compared with.

    Attributes:
        of_batch: whether that depends on the whole batch, so that a share of it is taken afterwards.
    """

    of_batch: bool

    def columns(self, columns: Columns) -> Columns:
        """The columns that are read of the examples of a batch."""

    def of_rows(self, batch: Batch, rows: Any) -> Batch:
        """The batch with what follows from the rows of its examples, int64 [B]."""

    def added(
        self,
        batches: tf.data.Dataset,
        read: Callable[[Columns], Read],
        start_step: int,
        share: slice | None,
        parts: int = 1,
    ) -> tf.data.Dataset:
        """The batches with what is added.

        Args:
            read: from further columns to what reads them, by rows of examples.
            start_step: the step of the first batch.
            share: the examples of each batch that are wanted; None: all, or those that are there.
            parts: see `training_batches`.
        """


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
    additions: Additions | None = None,
    weights: ExampleWeights | None = None,
    share: slice | None = None,
    parts: int = 1,
) -> tf.data.Dataset:
    """The batches of steps `start_step` to `steps` of a training.

    Place i of the batch of step s is element s * batch_size + i of an endless stream of epochs, so every batch is full
    and may straddle two epochs. The stream is that of `order.Order`: starting later gives the tail of starting at 0.

    Args:
        rows: int64, those that train.
        shuffle: False: the order of the file.
        window: examples that are shuffled among each other.
        additions: what the task adds; None: nothing.
        weights: of the examples; labels then are [B, 2], each with its weight.
        share: the examples of each batch that are wanted; None: all. What depends on the whole batch, as what is drawn
            for it, is made first.
        parts: into how many equal parts each column is divided afterwards, one for each replica. What all examples
            of a batch share, such as drawn negatives, is in each of them.

    Returns:
        A dataset of `steps - start_step` batches.
    """
    columns = columns if additions is None else additions.columns(columns)
    order = Order(len(rows), seed, shuffle, window)
    group = max(1, _GROUP_CELLS // batch_size)

    def groups() -> Iterator[np.ndarray]:
        start = start_step * batch_size
        yield from batch_groups(order, start, batch_size=batch_size, batches=steps - start_step, group=group)

    read = _Reader(examples, columns, weights)
    early = None if additions is not None and additions.of_batch else share
    numbers = SharedArray(rows)
    places = tf.data.Dataset.from_generator(groups, output_signature=tf.TensorSpec([None, batch_size], tf.int64))
    batches = (
        # One group ahead, so that the next is in the making while this one is trained on.
        places.prefetch(1)
        # A whole group is gathered at once and cut into batches afterwards: small operations are dear.
        .map(plain(lambda place: read.scalars(numbers.at(place if early is None else place[:, early]))))
        .flat_map(plain(lambda batch, rows: tf.data.Dataset.from_tensor_slices((batch, rows))))
    )

    def with_columns(batch: Batch, rows: Any) -> Batch:
        batch = read.with_lists(batch, rows) if read.lists else batch
        return batch if additions is None else additions.of_rows(batch, rows)

    batches = batches.map(plain(with_columns))
    if additions is not None:
        divided = {} if parts == 1 else {"parts": parts}  # which additions that run on no TPU need not take
        batches = additions.added(
            batches, lambda some: _Reader(examples, some).batch, start_step, None if early else share, **divided
        )
    batches = batches.prefetch(_AHEAD)
    return batches.apply(tf.data.experimental.assert_cardinality(steps - start_step)).with_options(_options())


def evaluation_batches(
    examples: Examples,
    rows: np.ndarray,
    columns: Columns,
    *,
    batch_size: int,
    full: bool = False,
) -> tf.data.Dataset:
    """Some rows in their order; the last batch may be smaller, or is filled up by repeating the last row.

    Args:
        rows: int64, which to read.
        full: whether the last batch is filled up, so that all have the same size, known while tracing.
    """
    read = _Reader(examples, columns)
    numbers = SharedArray(rows)
    count = -(-len(rows) // batch_size)

    def places(number: Any) -> Any:
        start = number * batch_size
        if full:
            return tf.minimum(start + tf.range(batch_size, dtype=tf.int64), len(rows) - 1)
        return tf.range(start, tf.minimum(start + batch_size, len(rows)))

    read_batch = plain(lambda number: read.batch(numbers.at(places(number))))
    return tf.data.Dataset.range(count).map(read_batch).prefetch(_AHEAD).with_options(_options())


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


def negatives_seed(seed: int, step: Any) -> Any:
    """What the negatives of a step are drawn with: int64 [2]."""
    high, low = digests.seed_of(seed, "negatives")
    return tf.stack([tf.constant((high << 32) + low, tf.int64), step])


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
