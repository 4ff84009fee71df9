"""The `EmbeddingBackend` between a training loop and the tables, and the one that trains only the rows a batch touches.

Per table and step: the distinct ids of all its features, one gather of their rows, lookups from those rows, the
gradients summed per distinct row, one application of the optimizer's rule, and one assignment. Nothing is as large as
the table, except for `adam` with `lazy_adam: false`, which by definition moves every row.

Assigning new rows assumes one writer at a time. The order of every sum is fixed by the batch, so the same step
gives the same bits.

Frozen tables are only looked up. Frozen rows of other tables are removed before the optimizer's rule: neither they nor
their slots are computed or assigned, so no part of a rule (momentum, decay, clipping, a learning rate of 0) can change
them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

import tensorflow as tf

from embexp.specs.optimizers import TableOptimizer
from embexp.specs.tables import Combiner, Feature
from embexp.tables import fused_rows, inputs, row_updates
from embexp.tables import optimizers as rules
from embexp.tables.inputs import Occurrences, without_autograph
from embexp.tables.row_updates import (
    Distinct,
    MovingTable,
    Touched,
    distinct_ids,
    move,
    occurrence_gradients,
    summed_gradients,
)
from embexp.tables.table import EmbeddingTable, MappedTable
from embexp.tables.variables import read_without_copy

AnyTable = MovingTable | MappedTable


class EmbeddingBackend(Protocol):
    """Looks features up and updates their rows, with the calls of TPUEmbedding's mid-level API.

    A step is one `enqueue`, then one `activations`, then, in training, one `apply_gradients`; each is called once while
    the step is traced. `enqueue` runs on the host, the other two on the replica. The backend records nothing on a
    gradient tape: the caller computes d loss / d activations.
    """

    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Takes the step's ids.

        Args:
            features: for every feature name its ids, or a pair of ids and weights: each a `tf.Tensor`,
                `tf.SparseTensor` or `tf.RaggedTensor`; ids int32 or int64, weights floating-point.
            training: whether `apply_gradients` will follow.
        """

    def activations(self) -> dict[str, Any]:
        """For every feature name its float32 activations, shape `[..., dim]`."""

    def rows(self, feature: str, start: int, stop: int) -> Any:
        """Rows [start, stop) of a feature's table, float32 [stop - start, dim], apart from any step.

        Only backends whose rows are in this machine's memory have them. Where workers share the rows, it is those that
        this one has, in its order.
        """

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Updates the rows that the step looked up.

        Args:
            gradients: for every feature name d loss / d activations, float32, of the activations' shape;
                None counts as zero.
        """


@dataclass(frozen=True, eq=False)
class _Lookup:
    """One feature's occurrences, gathered rows, and each occurrence's position in them (None: in order)."""

    read: Occurrences
    rows: Any
    positions: Any


@dataclass(frozen=True, eq=False)
class _Step:
    """The state between `enqueue` and `apply_gradients`.

    Attributes:
        inputs: the enqueued tensors, kept alive because sources contain their `id()`.
        touched: by table that is not frozen; empty unless training.
        whole: tables that are not frozen, and whose rows are all looked up; empty unless training.
    """

    inputs: Any
    lookups: dict[str, _Lookup]
    touched: dict[str, Touched]
    whole: list[str]


class RowEngine:
    """The `EmbeddingBackend` of one CPU or GPU."""

    def __init__(
        self,
        tables: Mapping[str, AnyTable],
        features: Mapping[str, Feature],
        optimizers: Mapping[str, TableOptimizer],
        *,
        step: Any,
        total_steps: int,
    ) -> None:
        """Creates no variables.

        Args:
            tables: by name, with the slots of their optimizers.
            optimizers: by table name; frozen tables need none.
            step: int64 variable, the number of the step from 0, for the learning rates; the caller advances it.
            total_steps: length of the run, for schedules that end with it.

        Raises:
            ValueError: a feature's table is missing, or a table's slots do not match its optimizer.
        """
        for name, feature in features.items():
            if feature.table not in tables:
                raise ValueError(f"feature {name!r} uses table {feature.table!r}, which does not exist")
        # A mapped table is always frozen.
        moving = {name: cast(MovingTable, table) for name, table in tables.items() if not table.frozen}
        for name, table in moving.items():
            expected = rules.slots_of(optimizers[name])
            if set(table.slots) != set(expected):
                raise ValueError(
                    f"table {name!r} has slots {sorted(table.slots)}, its optimizer needs {sorted(expected)}"
                )
        self._tables, self._features, self._optimizers = dict(tables), dict(features), dict(optimizers)
        self._moving = moving
        self._fused = {name for name, table in moving.items() if fused_rows.moves(table, optimizers[name])}
        self._step, self._total_steps = step, total_steps
        self._narrow = all(table.rows <= tf.int32.max for table in moving.values())
        self._current: _Step | None = None
        self._training = self._looked_up = False

    @without_autograph
    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Takes the step's ids; see `EmbeddingBackend.enqueue`.

        Raises:
            ValueError: a feature is missing or unknown, or `inputs` does not allow its input.
            tf.errors.InvalidArgumentError: an id is outside its vocabulary; `inputs.translated_errors` translates it.
        """
        inputs.check_names("enqueue", features, self._features)
        read = {
            name: inputs.occurrences(name, feature, self._tables[feature.table].combiner, features[name])
            for name, feature in self._features.items()
        }
        self.enqueue_occurrences(read, training=training, kept=features)

    @without_autograph
    def enqueue_occurrences(self, read: Mapping[str, Occurrences], *, training: bool, kept: Any = None) -> None:
        """Takes the step's ids as occurrences.

        Args:
            training: whether `apply_gradients` will follow.
            kept: the tensors that they were read from, if their sources contain the `id()` of these.

        Raises:
            ValueError: a feature is missing or unknown.
            tf.errors.InvalidArgumentError: an id is outside its vocabulary; `inputs.translated_errors` translates it.
        """
        inputs.check_names("enqueue", read, self._features)
        lookups: dict[str, _Lookup] = {}
        touched: dict[str, Touched] = {}
        whole: list[str] = []
        known: dict[tuple[Any, ...], Distinct] = {}
        for name, table in self._tables.items():
            mine = self._of_table(name, read)
            if not training or name not in self._moving:
                lookups.update(_gather_each(table, mine))
            elif row_updates.is_whole(self._moving[name], self._optimizers[name], mine):
                rows = row_updates.gather_all(self._moving[name], mine)
                lookups.update({f: _Lookup(r, rows, None if r.every_row else r.ids) for f, r in mine.items()})
                whole.append(name)
            elif mine:
                distinct = self._distinct(mine, known)
                moving = self._moving[name]
                if name in self._fused and all(r.segments is None for r in mine.values()):
                    lookups.update({f: _Lookup(r, fused_rows.gather(moving, f, r.ids), None) for f, r in mine.items()})
                    touched[name] = Touched(distinct, distinct.ids, None)
                else:
                    own = touched[name] = _gather_distinct(moving, mine, distinct)
                    positions = own.distinct.positions
                    lookups.update({f: _Lookup(r, own.rows, positions[r.source]) for f, r in mine.items()})
        self._current, self._training, self._looked_up = _Step(kept, lookups, touched, whole), training, False

    @without_autograph
    def activations(self) -> dict[str, Any]:
        """Looks up what was enqueued; see `EmbeddingBackend.activations`.

        Raises:
            RuntimeError: nothing was enqueued.
        """
        if self._current is None or self._looked_up:
            raise RuntimeError("call activations() once after each enqueue()")
        lookups = self._current.lookups
        self._looked_up = True
        if not self._training:
            self._current = None
        return {
            name: row_updates.activations(lookups[name].read, lookups[name].rows, lookups[name].positions)
            for name in self._features
        }

    @without_autograph
    def apply_gradients(self, gradients: Mapping[str, Any], learning_rates: Mapping[str, Any] | None = None) -> None:
        """Moves the rows that were looked up; see `EmbeddingBackend.apply_gradients`.

        Gradients of features of frozen tables are ignored.

        Args:
            learning_rates: by table, float32 scalars; None: those of the optimizers.

        Raises:
            RuntimeError: no training step is under way.
            ValueError: a gradient is missing, unknown, or not float32.
        """
        step = self._current
        if step is None or not self._training or not self._looked_up:
            raise RuntimeError("call apply_gradients() once after enqueue(..., training=True) and activations()")
        inputs.check_names("apply_gradients", gradients, self._features)
        for name, gradient in gradients.items():
            if gradient is not None and gradient.dtype != tf.float32:
                raise ValueError(f"the gradient of feature {name!r} is {gradient.dtype.name}; it must be float32")
        self._current = None
        read = {name: looked_up.read for name, looked_up in step.lookups.items()}
        for name in step.whole:
            summed = row_updates.summed_gradients_of_all(self._moving[name], self._of_table(name, read), gradients)
            rate = self.learning_rate(name) if learning_rates is None else learning_rates[name]
            row_updates.move_all(self._moving[name], self._optimizers[name], summed, rate=rate)
        for name, touched in step.touched.items():
            rate = self.learning_rate(name) if learning_rates is None else learning_rates[name]
            mine, dim = self._of_table(name, read), self._tables[name].dim
            moving, optimizer = self._moving[name], self._optimizers[name]
            if name in self._fused:
                parts = occurrence_gradients(touched.distinct, mine, gradients, dim)
                fused_rows.move(moving, optimizer, touched, parts, rate=rate, step=self._step)
            else:
                summed = summed_gradients(touched.distinct, mine, gradients, dim)
                move(moving, optimizer, touched, summed, rate=rate, step=self._step)

    def rows(self, feature: str, start: int, stop: int) -> Any:
        """Rows of a feature's table; see `EmbeddingBackend.rows`."""
        return rows_between(self._tables[self._features[feature].table], start, stop)

    def learning_rate(self, table: str) -> Any:
        """Learning rate of a table at the current step, a float32 scalar."""
        optimizer = self._optimizers[table]
        rate = tf.constant(optimizer.learning_rate, tf.float32)
        if rules.is_constant(optimizer.schedule):
            return rate
        return rate * rules.schedule_factor(optimizer.schedule, self._step, total_steps=self._total_steps)

    def _distinct(self, read: Mapping[str, Occurrences], known: dict[tuple[Any, ...], Distinct]) -> Distinct:
        """The distinct ids of a table's features; tables with the same inputs share them."""
        by_source = {occurrences.source: occurrences.ids for occurrences in read.values()}
        key = tuple(by_source)
        if key not in known:
            unique = fused_rows.unique if self._fused else tf.unique
            known[key] = distinct_ids(by_source, narrow=self._narrow, unique=unique)
        return known[key]

    def _of_table(self, table: str, read: Mapping[str, Occurrences]) -> dict[str, Occurrences]:
        return {name: read[name] for name, feature in self._features.items() if feature.table == table}


