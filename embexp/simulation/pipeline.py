"""The delay of `pipeline_execution_with_tensor_core`: a lookup misses the update of the training step before it.

A TPU looks up the rows of a step while its cores still compute the step before. Here the rows that a step updates are
remembered as they were, and the next lookup sees those.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from embexp.simulation.queues import Queue
from embexp.simulation.sharded import ShardedTable
from embexp.specs.optimizers import TableOptimizer
from embexp.tables import optimizers as rules


class Pipeline:
    """The rows that the last training step updated, as they were before it, for each table."""

    def __init__(self, tables: Mapping[str, ShardedTable], optimizers: Mapping[str, TableOptimizer]) -> None:
        """Remembers nothing yet.

        Args:
            tables: by name.
            optimizers: by table.
        """
        self._tables, self._optimizers = dict(tables), dict(optimizers)
        self._before = {name: Queue([tf.int64, tf.float32]) for name in tables}

    def stale(self) -> dict[str, StaleTable]:
        """The tables as the lookup of a training step sees them; forgets the rows of the step before."""
        return {name: StaleTable(table, *self._take(name)) for name, table in self._tables.items()}

    def remember(self, ids: Mapping[str, list[Any]]) -> None:
        """Remembers rows that are about to be updated.

        Args:
            ids: by table, int64 tensors, which may repeat ids.
        """
        for name, table in self._tables.items():
            if rules.moves_every_row(self._optimizers[name]):
                distinct = tf.range(table.rows, dtype=tf.int64)
            else:
                distinct = tf.sort(tf.unique(tf.concat(ids.get(name) or [tf.zeros([0], tf.int64)], 0))[0])
            self._before[name].put([distinct, table.gather(distinct)])

    def flush(self) -> None:
        """Forgets all rows: lookups see all updates, as after an evaluation, loading or saving."""
        for name in self._tables:
            self._take(name)

    def _take(self, table: str) -> tuple[Any, Any]:
        ids, rows = self._before[table].take_or(
            lambda: [tf.zeros([0], tf.int64), tf.zeros([0, self._tables[table].dim])]
        )
        return tf.ensure_shape(ids, [None]), tf.ensure_shape(rows, [None, self._tables[table].dim])


class StaleTable:
    """A table to look up, some of whose rows are replaced by earlier values.

    It has those methods of a table that is never trained that the row engine calls.

    Attributes:
        name: of the table.
        rows: vocabulary size.
        dim: width of a row.
        slots: none.
        frozen: True.
        groups: None.
    """

    frozen = True
    groups = None

    def __init__(self, table: ShardedTable, ids: Any, rows: Any) -> None:
        """Replaces the rows `ids`, int64 [n], sorted and distinct, by `rows`, float32 [n, dim]."""
        self.name, self.rows, self.dim = table.name, table.rows, table.dim
        self.slots: dict[str, Any] = {}
        self._table = table
        # A last row that no id matches, so that there always is one.
        self._ids = tf.concat([ids, [tf.int64.max]], 0)
        self._replaced = tf.concat([rows, tf.zeros([1, table.dim])], 0)

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids`: float32 [n, dim]."""
        places = tf.searchsorted(self._ids, ids)
        found = tf.gather(self._ids, places) == ids
        return tf.where(found[:, None], tf.gather(self._replaced, places), self._table.gather(ids, slot))
