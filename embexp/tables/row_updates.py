"""From rows to activations, and back: sums of gradients, and an optimizer's rule applied to a step's distinct rows.

Steps that look up every row of a table, as candidates of a knowledge graph do (1-vs-all). Nothing has to look for
distinct ids: a row's number is its position. The rule goes over the table block by block, which stays in a processor's
cache, instead of over copies of all rows and slots.

`fused_rows` does the same for tables on a processor, in half the time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.specs.optimizers import Adagrad, TableOptimizer
from embexp.tables import inputs
from embexp.tables import optimizers as rules
from embexp.tables.inputs import Occurrences
from embexp.tables.table import EmbeddingTable, SplitTable
from embexp.tables.variables import read_without_copy, rounded

_MANY = 16_384
"""Occurrences from which on it pays to sum gradients without adding to zeros, by more operations."""


def activations(read: Occurrences, rows: Any, positions: Any) -> Any:
    """Combines the rows of a feature.

    Each row of the result is sum(w * e) over its occurrences, divided by its denominator: by sum(w) for mean,
    by sqrt(sum(w^2)) for sqrtn; 0 where that is 0.

    Args:
        read: the feature's occurrences.
        rows: float32 [m, dim].
        positions: int32 [n], the position in `rows` of each occurrence; None: occurrence i is row i.

    Returns:
        float32, `read.shape + [dim]`.
    """
    dim = rows.shape[-1]
    if read.segments is None:
        flat = rows if positions is None else tf.gather(rows, positions)
    else:
        flat = _summed(read, rows, positions)
        if read.denominator is not None:
            flat = tf.math.divide_no_nan(flat, read.denominator[:, None])
    return tf.ensure_shape(tf.reshape(flat, tf.concat([read.shape, [dim]], 0)), [*read.static_shape, dim])


def gradients_of_occurrences(read: Occurrences, gradient: Any, dim: int) -> Any:
    """The gradient of each occurrence, float32 [n, dim]: d loss / d activations, times w / denominator."""
    flat = tf.reshape(gradient, [-1, dim])
    if read.segments is None:
        return flat
    if read.denominator is not None:
        flat = tf.math.divide_no_nan(flat, read.denominator[:, None])
    spread = tf.gather(flat, read.segments)
    return spread if read.weights is None else spread * read.weights[:, None]


def _summed(read: Occurrences, rows: Any, positions: Any) -> Any:
    if read.weights is not None:
        rows = (rows if positions is None else tf.gather(rows, positions)) * read.weights[:, None]
        positions = None
    if not read.rising:
        rows = rows if positions is None else tf.gather(rows, positions)
        return tf.math.unsorted_segment_sum(rows, read.segments, tf.reduce_prod(read.shape))
    if positions is None:
        positions = tf.range(tf.size(read.segments))
    return tf.raw_ops.SparseSegmentSumWithNumSegments(
        data=rows, indices=positions, segment_ids=read.segments, num_segments=tf.reduce_prod(read.shape)
    )


@dataclass(frozen=True, eq=False)
class Distinct:
    """The distinct ids of some inputs.

    Attributes:
        occurrences: [n], the ids of all inputs; int32 if every table is small enough, which is faster.
        ids: [u], those of `occurrences`, in order of first occurrence.
        all_positions: int32 [n], the position in `ids` of each occurrence.
        positions: `all_positions` by input, by its source.
        first: int32 [u], the first occurrence of each of `ids`. `first`, `later` and `later_positions` are None for
            fewer than `_MANY` occurrences.
        later: int32 [n - u], all other occurrences, rising.
        later_positions: int32 [n - u, 1], their positions in `ids`.
    """

    occurrences: Any
    ids: Any
    all_positions: Any
    positions: dict[tuple[Any, ...], Any]
    first: Any
    later: Any
    later_positions: Any


@dataclass(frozen=True, eq=False)
class Touched:
    """The rows of a table that a step may move.

    Attributes:
        distinct: the distinct ids of the table's features.
        ids: the same, checked against its vocabulary.
        rows: float32 [u, dim], before the step; None where `fused_rows` moves them, which reads them itself.
    """

    distinct: Distinct
    ids: Any
    rows: Any


def distinct_ids(
    ids: Mapping[tuple[Any, ...], Any], *, narrow: bool, unique: Callable[[Any], tuple[Any, Any]] = tf.unique
) -> Distinct:
    """The distinct ids of inputs.

    Args:
        ids: of each input, by its source, int32 or int64 [n].
        narrow: whether int32 is enough for them.
    """
    parts = list(ids.values())
    if len({part.dtype for part in parts}) > 1:
        parts = [tf.cast(part, tf.int64) for part in parts]
    occurrences = parts[0] if len(parts) == 1 else tf.concat(parts, 0)
    occurrences = tf.cast(occurrences, tf.int32) if narrow else occurrences
    distinct, positions = unique(occurrences)
    first = later = later_positions = None
    count = occurrences.shape.num_elements()
    if count is None or count >= _MANY:
        order = tf.range(tf.size(occurrences))
        first = tf.math.unsorted_segment_min(order, positions, tf.size(distinct))
        later = tf.cast(tf.where(tf.gather(first, positions) < order)[:, 0], tf.int32)
        later_positions = tf.gather(positions, later)[:, None]
    by_input = [positions] if len(parts) == 1 else tf.split(positions, [tf.size(part) for part in parts])
    return Distinct(
        occurrences=occurrences,
        ids=distinct,
        all_positions=positions,
        positions=dict(zip(ids, by_input, strict=True)),
        first=first,
        later=later,
        later_positions=later_positions,
    )


def summed_gradients(
    distinct: Distinct, read: Mapping[str, Occurrences], gradients: Mapping[str, Any], dim: int
) -> Any:
    """Gradient of each distinct row, float32 [u, dim]: the sum over its occurrences; None if all are zero.

    Args:
        gradients: of each feature's activations; None: zeros.
    """
    parts = occurrence_gradients(distinct, read, gradients, dim)
    return summed(distinct, parts) if parts else None


def summed(distinct: Distinct, parts: Sequence[Any]) -> Any:
    """The sum over its occurrences for each distinct row, float32 [u, dim], of what `occurrence_gradients` returns."""
    spread = parts[0] if len(parts) == 1 else tf.concat(parts, 0)
    if distinct.first is None:
        return tf.math.unsorted_segment_sum(spread, distinct.all_positions, tf.size(distinct.ids))
    # The same sums as unsorted_segment_sum, in the same order. Most ids of a batch occur once, and copying their
    # gradients is far cheaper than adding them to zeros.
    summed = tf.gather(spread, distinct.first)
    return tf.tensor_scatter_nd_add(summed, distinct.later_positions, tf.gather(spread, distinct.later))


def occurrence_gradients(
    distinct: Distinct, read: Mapping[str, Occurrences], gradients: Mapping[str, Any], dim: int
) -> list[Any]:
    """Gradients of each occurrence, in parts [n_i, dim] float32 in the order of `all_positions`; none if all are zero.

    The arguments are those of `summed_gradients`.
    """
    if all(gradients[feature] is None for feature in read):
        return []
    by_source: dict[tuple[Any, ...], list[Any]] = {source: [] for source in distinct.positions}
    for feature, occurrences in read.items():
        if gradients[feature] is not None:
            spread = gradients_of_occurrences(occurrences, tf.convert_to_tensor(gradients[feature]), dim)
            by_source[occurrences.source].append(spread)
    return [
        tf.add_n(spreads) if spreads else tf.zeros([tf.size(distinct.positions[source]), dim])
        for source, spreads in by_source.items()
    ]


MovingTable = EmbeddingTable | SplitTable
"""A table of which some rows may move."""

_BLOCK = 65_536
"""Rows per block in a pass over a whole table."""
_LEAST = 4 << 20
"""Bytes of a table from which on it pays. Smaller ones keep the bits of recorded runs: inside a loop, TensorFlow's
graph optimizer orders the products of a rule differently, which changes last bits."""
_BLOCK_BYTES = 1 << 20
"""Bytes of rows in a block; with gradient, slots and intermediate results it takes some times as much."""


def move(
    table: MovingTable, optimizer: TableOptimizer, touched: Touched, gradient: Any, *, rate: Any, step: Any
) -> None:
    """Moves the rows that a batch touched; frozen ones are left out of the rule and of the assignment.

    Args:
        table: with the optimizer's slots.
        gradient: float32 [u, dim]; None: zeros.
        rate: learning rate, float32 scalar.
        step: int64 variable, the number of the step, for rows whose learning rates change by phase.
    """
    ids, rows, own_rate = touched.ids, touched.rows, rate
    if table.groups is not None:
        moving = table.groups.moving(ids, step)
        ids, rows = tf.gather(ids, moving.places), tf.gather(rows, moving.places)
        gradient = None if gradient is None else tf.gather(gradient, moving.places)
        own_rate = rate if moving.multipliers is None else rate * moving.multipliers
    slots = {slot: table.gather(ids, slot) for slot in table.slots}
    shares = None if table.shares is None else table.shares.of(ids)
    rows, slots = rules.updated(optimizer, rows, slots, gradient, own_rate, shares)
    if optimizer.moves_every_row:
        _move_untouched(table, optimizer, rate, step)
    _put(table, ids, rows, slots, step)
    table.mark_touched(ids)


def _put(table: MovingTable, ids: Any, rows: Any, slots: Mapping[str, Any], step: Any) -> None:
    """Assigns rows and slots, float32, as they are stored; see `rounding`."""
    for variable, (slot, values) in enumerate([(None, rows), *slots.items()]):
        kept = rounded(values, table.dtype(slot), table.precision, ids=ids, variable=variable, step=step)
        table.scatter(ids, kept, slot)


def _move_rows(
    table: MovingTable, optimizer: TableOptimizer, ids: Any, gradient: Any, *, rate: Any, step: Any = None
) -> None:
    """Reads rows and their slots, applies the rule, and writes them.

    Args:
        table: with the optimizer's slots.
        ids: integers [u], distinct.
        gradient: float32 [u, dim]; None: zeros.
        rate: learning rate, float32 scalar or [u, 1].
        step: number of the step, where rows or slots have 16 bits.
    """
    slots = {slot: table.gather(ids, slot) for slot in table.slots}
    rows, slots = rules.updated(optimizer, table.gather(ids), slots, gradient, rate)
    _put(table, ids, rows, slots, step)


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
        _move_rows(table, undecayed, ids, None, rate=own_rate, step=step)
        return (stop,)

    first = (tf.constant(0, tf.int64),)
    tf.while_loop(lambda start: start < table.rows, move_block, first, parallel_iterations=1)


def is_whole(table: MovingTable, optimizer: TableOptimizer, read: Mapping[str, Occurrences]) -> bool:
    """Whether a step looks up all rows of a table, and its optimizer's rule moves each by itself."""
    large = 4 * table.rows * table.dim >= _LEAST
    alike = isinstance(table, EmbeddingTable) and table.groups is None and not optimizer.moves_every_row
    alike = alike and not table.precision.narrow and table.shares is None
    return large and alike and reads_all(table, read)