def rows_between(table: AnyTable, start: int, stop: int) -> Any:
    """Rows [start, stop) of a table, float32 [stop - start, dim], without a copy where that can be."""
    if isinstance(table, EmbeddingTable) and (start, stop) == (0, table.rows) and table.dtype() == tf.float32:
        return read_without_copy(table.variable)
    return table.gather(tf.range(start, stop))


def _gather_distinct(table: MovingTable, read: Mapping[str, Occurrences], distinct: Distinct) -> Touched:
    """The rows of the distinct ids of a table's features."""
    by_source: dict[tuple[Any, ...], tuple[str, Any]] = {}
    for feature, occurrences in read.items():
        by_source.setdefault(occurrences.source, (feature, occurrences.ids))
    checks = [inputs.check(feature, table.name, table.rows, ids) for feature, ids in by_source.values()]
    with tf.control_dependencies(checks):
        ids = tf.identity(distinct.ids)
    return Touched(distinct, ids, table.gather(ids))


def _gather_each(table: AnyTable, read: Mapping[str, Occurrences]) -> dict[str, _Lookup]:
    """Rows of each occurrence; with nothing else to do for distinct ids, finding them costs more than it saves."""
    lookups = {}
    for feature, occurrences in read.items():
        ids = occurrences.ids
        with tf.control_dependencies([inputs.check(feature, table.name, table.rows, ids)]):
            lookups[feature] = _Lookup(occurrences, table.gather(tf.identity(ids)), None)
    return lookups


