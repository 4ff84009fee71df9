"""Trains only the rows that a batch touches.

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

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import tensorflow as tf

from embexp.specs.optimizers import TableOptimizer
from embexp.specs.tables import Feature
from embexp.tables import bounds, inputs, lookup, schedules
from embexp.tables import optimizers as rules
from embexp.tables.autograph import without_autograph
from embexp.tables.inputs import Occurrences
from embexp.tables.mapped import MappedTable
from embexp.tables.split import SplitTable
from embexp.tables.table import EmbeddingTable

MovingTable = EmbeddingTable | SplitTable
AnyTable = MovingTable | MappedTable

_BLOCK = 65_536
"""Rows per block in a pass over a whole table."""

_MANY = 16_384
"""Occurrences from which on it pays to sum gradients without adding to zeros, by more operations."""


@dataclass(frozen=True, eq=False)
class _Distinct:
    """The distinct ids of some inputs.

    Attributes:
        ids: [u], in order of first occurrence; int32 if every table is small enough, which is faster.
        all_positions: int32 [n], the position in `ids` of each occurrence.
        positions: `all_positions` by input, by its source.
        first: int32 [u], the first occurrence of each of `ids`. `first`, `later` and `later_positions` are None for
            fewer than `_MANY` occurrences.
        later: int32 [n - u], all other occurrences, rising.
        later_positions: int32 [n - u, 1], their positions in `ids`.
    """

    ids: Any
    all_positions: Any
    positions: dict[tuple[Any, ...], Any]
    first: Any
    later: Any
    later_positions: Any


@dataclass(frozen=True, eq=False)
class _Lookup:
    """One feature's occurrences, gathered rows, and each occurrence's position in them (None: in order)."""

    read: Occurrences
    rows: Any
    positions: Any


@dataclass(frozen=True, eq=False)
class _Touched:
    """One table's distinct ids in a step, checked against its vocabulary, and their rows before the step."""

    distinct: _Distinct
    ids: Any
    rows: Any


