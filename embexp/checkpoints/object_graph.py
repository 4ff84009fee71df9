"""The object graph in an object-based checkpoint, read without TensorFlow, which imports slowly.

`tf.train.Checkpoint` stores beside the tensors which objects depend on which, by the names of the edges between them.
Restoring matches objects by these names. Source: tensorflow/core/protobuf/trackable_object_graph.proto
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.message import DecodeError

from embexp.errors import CheckpointError, DataError
from embexp.tensor_bundle import tensor
from embexp.tensor_bundle.index import Entry, read_index
from embexp.tensor_bundle.tensor import read_strings

GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Key of the graph in the checkpoint."""


@dataclass(frozen=True)
class Edge:
    """A dependency of an object on another.

    Attributes:
        name: as the object calls it: an attribute, a key, or a number in a list.
        node: number of the other object.
    """

    name: str
    node: int


@dataclass(frozen=True)
class Value:
    """A tensor that belongs to an object.

    Attributes:
        name: of the attribute; `VARIABLE_VALUE` for variables.
        full_name: the variable's own name, such as `dense/kernel`, or "".
        key: of the tensor in the checkpoint.
        shape: of the tensor; None if there is none of this key, since the object has several, as a lookup table has.
        dtype: name of its type, or "".
    """

    name: str
    full_name: str
    key: str
    shape: tuple[int, ...] | None
    dtype: str


@dataclass(frozen=True)
class Slot:
    """A slot variable of an optimizer, as the optimizers of TensorFlow 1 and of Keras 2 record them.

    Attributes:
        name: such as `m`.
        variable: number of the variable whose slot it is.
        node: number of the slot variable.
    """

    name: str
    variable: int
    node: int


@dataclass(frozen=True)
class Node:
    """An object: its dependencies in the order of the file, its tensors, and, of an optimizer, slot variables."""

    edges: tuple[Edge, ...]
    values: tuple[Value, ...]
    slots: tuple[Slot, ...]


@dataclass(frozen=True)
class ObjectGraph:
    """All objects of a checkpoint by number; 0 is the root."""

    nodes: tuple[Node, ...]

    @property
    def edges(self) -> int:
        """Number of edges, those to slot variables included."""
        return sum(len(node.edges) + len(node.slots) for node in self.nodes)


def read(index: Path) -> ObjectGraph:
    """The object graph of a checkpoint.

    Args:
        index: the file that ends with `.index`.

    Raises:
        CheckpointError: the checkpoint is name-based, and has no graph.
        DataError: it is no checkpoint, or it is damaged.
    """
    entries = read_index(index)
    if GRAPH_KEY not in entries:
        prefix = str(index).removesuffix(".index")
        tensors = f"{len(entries)} tensor{'' if len(entries) == 1 else 's'}"
        raise CheckpointError(
            f"{prefix} is a name-based checkpoint: it holds {tensors} by name, and no object graph\n"
            f"    `embexp checkpoint convert {prefix} OUT --to object` writes an object-based one"
        )
    strings = read_strings(GRAPH_KEY, entries[GRAPH_KEY])
    try:
        return _parsed(strings[0], entries)
    except (DecodeError, IndexError) as error:
        raise DataError(f"{index}: {GRAPH_KEY} is no object graph: {error}") from None


def _parsed(message: bytes, entries: Mapping[str, Entry]) -> ObjectGraph:
    from tensorboard.compat.proto.trackable_object_graph_pb2 import TrackableObjectGraph

    graph = TrackableObjectGraph.FromString(message)
    nodes = tuple(
        Node(
            tuple(Edge(each.local_name, each.node_id) for each in node.children),
            tuple(_value(each.name, each.full_name, each.checkpoint_key, entries) for each in node.attributes),
            tuple(
                Slot(each.slot_name, each.original_variable_node_id, each.slot_variable_node_id)
                for each in node.slot_variables
            ),
        )
        for node in graph.nodes
    )
    named = [edge.node for node in nodes for edge in node.edges]
    named += [number for node in nodes for slot in node.slots for number in (slot.variable, slot.node)]
    if not nodes or not all(0 <= number < len(nodes) for number in named):
        raise IndexError(f"an edge leads to an object that is not among its {len(nodes)}")
    return ObjectGraph(nodes)


def _value(name: str, full_name: str, key: str, entries: Mapping[str, Entry]) -> Value:
    entry = entries.get(key)
    if entry is None:
        return Value(name, full_name, key, None, "")
    return Value(name, full_name, key, entry.shape, tensor.type_name(entry.kind))