class ExportedTable:
    """A table for tracing lookups. Its variable is of any number of rows, and holds none.

    `RowEngine` sees a frozen table.

    Attributes:
        variable: float32 [any, dim], of no rows.
    """

    frozen = True

    def __init__(self, name: str, rows: int, dim: int, *, combiner: Combiner) -> None:
        self.name, self.rows, self.dim, self.combiner = name, rows, dim, combiner
        self.slots: dict[str, Any] = {}
        self.variable = tf.Variable(tf.zeros([0, dim]), shape=[None, dim], trainable=False, name=name)

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids` of the table: float32 [n, dim]; it has no slots."""
        if slot is not None:
            raise KeyError(slot)
        return tf.gather(self.variable, ids)


class ExportedLookup:
    """An `EmbeddingBackend` that looks up exported tables, for batches of any size; it trains nothing.

    An `output_shape` names the size of training batches. Here the rest of that shape holds for any batch.
    """

    def __init__(self, tables: Mapping[str, ExportedTable], features: Mapping[str, Feature]) -> None:
        """Creates no variables."""
        self._shapes = {
            name: feature.activation_shape(tables[feature.table].dim)
            for name, feature in features.items()
            if feature.output_shape is not None
        }
        free = {name: _of_any_batch(feature) for name, feature in features.items()}
        self._engine: EmbeddingBackend = RowEngine(
            tables,  # type: ignore[arg-type]  # what lookups need of a table
            free,
            {},
            step=None,
            total_steps=1,
        )

    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Takes ids to look up; see `EmbeddingBackend.enqueue`."""
        self._engine.enqueue(features, training=training)

    def activations(self) -> dict[str, Any]:
        """Looks up what was enqueued; see `EmbeddingBackend.activations`."""
        found = self._engine.activations()
        return found | {name: tf.reshape(found[name], [-1, *shape]) for name, shape in self._shapes.items()}

    def rows(self, feature: str, start: int, stop: int) -> Any:
        """Rows of a feature's table; see `EmbeddingBackend.rows`."""
        return self._engine.rows(feature, start, stop)

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Raises RuntimeError: this backend trains nothing."""
        raise RuntimeError("exported tables can only be looked up; they can't be trained")


def _of_any_batch(feature: Feature) -> Feature:
    if feature.output_shape is None:
        return feature
    length = math.prod(feature.output_shape[1:])
    return feature.model_copy(update={"output_shape": None, "max_sequence_length": length if length > 1 else 0})
