"""Tables under the checkpoint keys that `tf.tpu.experimental.embedding.TPUEmbedding` writes, whatever their layout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from embexp.tables.mapped import MappedTable
from embexp.tables.split import SplitTable
from embexp.tables.streamed import streamed
from embexp.tables.table import EmbeddingTable
from embexp.tables.tpu_tables import TPUTable


class TableCheckpoint(tf.__internal__.tracking.AutoTrackable):  # type: ignore[misc]
    """What a checkpoint sees of the tables.

    `tf.train.Checkpoint(embedding=TableCheckpoint(tables))` has the keys

        embedding/<table>/.ATTRIBUTES/VARIABLE_VALUE
        embedding/<table>.S<slot>/.ATTRIBUTES/VARIABLE_VALUE        (".S" is an escaped "/")

    and the object graph of a TPUEmbedding, so each restores what the other wrote. A table that is kept in parts is
    written as one, in the order of the vocabulary; slots of rows that never move have their first values there, and
    what a checkpoint has for them is not looked at. Which rows were touched is not part of it.
    """

    def __init__(self, tables: Iterable[EmbeddingTable | SplitTable | MappedTable | TPUTable]) -> None:
        variables: dict[str, dict[str, Any]] = {}
        for table in tables:
            if isinstance(table, MappedTable) or table.by_reference:
                continue
            # A table that is one variable is left to TensorFlow in its graphs, for Estimators have savers of their own.
            # Eagerly, TensorFlow would restore it with a second copy of its rows and slots in memory.
            if not isinstance(table, EmbeddingTable) or tf.executing_eagerly():
                parameters: Any = streamed(table, None)
                slots: dict[str, Any] = {slot: streamed(table, slot) for slot in table.slots}
            else:
                parameters, slots = table.variable, table.slots
            self._track_trackable(parameters, table.name)
            for slot, variable in slots.items():
                self._track_trackable(variable, f"{table.name}/{slot}")
            variables[table.name] = {"parameters": parameters, **slots}
        self._variables = variables
