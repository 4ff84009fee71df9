"""The object graph of an object-based checkpoint: objects, the named edges between them, and their variables.

Source: tensorflow/core/protobuf/trackable_object_graph.proto
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from embexp.tensor_bundle import wire

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
"""Key of the object graph; a name-based checkpoint has none."""
KEY_END = "/.ATTRIBUTES/VARIABLE_VALUE"
"""How the key of every variable in an object-based checkpoint ends."""


@dataclass(frozen=True)
class Attribute:
    """A value of an object.

    Attributes:
        name: `VARIABLE_VALUE` for a variable.
        variable: global name of the variable, such as `dense/kernel`; may be empty.
        key: of the tensor.
    """

    name: str
    variable: str
    key: str


@dataclass(frozen=True)
class Slot:
    """A slot variable, as optimizers of TensorFlow 1 and Keras 2 keep them.

    Attributes:
        name: of the slot.
        original: number of the node of the variable that it belongs to.
        variable: number of its own node.
    """

    name: str
    original: int
    variable: int


@dataclass(frozen=True)
class Node:
    """An object; the first one is the root.

    Attributes:
        children: numbers of nodes by the names of the edges to them.
        attributes: its values.
        slots: of an optimizer.
    """

    children: Mapping[str, int]
    attributes: tuple[Attribute, ...]
    slots: tuple[Slot, ...]


def parse(content: bytes) -> list[Node]:
    """The nodes of an object graph.

    Args:
        content: the string under the key `OBJECT_GRAPH`.

    Raises:
        ValueError, IndexError: it is none, or it is cut short.
    """
    return [_node(wire.fields(each)) for each in wire.fields(content).get(1, [])]


def variable_names(nodes: Iterable[Node]) -> dict[str, str]:
    """Global names of variables by key, of those that have one."""
    attributes = (attribute for node in nodes for attribute in node.attributes)
    return {each.key: each.variable for each in attributes if each.variable}


def _node(message: wire.Fields) -> Node:
    children = map(wire.fields, message.get(1, []))
    attributes = map(wire.fields, message.get(2, []))
    slots = map(wire.fields, message.get(3, []))
    return Node(
        {wire.text(each, 2): wire.number(each, 1) for each in children},
        tuple(Attribute(wire.text(each, 1), wire.text(each, 2), wire.text(each, 3)) for each in attributes),
        tuple(Slot(wire.text(each, 2), wire.number(each, 1), wire.number(each, 3)) for each in slots),
    )
