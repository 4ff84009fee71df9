"""Tables of any layout under the checkpoint keys of `tf.tpu.experimental.embedding.TPUEmbedding`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from embexp.tables.mapped import MappedTable
from embexp.tables.split import SplitTable
from embexp.tables.table import EmbeddingTable
from embexp.tables.tpu_tables import TPUTable


class TableCheckpoint(tf.__internal__.tracking.AutoTrackable):  # type: ignore[misc]
    """The tables as a checkpoint holds them.

    `tf.train.Checkpoint(embedding=TableCheckpoint(tables))` has the keys

        embedding/<table>/.ATTRIBUTES/VARIABLE_VALUE
        embedding/<table>.S<slot>/.ATTRIBUTES/VARIABLE_VALUE        (".S" is an escaped "/")

    and the object graph of a TPUEmbedding, so each restores what the other wrote. A split table is written as one, in
    the order of the vocabulary. Slots of frozen rows are written with their initial values, and ignored when restored.
    Which rows were touched is not saved.
    """

    def __init__(self, tables: Iterable[EmbeddingTable | SplitTable | MappedTable | TPUTable]) -> None:
        variables: dict[str, dict[str, Any]] = {}
        for table in tables:
            if table.by_reference:
                continue
            variables[table.name] = {"parameters": table.checkpointed()}
            self._track_trackable(variables[table.name]["parameters"], table.name)
            for slot in table.slots:
                variables[table.name][slot] = table.checkpointed(slot)
                self._track_trackable(variables[table.name][slot], f"{table.name}/{slot}")
        self._variables = variables

    def whole_variables(self) -> list[Any]:
        """The tables and slots that are one variable each, float32 [rows, dim]."""
        parts = [each for group in self._variables.values() for each in group.values()]
        return [each for each in parts if isinstance(each, tf.Variable)]
