"""Rows read and moved by fused operations, of `native_code/rows.cc` and `native_code/moves.cc`.

They do what `row_updates` does with TensorFlow's operations, with the same bits: for every rule but the user's own and
those that move the whole table, with clipping, decay, frozen rows and learning rates of groups, for tables in one
variable or two. Each row that moves is read once and written once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from embexp.specs.optimizers import FTRL, SGD, Adagrad, AdagradMomentum, Adam, RowwiseAdagrad, TableOptimizer
from embexp.system import native
from embexp.tables import inputs
from embexp.tables import optimizers as rules
from embexp.tables.row_updates import MovingTable, Touched

_ROWS, _MOVES = "rows", "moves"


def unique(ids: Any) -> tuple[Any, Any]:
    """`tf.unique` of ids, int32 or int64 [n]."""
    return tuple(native.library(_ROWS).embexp_distinct(ids=ids))


def gather(table: MovingTable, feature: str, ids: Any) -> Any:
    """Rows `ids` [n] of a feature in a table for which `moves`, float32 [n, dim].

    An id outside of the table is an error of the step, as by `inputs.check`, and for less.
    """
    variables = table.row_variables
    rows = native.library(_ROWS).embexp_gather_rows(
        variables=[part.handle for part in variables.parts],
        ids=ids,
        places=[part.handle for part in variables.places],
        subject=inputs.subject(feature, table.name, table.rows, ids.dtype),
    )
    return tf.ensure_shape(rows, [*ids.shape, table.dim])


def moves(table: MovingTable, optimizer: TableOptimizer) -> bool:
    """Whether the libraries do the step of a table."""
    rules_here = SGD | Adagrad | RowwiseAdagrad | AdagradMomentum | Adam | FTRL
    ours = isinstance(optimizer, rules_here) and not optimizer.moves_every_row
    variables = table.row_variables
    return (
        ours
        and variables is not None
        and all(hasattr(part, "handle") and "GPU" not in part.device for part in variables.parts)
        and native.library(_ROWS) is not None
        and native.library(_MOVES) is not None
    )


def move(
    table: MovingTable,
    optimizer: TableOptimizer,
    touched: Touched,
    gradients: Sequence[Any],
    *,
    rate: Any,
    step: Any,
) -> None:
    """Moves the rows that a batch touched, in place.

    Args:
        table: one that `moves`, with the optimizer's slots.
        touched: the rows; `rows` is not used.
        gradients: of each occurrence, in parts [n_i, dim] float32, one after the other; none: zeros.
        rate: learning rate, float32 scalar.
        step: int64 variable, the number of the step, for rows whose learning rates change by phase.
    """
    distinct = touched.distinct
    variables = table.row_variables
    slots = [variables.slots[name] for name in rules.slots_of(optimizer)]
    groups = [] if table.groups is None else [table.groups]
    rounds = table.precision.rounds
    in_graph = not tf.executing_eagerly()
    ids = distinct.occurrences if groups else touched.ids
    numbered = table.precision.numbered if rounds else None
    one_rate = not (groups and groups[0].scaled)
    native.library(_MOVES).embexp_move_rows(
        variables=[variable.handle for variable in (variables.parts[0], *slots)],
        ids=ids,
        positions=[] if groups else [distinct.all_positions],
        gradients=gradients or [tf.zeros([tf.size(distinct.occurrences), table.dim])],
        rate=rate,
        touched=[] if variables.touched is None else [variables.touched.handle],
        groups=[each.variable.handle for each in groups],
        multipliers=[each.multipliers_at(step) for each in groups],
        places=[place.handle for place in variables.places],
        step=[tf.convert_to_tensor(step)] if rounds else [],
        numbers=[] if numbered is None else [tf.cast(numbered(ids), tf.int64)],
        shares=[] if table.shares is None else [table.shares.variable.handle],
        key=list(table.precision.key or ()) if rounds else [],
        rule=optimizer.kind,
        constants=_constants(optimizer),
        decay=optimizer.weight_decay_factor,
        decay_by_rate=optimizer.multiply_weight_decay_factor_by_learning_rate,
        clip_gradient=_bounds(*rules.gradient_bounds(optimizer)),
        clip_norm=optimizer.clipnorm or 0.0,
        clip_row=_bounds(optimizer.clip_weight_min, optimizer.clip_weight_max),
        from_zero=distinct.first is None,
        # TensorFlow's graph optimizer has other operations for some products and powers. It sees that rows picked by
        # group have one shape, and reorders their products with a scalar, but not in a session. It divides by a
        # constant by multiplying.
        optimized=in_graph,
        swapped=in_graph and bool(groups) and one_rate and tf.compat.v1.executing_eagerly_outside_functions(),
        by_reciprocal=in_graph and one_rate and tf.get_static_value(rate) is not None,
    )


def _bounds(low: float | None, high: float | None) -> list[float]:
    if low is None and high is None:
        return []
    return [-math.inf if low is None else low, math.inf if high is None else high]


def _constants(optimizer: TableOptimizer) -> list[float]:
    """In the order of the fields in `moves.cc`."""
    match optimizer:
        case RowwiseAdagrad():
            return [optimizer.epsilon]
        case AdagradMomentum():
            beta = optimizer.beta2
            power = -1.0 / optimizer.exponent
            return [optimizer.momentum, beta, 1.0 - beta, optimizer.epsilon, power, float(optimizer.use_nesterov)]
        case Adam():
            one, two, inside = optimizer.beta_1, optimizer.beta_2, optimizer.sum_inside_sqrt
            epsilon = optimizer.epsilon * optimizer.epsilon if inside else optimizer.epsilon
            return [one, 1.0 - one, two, 1.0 - two, epsilon, float(inside)]
        case FTRL():
            penalties = [optimizer.l1_regularization_strength, optimizer.l2_regularization_strength]
            by_rate = float(optimizer.multiply_linear_by_learning_rate)
            return [-optimizer.learning_rate_power, *penalties, optimizer.beta, by_rate]
        case _:
            return []
