"""Applies an optimizer's rule to rows of a table: those that a batch touched, or all."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from embexp.specs.optimizers import TableOptimizer
from embexp.tables import optimizers as rules
from embexp.tables.distinct import Touched
from embexp.tables.split import SplitTable
from embexp.tables.table import EmbeddingTable

MovingTable = EmbeddingTable | SplitTable
"""A table of which some rows may move."""

_BLOCK = 65_536
"""Rows per block in a pass over a whole table."""


def move(
    table: MovingTable, optimizer: TableOptimizer, touched: Touched, gradient: Any, *, rate: Any, step: Any
) -> None:
    """Moves the rows that a batch touched; frozen ones are left out of the rule and of the assignment.

    Args:
        table: with the optimizer's slots.
        optimizer: its rule.
        touched: the rows.
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
    rows, slots = rules.updated(optimizer, rows, slots, gradient, own_rate)
    if rules.moves_every_row(optimizer):
        _move_untouched(table, optimizer, rate, step)
    for slot, values in slots.items():
        table.scatter(ids, values, slot)
    table.scatter(ids, rows)
    table.mark_touched(ids)


def move_rows(table: MovingTable, optimizer: TableOptimizer, ids: Any, gradient: Any, *, rate: Any) -> None:
    """Reads rows and their slots, applies the rule, and writes them.

    Args:
        table: with the optimizer's slots.
        optimizer: its rule.
        ids: integers [u], distinct.
        gradient: float32 [u, dim]; None: zeros.
        rate: learning rate, float32 scalar or [u, 1].
    """
    slots = {slot: table.gather(ids, slot) for slot in table.slots}
    rows, slots = rules.updated(optimizer, table.gather(ids), slots, gradient, rate)
    for slot, values in slots.items():
        table.scatter(ids, values, slot)
    table.scatter(ids, rows)


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
        move_rows(table, undecayed, ids, None, rate=own_rate)
        return (stop,)

    first = (tf.constant(0, tf.int64),)
    tf.while_loop(lambda start: start < table.rows, move_block, first, parallel_iterations=1)
