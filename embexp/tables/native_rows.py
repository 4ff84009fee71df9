"""Rows moved in one pass, by the library of `native_code/rows.cc`; the same bits as `row_updates`, in half the time.

Used for tables on a processor, and for the plain rules: SGD, Adagrad, and lazy Adam with epsilon inside the root, all
without clipping, weight decay, or rows that are frozen or have learning rates of their own.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from embexp.specs.optimizers import SGD, Adagrad, Adam, TableOptimizer
from embexp.system import native
from embexp.tables.distinct import Touched
from embexp.tables.row_updates import MovingTable
from embexp.tables.table import EmbeddingTable


def moves(table: MovingTable, optimizer: TableOptimizer) -> bool:
    """Whether `move` does the step of a table."""
    return (
        _is_plain(optimizer)
        and isinstance(table, EmbeddingTable)
        and table.groups is None
        and "GPU" not in table.variable.device
        and tf.compat.v1.executing_eagerly_outside_functions()
        and native.library("rows") is not None
    )


def _is_plain(optimizer: TableOptimizer) -> bool:
    bounds = (optimizer.clipvalue, optimizer.clip_weight_min, optimizer.clip_weight_max)
    if optimizer.weight_decay_factor or any(bound is not None for bound in bounds):
        return False
    if isinstance(optimizer, Adam):
        return optimizer.lazy_adam and optimizer.sum_inside_sqrt
    return isinstance(optimizer, SGD | Adagrad)


def move(table: MovingTable, optimizer: TableOptimizer, touched: Touched, gradients: Any, *, rate: Any) -> None:
    """Moves the rows that a batch touched, in place.

    Args:
        table: one that `moves`, with the optimizer's slots.
        optimizer: its rule.
        touched: the rows; `rows` is not used.
        gradients: float32 [n, dim], of each occurrence; None: zeros.
        rate: learning rate, float32 scalar.
    """
    assert isinstance(table, EmbeddingTable)
    positions = touched.distinct.all_positions
    if gradients is None:
        gradients = tf.zeros([tf.size(positions), table.dim])
    native.library("rows").embexp_move_rows(
        variables=[variable.handle for variable in (table.variable, *table.slots.values())],
        ids=touched.ids,
        positions=positions,
        gradient=gradients,
        rate=rate,
        rule=optimizer.kind,
        from_zero=touched.distinct.first is None,
        **_constants(optimizer),
    )
    table.mark_touched(touched.ids)


def _constants(optimizer: TableOptimizer) -> dict[str, Any]:
    if not isinstance(optimizer, Adam):
        return {}
    return {
        "beta_1": optimizer.beta_1,
        "rest_1": 1.0 - optimizer.beta_1,
        "beta_2": optimizer.beta_2,
        "rest_2": 1.0 - optimizer.beta_2,
        "epsilon": optimizer.epsilon * optimizer.epsilon,
    }
