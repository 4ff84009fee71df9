"""Tables under the checkpoint keys that `tf.tpu.experimental.embedding.TPUEmbedding` writes, whatever their layout."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import tensorflow as tf

from embexp import arrays, digests
from embexp.tables.mapped import MappedTable
from embexp.tables.split import SplitTable
from embexp.tables.table import EmbeddingTable
from embexp.tables.tpu_tables import TPUTable

_KEY = "VARIABLE_VALUE"


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
            if isinstance(table, TPUTable):
                parameters: Any = _OnTPU(table, None)
                slots: dict[str, Any] = {slot: _OnTPU(table, slot) for slot in table.slots}
            elif isinstance(table, SplitTable):
                parameters = _Whole(table, None)
                slots = {slot: _Whole(table, slot) for slot in table.slots}
            else:
                parameters, slots = table.variable, table.slots
            self._track_trackable(parameters, table.name)
            for slot, variable in slots.items():
                self._track_trackable(variable, f"{table.name}/{slot}")
            variables[table.name] = {"parameters": parameters, **slots}
        self._variables = variables


class _Whole(tf.__internal__.tracking.Trackable):  # type: ignore[misc]
    """A split table, or one slot of it, as checkpoints see it: a variable of all its rows.

    Attributes:
        name: of that variable.
        shape: [rows, dim].
        covered: the variables that a checkpoint of it holds.
    """

    def __init__(self, table: SplitTable, slot: str | None) -> None:
        self._table, self._slot = table, slot
        self.name = table.name if slot is None else f"{table.name}/{slot}"
        self.shape = tf.TensorShape([table.rows, table.dim])
        self.covered = [table.others, table.fixed] if slot is None else [table.slots[slot]]

    def _serialize_to_tensors(self) -> dict[str, Any]:
        if not tf.executing_eagerly():
            return {_KEY: self._in_graph()}
        return {_KEY: _read_whole(self._table, self._slot)}

    def _in_graph(self) -> Any:
        table = self._table
        if self._slot is None:
            return table.gather(tf.range(table.rows))
        first = tf.fill([table.rows, table.dim], np.float32(table.initial[self._slot]))
        return tf.tensor_scatter_nd_update(first, table.moving_rows()[:, None], table.slots[self._slot].read_value())

    def _restore_from_tensors(self, restored: dict[str, Any]) -> Any:
        whole, table = restored[_KEY], self._table
        if not whole.shape.is_compatible_with(self.shape):
            raise ValueError(f"{self.name} is {self.shape.as_list()}, the checkpoint's {whole.shape.as_list()}")
        if self._slot is not None:
            return table.slots[self._slot].assign(tf.gather(whole, table.moving_rows()))
        done = [table.others.assign(tf.gather(whole, table.others_rows()))]
        if table.mapped:
            done.append(self._as_in_the_file(whole))
        else:
            done.append(table.fixed.assign(tf.gather(whole, table.fixed_rows())))
        return tf.group(*done) if not tf.executing_eagerly() else done

    def _as_in_the_file(self, whole: Any) -> Any:
        """Rows that stay in their file can't be restored, but they can be found to be the same."""
        rows, table = self._table.fixed_rows(), self._table
        message = f"frozen rows of table {table.name} in the checkpoint are not those of its pretrained file"
        if not tf.executing_eagerly():
            # In a graph of TensorFlow 1, == would compare the tensors as Python objects.
            same = tf.equal(tf.bitcast(tf.gather(whole, rows), tf.uint32), tf.bitcast(table.gather(rows), tf.uint32))
            return tf.debugging.Assert(tf.reduce_all(same), [message])
        for start in range(0, int(rows.shape[0]), digests.ROWS_PER_BLOCK):
            some = rows[start : start + digests.ROWS_PER_BLOCK]
            stored, own = tf.gather(whole, some).numpy(), table.gather(some).numpy()
            if not np.array_equal(stored.view(np.uint32), own.view(np.uint32)):
                raise ValueError(message)
        return None


class _OnTPU(tf.__internal__.tracking.Trackable):  # type: ignore[misc]
    """A table of a TPU, or one slot of it, as checkpoints see it: a variable of all its rows.

    What is restored stands in the variables of the TPU's hosts: `TPUBackend.load` brings it into the TPU.

    Attributes:
        name: of that variable.
        shape: [rows, dim].
        covered: the variables that a checkpoint of it holds.
    """

    def __init__(self, table: TPUTable, slot: str | None) -> None:
        self._table, self._slot = table, slot
        self.name = table.name if slot is None else f"{table.name}/{slot}"
        self.shape = tf.TensorShape([table.rows, table.dim])
        self.covered = table.variables(slot)

    def _serialize_to_tensors(self) -> dict[str, Any]:
        return {_KEY: _read_whole(self._table, self._slot)}

    def _restore_from_tensors(self, restored: dict[str, Any]) -> None:
        whole = restored[_KEY]
        if not whole.shape.is_compatible_with(self.shape):
            raise ValueError(f"{self.name} is {self.shape.as_list()}, the checkpoint's {whole.shape.as_list()}")
        self._table.write(whole, self._slot)


def _read_whole(table: SplitTable | TPUTable, slot: str | None) -> Any:
    """All rows of a table, or of one slot, as a tensor."""
    whole = arrays.empty((table.rows, table.dim), np.float32)
    start = 0
    for block in table.blocks(slot):
        whole[start : start + len(block)] = block
        start += len(block)
    return tf.experimental.dlpack.from_dlpack(whole.__dlpack__())