@dataclass(frozen=True, eq=False)
class _Step:
    """The state between `enqueue` and `apply_gradients`.

    Attributes:
        inputs: the enqueued tensors, kept alive because sources contain their `id()`.
        lookups: by feature.
        touched: by table that is not frozen; empty unless training.
    """

    inputs: Any
    lookups: dict[str, _Lookup]
    touched: dict[str, _Touched]


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
            features: by name.
            optimizers: by table name; frozen tables need none.
            step: int64 variable, the number of the step from 0, for the learning rates; the caller advances it.
            total_steps: length of the run, for schedules that end with it.

        Raises:
            ValueError: a feature's table is missing, or a table's slots do not match its optimizer.
        """
        for name, feature in features.items():
            if feature.table not in tables:
                raise ValueError(f"feature {name!r} is of table {feature.table!r}, which is not there")
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
        self._step, self._total_steps = step, total_steps
        self._narrow = all(table.rows <= tf.int32.max for table in moving.values())
        self._current: _Step | None = None
        self._training = self._looked_up = False

    @without_autograph
    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Takes the step's ids; see `EmbeddingBackend.enqueue`.

        Raises:
            ValueError: a feature is missing or unknown, or `inputs` does not allow its input.
            tf.errors.InvalidArgumentError: an id is outside its vocabulary; `bounds.translated_errors` translates it.
        """
        _check_names("enqueue", features, self._features)
        read = {
            name: inputs.occurrences(name, feature, self._tables[feature.table].combiner, features[name])
            for name, feature in self._features.items()
        }
        self.enqueue_occurrences(read, training=training, kept=features)

    @without_autograph
    def enqueue_occurrences(self, read: Mapping[str, Occurrences], *, training: bool, kept: Any = None) -> None:
        """Takes the step's ids as occurrences.

        Args:
            read: by feature.
            training: whether `apply_gradients` will follow.
            kept: the tensors that they were read from, if their sources contain the `id()` of these.

        Raises:
            ValueError: a feature is missing or unknown.
            tf.errors.InvalidArgumentError: an id is outside its vocabulary; `bounds.translated_errors` translates it.
        """
        _check_names("enqueue", read, self._features)
        lookups: dict[str, _Lookup] = {}
        touched: dict[str, _Touched] = {}
        known: dict[tuple[Any, ...], _Distinct] = {}
        for name, table in self._tables.items():
            mine = self._of_table(name, read)
            if not training or name not in self._moving:
                lookups.update(_gather_each(table, mine))
            elif mine:
                own = touched[name] = _gather_distinct(self._moving[name], mine, known, self._narrow)
                positions = own.distinct.positions
                lookups.update({f: _Lookup(r, own.rows, positions[r.source]) for f, r in mine.items()})
        self._current, self._training, self._looked_up = _Step(kept, lookups, touched), training, False

    @without_autograph
    def activations(self) -> dict[str, Any]:
        """Looks up what was enqueued; see `EmbeddingBackend.activations`.

        Raises:
            RuntimeError: nothing was enqueued.
        """
        if self._current is None or self._looked_up:
            raise RuntimeError("activations() comes once after enqueue()")
        lookups = self._current.lookups
        self._looked_up = True
        if not self._training:
            self._current = None
        return {
            name: lookup.activations(lookups[name].read, lookups[name].rows, lookups[name].positions)
            for name in self._features
        }

    @without_autograph
    def apply_gradients(self, gradients: Mapping[str, Any], learning_rates: Mapping[str, Any] | None = None) -> None:
        """Moves the rows that were looked up; see `EmbeddingBackend.apply_gradients`.

        Gradients of features of frozen tables are ignored.

        Args:
            gradients: by feature.
            learning_rates: by table, float32 scalars; None: those of the optimizers.

        Raises:
            RuntimeError: no training step is under way.
            ValueError: a gradient is missing, unknown, or not float32.
        """
        step = self._current
        if step is None or not self._training or not self._looked_up:
            raise RuntimeError("apply_gradients() comes once after enqueue(..., training=True) and activations()")
        _check_names("apply_gradients", gradients, self._features)
        for name, gradient in gradients.items():
            if gradient is not None and gradient.dtype != tf.float32:
                raise ValueError(f"the gradient of feature {name!r} is {gradient.dtype.name}; it must be float32")
        self._current = None
        read = {name: looked_up.read for name, looked_up in step.lookups.items()}
        for name, touched in step.touched.items():
            summed = _summed(touched.distinct, self._of_table(name, read), gradients, self._tables[name].dim)
            rate = self.learning_rate(name) if learning_rates is None else learning_rates[name]
            self._move(name, touched.ids, touched.rows, summed, rate)

    def learning_rate(self, table: str) -> Any:
        """Learning rate of a table at the current step, a float32 scalar."""
        optimizer = self._optimizers[table]
        rate = tf.constant(optimizer.learning_rate, tf.float32)
        if schedules.is_constant(optimizer.schedule):
            return rate
        return rate * schedules.factor(optimizer.schedule, self._step, total_steps=self._total_steps)

    def _of_table(self, table: str, read: Mapping[str, Occurrences]) -> dict[str, Occurrences]:
        return {name: read[name] for name, feature in self._features.items() if feature.table == table}

    def _move(self, name: str, ids: Any, rows: Any, gradient: Any, rate: Any) -> None:
        table, optimizer = self._moving[name], self._optimizers[name]
        own_rate = rate
        if table.groups is not None:
            moving = table.groups.moving(ids, self._step)
            ids, rows = tf.gather(ids, moving.places), tf.gather(rows, moving.places)
            gradient = None if gradient is None else tf.gather(gradient, moving.places)
            own_rate = rate if moving.multipliers is None else rate * moving.multipliers
        slots = {slot: table.gather(ids, slot) for slot in table.slots}
        rows, slots = rules.updated(optimizer, rows, slots, gradient, own_rate)
        if rules.moves_every_row(optimizer):
            _move_untouched(table, optimizer, rate, self._step)
        for slot, values in slots.items():
            table.scatter(ids, values, slot)
        table.scatter(ids, rows)
        table.mark_touched(ids)


def _check_names(call: str, values: Mapping[str, Any], features: Mapping[str, Feature]) -> None:
    missing, unknown = sorted(set(features) - set(values)), sorted(set(values) - set(features))
    if missing or unknown:
        raise ValueError(f"{call} takes every feature once: missing {missing}, unknown {unknown}")


def _gather_distinct(
    table: MovingTable, read: Mapping[str, Occurrences], known: dict[tuple[Any, ...], _Distinct], narrow: bool
) -> _Touched:
    """The distinct ids of a table's features, and their rows; tables with the same inputs share the distinct ids."""
    by_source: dict[tuple[Any, ...], tuple[str, Any]] = {}
    for feature, occurrences in read.items():
        by_source.setdefault(occurrences.source, (feature, occurrences.ids))
    key = tuple(by_source)
    if key not in known:
        known[key] = _distinct({source: ids for source, (_, ids) in by_source.items()}, narrow)
    distinct = known[key]
    checks = [bounds.check(feature, table.name, table.rows, ids) for feature, ids in by_source.values()]
    with tf.control_dependencies(checks):
        ids = tf.identity(distinct.ids)
    return _Touched(distinct, ids, table.gather(ids))