def reads_all(table: MovingTable, read: Mapping[str, Occurrences]) -> bool:
    """Whether a step looks up all rows of a table, in order."""
    whole = [each.static_shape[-1] == table.rows for each in read.values() if each.every_row]
    return bool(whole) and all(whole)


def gather_all(table: MovingTable, read: Mapping[str, Occurrences]) -> Any:
    """All rows, float32 [rows, dim], if every id is one of them; see `inputs.check`."""
    others = [(name, each.ids) for name, each in read.items() if not each.every_row]
    assert isinstance(table, EmbeddingTable)  # see `is_whole`
    with tf.control_dependencies([inputs.check(name, table.name, table.rows, ids) for name, ids in others]):
        return read_without_copy(table.variable)


def summed_gradients_of_all(table: MovingTable, read: Mapping[str, Occurrences], gradients: Mapping[str, Any]) -> Any:
    """Gradient of each row, float32 [rows, dim]: the sum over its occurrences; None if all are zero.

    Args:
        table: whose rows they are.
        gradients: of each feature's activations; None: zeros.
    """
    given = {name: tf.convert_to_tensor(gradients[name]) for name in read if gradients[name] is not None}
    if not given:
        return None
    spread = {name: gradients_of_occurrences(read[name], each, table.dim) for name, each in given.items()}
    whole = [each for name, each in spread.items() if read[name].every_row]
    total = tf.add_n(whole) if whole else tf.zeros([table.rows, table.dim])
    others = [name for name in spread if not read[name].every_row]
    if not others:
        return total
    ids, positions = tf.unique(tf.concat([tf.cast(read[name].ids, tf.int32) for name in others], 0))
    sums = tf.math.unsorted_segment_sum(tf.concat([spread[name] for name in others], 0), positions, tf.size(ids))
    return add_at(total, ids[:, None], sums)


