"""Rows read and moved by the library of `native_code/rows.cc`; the same bits as `row_updates`, in half the time.

Used for tables on a processor, and for the plain rules: SGD, Adagrad, and lazy Adam with epsilon inside the root, all
without clipping, weight decay, or rows that are frozen or have learning rates of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from embexp.specs.optimizers import SGD, Adagrad, Adam, TableOptimizer
from embexp.system import native
from embexp.tables import bounds
from embexp.tables.lookup import Touched
from embexp.tables.row_updates import MovingTable
from embexp.tables.table import EmbeddingTable


def unique(ids: Any) -> tuple[Any, Any]:
    """`tf.unique` of ids, int32 or int64 [n]."""
    return tuple(native.library("rows").embexp_distinct(ids=ids))


def gather(table: EmbeddingTable, feature: str, ids: Any) -> Any:
    """Rows `ids` [n] of a feature in a table that `moves`, float32 [n, dim].

    An id outside of the table is an error of the step, as by `bounds.check`, and for less.
    """
    subject = bounds.subject(feature, table.name, table.rows, ids.dtype)
    rows = native.library("rows").embexp_gather_rows(variable=table.variable.handle, ids=ids, subject=subject)
    return tf.ensure_shape(rows, [*ids.shape, table.dim])


def moves(table: MovingTable, optimizer: TableOptimizer) -> bool:
    """Whether the library does the step of a table."""
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


def move(
    table: EmbeddingTable, optimizer: TableOptimizer, touched: Touched, gradients: Sequence[Any], *, rate: Any
) -> None:
    """Moves the rows that a batch touched, in place.

    Args:
        table: one that `moves`, with the optimizer's slots.
        touched: the rows; `rows` is not used.
        gradients: of each occurrence, in parts [n_i, dim] float32, one after the other; none: zeros.
        rate: learning rate, float32 scalar.
    """
    positions = touched.distinct.all_positions
    native.library("rows").embexp_move_rows(
        variables=[variable.handle for variable in (table.variable, *table.slots.values())],
        ids=touched.ids,
        positions=positions,
        gradients=gradients or [tf.zeros([tf.size(positions), table.dim])],
        rate=rate,
        touched=[] if table.touched is None else [table.touched.handle],
        rule=optimizer.kind,
        from_zero=touched.distinct.first is None,
        **_constants(optimizer),
    )


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