def _distinct(ids: Mapping[tuple[Any, ...], Any], narrow: bool) -> _Distinct:
    parts = list(ids.values())
    if len({part.dtype for part in parts}) > 1:
        parts = [tf.cast(part, tf.int64) for part in parts]
    occurrences = parts[0] if len(parts) == 1 else tf.concat(parts, 0)
    distinct, positions = tf.unique(tf.cast(occurrences, tf.int32) if narrow else occurrences)
    first = later = later_positions = None
    count = occurrences.shape.num_elements()
    if count is None or count >= _MANY:
        order = tf.range(tf.size(occurrences))
        first = tf.math.unsorted_segment_min(order, positions, tf.size(distinct))
        later = tf.cast(tf.where(tf.gather(first, positions) < order)[:, 0], tf.int32)
        later_positions = tf.gather(positions, later)[:, None]
    by_input = [positions] if len(parts) == 1 else tf.split(positions, [tf.size(part) for part in parts])
    return _Distinct(
        ids=distinct,
        all_positions=positions,
        positions=dict(zip(ids, by_input, strict=True)),
        first=first,
        later=later,
        later_positions=later_positions,
    )


def _gather_each(table: AnyTable, read: Mapping[str, Occurrences]) -> dict[str, _Lookup]:
    """Rows of each occurrence: with no gradients to sum, finding distinct ids costs more than it saves."""
    lookups = {}
    for feature, occurrences in read.items():
        ids = occurrences.ids
        with tf.control_dependencies([bounds.check(feature, table.name, table.rows, ids)]):
            lookups[feature] = _Lookup(occurrences, table.gather(tf.identity(ids)), None)
    return lookups


def _summed(distinct: _Distinct, read: Mapping[str, Occurrences], gradients: Mapping[str, Any], dim: int) -> Any:
    """Gradient of each distinct row, float32 [u, dim]: the sum over its occurrences; None if all are zero."""
    if all(gradients[feature] is None for feature in read):
        return None
    by_source: dict[tuple[Any, ...], list[Any]] = {source: [] for source in distinct.positions}
    for feature, occurrences in read.items():
        if gradients[feature] is not None:
            spread = lookup.occurrence_gradients(occurrences, tf.convert_to_tensor(gradients[feature]), dim)
            by_source[occurrences.source].append(spread)
    parts = [
        tf.add_n(spreads) if spreads else tf.zeros([tf.size(distinct.positions[source]), dim])
        for source, spreads in by_source.items()
    ]
    spread = parts[0] if len(parts) == 1 else tf.concat(parts, 0)
    if distinct.first is None:
        return tf.math.unsorted_segment_sum(spread, distinct.all_positions, tf.size(distinct.ids))
    # The same sums as unsorted_segment_sum, in the same order. Most ids of a batch occur once, and copying their
    # gradients is far cheaper than adding them to zeros.
    summed = tf.gather(spread, distinct.first)
    return tf.tensor_scatter_nd_add(summed, distinct.later_positions, tf.gather(spread, distinct.later))


def _move_untouched(table: MovingTable, optimizer: TableOptimizer, rate: Any, step: Any) -> None:
    """Applies the rule with a gradient of zero to all rows that move, block by block.

    The caller overwrites touched rows afterwards.
    """
    undecayed = optimizer.model_copy(update={"weight_decay_factor": 0.0})

    def move_block(start: Any) -> Any:
        stop = tf.minimum(start + _BLOCK, table.rows)
        ids, own_rate = tf.range(start, stop), rate
        if table.groups is not None:
            moving = table.groups.moving(ids, step)
            ids = tf.gather(ids, moving.places)
            own_rate = rate if moving.multipliers is None else rate * moving.multipliers
        slots = {slot: table.gather(ids, slot) for slot in table.slots}
        rows, slots = rules.updated(undecayed, table.gather(ids), slots, None, own_rate)
        for slot, values in slots.items():
            table.scatter(ids, values, slot)
        table.scatter(ids, rows)
        return (stop,)

    first = (tf.constant(0, tf.int64),)
    tf.while_loop(lambda start: start < table.rows, move_block, first, parallel_iterations=1)
