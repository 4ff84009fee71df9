"""A table whose rows are spread over several hosts, for the row engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from embexp.tables.variables import gather_rows, scatter_rows


class ShardedTable:
    """Rows and slots of a table of a `TPUEmbedding`, one block of rows per host.

    It has those methods of `EmbeddingTable` that a training step calls.

    Attributes:
        name: of the table.
        rows: vocabulary size.
        dim: width of a row.
        slots: by slot name, its shards.
        frozen: False.
        groups: None, all rows move.
    """

    frozen = False
    groups = None

    def __init__(self, name: str, rows: int, dim: int, variables: Mapping[str, Any]) -> None:
        """Takes the variables of a `TPUEmbedding`.

        Args:
            name: of the table.
            rows: vocabulary size.
            dim: width of a row.
            variables: by `parameters` or slot, an object whose `variables` are the shards, float32 [shard rows, dim].
        """
        self.name, self.rows, self.dim = name, rows, dim
        shards = {slot: tuple(sharded.variables) for slot, sharded in variables.items()}
        self._parameters = shards.pop("parameters")
        self.slots = shards
        self._stops = [0]
        for shard in self._parameters:
            self._stops.append(self._stops[-1] + int(shard.shape[0]))

    def gather(self, ids: Any, slot: str | None = None) -> Any:
        """Rows `ids` of the table, or of one slot: float32 [n, dim]."""
        shards = self._of(slot)
        if len(shards) == 1:
            return gather_rows(shards[0], ids)
        places, local = self._by_shard(ids)
        rows = [gather_rows(shard, own) for shard, own in zip(shards, local, strict=True)]
        return tf.ensure_shape(tf.dynamic_stitch(places, rows), [*ids.shape, self.dim])

    def scatter(self, ids: Any, rows: Any, slot: str | None = None) -> None:
        """Assigns `rows` to the rows `ids`, which must not repeat."""
        shards = self._of(slot)
        if len(shards) == 1:
            scatter_rows(shards[0], ids, rows)
            return
        for shard, own, local in zip(shards, *self._by_shard(ids), strict=True):
            scatter_rows(shard, local, tf.gather(rows, own))

    def mark_touched(self, ids: Any) -> None:
        """Does nothing: a TPU does not report which rows were touched."""

    def _of(self, slot: str | None) -> Sequence[Any]:
        return self._parameters if slot is None else self.slots[slot]

    def _by_shard(self, ids: Any) -> tuple[list[Any], list[Any]]:
        """For each shard the positions of its ids in `ids`, int32, and their row numbers in the shard."""
        places, local = [], []
        for start, stop in zip(self._stops[:-1], self._stops[1:], strict=True):
            own = tf.cast(tf.where((ids >= start) & (ids < stop))[:, 0], tf.int32)
            places.append(own)
            local.append(tf.gather(ids, own) - start)
        return places, local