def move_all(table: MovingTable, optimizer: TableOptimizer, gradient: Any, *, rate: Any) -> None:
    """Moves all rows.

    Args:
        table: with the optimizer's slots.
        gradient: float32 [rows, dim]; None: zeros.
        rate: learning rate, float32 scalar.
    """
    if _is_plain_adagrad(optimizer) and gradient is not None:
        accumulators = table.slots["accumulators"]
        assert isinstance(table, EmbeddingTable)  # see `is_whole`
        tf.raw_ops.ResourceApplyAdagrad(
            var=table.variable.handle, accum=accumulators.handle, lr=rate, grad=gradient, use_locking=False
        )
    else:
        _move_blocks(table, optimizer, gradient, rate)
    table.mark_touched(tf.range(table.rows))


def _is_plain_adagrad(optimizer: TableOptimizer) -> bool:
    """Whether TensorFlow's own operation is the rule: a single pass over the table, in place."""
    plain = Adagrad(
        learning_rate=optimizer.learning_rate,
        schedule=optimizer.schedule,
        initial_accumulator_value=getattr(optimizer, "initial_accumulator_value", 1.0),
    )
    return optimizer == plain


def _move_blocks(table: MovingTable, optimizer: TableOptimizer, gradient: Any, rate: Any) -> None:
    step = max(1, _BLOCK_BYTES // (4 * table.dim))

    def move_block(start: Any) -> Any:
        stop = tf.minimum(start + step, table.rows)
        own = None if gradient is None else gradient[start:stop]
        _move_rows(table, optimizer, tf.range(start, stop), own, rate=rate)
        return (stop,)

    first = (tf.constant(0, tf.int32),)
    tf.while_loop(lambda start: start < table.rows, move_block, first, parallel_iterations=1)


def add_at(tensor: Any, places: Any, values: Any) -> Any:
    """`tf.tensor_scatter_nd_add`, in place where nothing else reads the tensor; on a processor, that one always copies.

    Args:
        tensor: [...]; what else reads it should do so before, by a control dependency, or a copy is made.
        places: integers [n, k], as of `tf.tensor_scatter_nd_add`.
        values: [n, ...].

    Returns:
        A tensor like the first.
    """
    if isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy):  # XLA has no kernel for the other
        return tf.tensor_scatter_nd_add(tensor, places, values)
    return tf.raw_ops.ScatterNdNonAliasingAdd(input=tensor, indices=places, updates=values)
