"""Tables under the checkpoint keys that `tf.tpu.experimental.embedding.TPUEmbedding` writes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from embexp.tables.mapped import MappedTable
from embexp.tables.table import EmbeddingTable


class TableCheckpoint(tf.__internal__.tracking.AutoTrackable):  # type: ignore[misc]
    """What a checkpoint sees of the tables.

    `tf.train.Checkpoint(embedding=TableCheckpoint(tables))` has the keys

        embedding/<table>/.ATTRIBUTES/VARIABLE_VALUE
        embedding/<table>.S<slot>/.ATTRIBUTES/VARIABLE_VALUE        (".S" is an escaped "/")

    and the object graph of a TPUEmbedding, so each restores what the other wrote. Which rows were touched is
    not part of it.
    """

    def __init__(self, tables: Iterable[EmbeddingTable | MappedTable]) -> None:
        variables: dict[str, dict[str, Any]] = {}
        for table in tables:
            if isinstance(table, MappedTable) or table.by_reference:
                continue
            self._track_trackable(table.variable, table.name)
            for slot, variable in table.slots.items():
                self._track_trackable(variable, f"{table.name}/{slot}")
            variables[table.name] = {"parameters": table.variable, **table.slots}
        self._variables = variables
