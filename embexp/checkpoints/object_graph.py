"""The object graph in an object-based checkpoint, what its objects are, and it as a tree. Without TensorFlow.

`tf.train.Checkpoint` stores beside the tensors which objects depend on which, by the names of the edges between them.
Restoring matches objects by these names. Source: tensorflow/core/protobuf/trackable_object_graph.proto

What the objects of a checkpoint are: optimizers and slot variables, recognised by the names of edges. The object graph
has no classes. These libraries write it as follows:

- Keras 3: an optimizer has `_iterations` and `_variables`; slot variables are in lists such as `_momentums`, and the
  model's variables in `_trainable_variables`.
- Keras 2 and TensorFlow 1: slot variables are recorded as such; an optimizer of Keras 2 has `iter` and its settings.
- `TPUEmbedding`, and embexp's tables: `_variables/<table>` has `parameters`, and a slot variable under each other name.

As a tree, each object stands once, below the object that owns it, and references stand for all other edges.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from google.protobuf.message import DecodeError

from embexp.errors import CheckpointError, DataError
from embexp.tensor_bundle import tensor
from embexp.tensor_bundle.index import Entry, read_index
from embexp.tensor_bundle.tensor import read_strings
from embexp.tensor_bundle.writer import OBJECT_GRAPH

TRAINABLE = "_trainable_variables"
"""The edge from a Keras optimizer to the list of the variables that it trains."""
_ALIASES = {"_variables", TRAINABLE, "_non_trainable_variables", "_layers", "keras_api"}
"""Edges to lists in which Keras keeps a second time what an object has under a name of its own."""
ROOT = "checkpoint"
"""Label of the root, which has no name."""


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
    if OBJECT_GRAPH not in entries:
        prefix = str(index).removesuffix(".index")
        tensors = f"{len(entries)} tensor{'' if len(entries) == 1 else 's'}"
        raise CheckpointError(
            f"{prefix} is a name-based checkpoint: it holds {tensors} by name, and no object graph\n"
            f"    `embexp checkpoint convert {prefix} OUT --to object` writes an object-based one"
        )
    strings = read_strings(OBJECT_GRAPH, entries[OBJECT_GRAPH])
    try:
        return _parsed(strings[0], entries)
    except (DecodeError, IndexError) as error:
        raise DataError(f"{index}: {OBJECT_GRAPH} is no object graph: {error}") from None


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


class Role(Enum):
    """What an object is."""

    OBJECT = auto()
    VARIABLE = auto()
    OPTIMIZER = auto()
    SLOT = auto()


def roles(graph: ObjectGraph) -> tuple[Role, ...]:
    """The role of each object, by number."""
    found = [Role.VARIABLE if is_variable_node(node) else Role.OBJECT for node in graph.nodes]
    optimizers = _optimizers(graph)
    for number in optimizers:
        found[number] = Role.OPTIMIZER
    for number in _slots(graph, optimizers):
        if found[number] is Role.VARIABLE:
            found[number] = Role.SLOT
    return tuple(found)


def is_variable_node(node: Node) -> bool:
    """Whether this is a variable, or another leaf with a state, such as a lookup table."""
    return bool(node.values) and not node.edges


def _optimizers(graph: ObjectGraph) -> set[int]:
    found = {number for number, node in enumerate(graph.nodes) if _is_optimizer(graph, node)}
    # An optimizer that scales the loss has no slots of its own.
    found |= {
        number
        for number, node in enumerate(graph.nodes)
        if any(edge.name == "inner_optimizer" and edge.node in found for edge in node.edges)
    }
    return found


def _is_optimizer(graph: ObjectGraph, node: Node) -> bool:
    names = {edge.name for edge in node.edges}
    variables = {edge.name for edge in node.edges if is_variable_node(graph.nodes[edge.node])}
    keras3 = "_iterations" in variables and "_variables" in names
    keras2 = "iter" in variables and "learning_rate" in names
    return bool(node.slots) or keras3 or keras2


def _slots(graph: ObjectGraph, optimizers: set[int]) -> Iterator[int]:
    yield from (slot.node for node in graph.nodes for slot in node.slots)
    elsewhere = _reached(graph, {0} - optimizers, around=optimizers)
    for number in optimizers:
        edges = graph.nodes[number].edges
        # What an optimizer has under a name of its own, such as its step counter, is no slot of a variable.
        own = {edge.node for edge in edges} | optimizers
        lists = {edge.node for edge in edges if edge.name != TRAINABLE and graph.nodes[edge.node].edges}
        trained = _reached(graph, {edge.node for edge in edges if edge.name == TRAINABLE}, around=own)
        yield from _reached(graph, lists - optimizers, around=optimizers) - own - trained - elsewhere
    for node in graph.nodes:
        tables = [graph.nodes[edge.node] for edge in node.edges if edge.name == "_variables"]
        for table in (graph.nodes[edge.node] for each in tables for edge in each.edges):
            if any(edge.name == "parameters" for edge in table.edges):
                yield from (edge.node for edge in table.edges if edge.name != "parameters")


def _reached(graph: ObjectGraph, start: Iterable[int], *, around: set[int]) -> set[int]:
    """The objects that a path leads to from one of `start`, which are among them, past none of `around`."""
    found: set[int] = set()
    pending = list(start)
    while pending:
        number = pending.pop()
        if number not in found:
            found.add(number)
            pending.extend(edge.node for edge in graph.nodes[number].edges if edge.node not in around)
    return found


@dataclass(frozen=True)
class Branch:
    """An edge, and what it leads to.

    Attributes:
        edge: its name; "" at the root. Here and below, characters that can't be printed are escaped.
        node: number of the object.
        label: the names of its variables, their shapes and dtypes; "" if the object has no name but that of the edge.
        refers_to: an object that is drawn elsewhere: the same one if this is a reference, or the variable of a slot.
        is_reference: whether the object itself is drawn elsewhere.
        hidden: number of the edges below it that are not drawn.
    """

    edge: str
    node: int
    role: Role
    label: str
    refers_to: int | None = None
    is_reference: bool = False
    hidden: int = 0
    branches: tuple[Branch, ...] = ()


@dataclass(frozen=True)
class _Step:
    """An edge of the graph; to a slot variable, with the variable whose slot it is."""

    name: str
    node: int
    variable: int | None = None


def spanning_tree(graph: ObjectGraph, *, everything: bool) -> Branch:
    """The tree of a graph.

    Args:
        everything: whether to draw all edges. Else objects without variables are left out, and so are those that only
            repeat, under other names, what is drawn below the same object; those directly at the root stay.
    """
    builder = _TreeBuilder(graph, everything)
    while True:
        tree = builder.branch(_Step("", 0), parent=None)
        drawn = {each.node for each in walk(tree) if not each.is_reference}
        missing = {each.refers_to for each in walk(tree) if each.refers_to is not None} - drawn
        if not missing:
            return tree
        builder.needed |= missing  # a reference leads there from elsewhere


def walk(branch: Branch) -> Iterator[Branch]:
    """A branch and all that are below it, from top to bottom."""
    yield branch
    for each in branch.branches:
        yield from walk(each)


class _TreeBuilder:
    def __init__(self, graph: ObjectGraph, everything: bool) -> None:
        self._graph = graph
        self._everything = everything
        self.needed: set[int] = set()
        self._roles = roles(graph)
        self._owners = _owners(graph)
        self._paths = self._named_paths()
        self._holds = self._with_variables()

    def branch(self, step: _Step, *, parent: int | None) -> Branch:
        number = step.node
        role, edge = self._roles[number], printable(step.name)
        if self._owners[number] != (parent, step.name) and parent is not None:
            label = self._arrow(number)
            return Branch(edge, number, role, label, number, is_reference=True)
        branches, hidden = [], 0
        for each in _steps(self._graph, number):
            child = self.branch(each, parent=number)
            if self._everything or self._is_drawn(child, parent=number):
                branches.append(child)
            else:
                hidden += sum(1 + below.hidden for below in walk(child))
        label = self._label(number, step)
        variable = step.variable if step.variable in self._owners else None
        if variable is not None:
            label = f"{label} {self._arrow(variable)}"
        return Branch(edge, number, role, label, variable, hidden=hidden, branches=tuple(branches))

    def _is_drawn(self, child: Branch, *, parent: int) -> bool:
        if not parent and not child.is_reference:
            return True
        if any(each.node in self.needed and not each.is_reference for each in walk(child)):
            return True
        if child.edge == TRAINABLE and self._roles[parent] is Role.OPTIMIZER and child.branches:
            return True  # what an optimizer trains
        if not self._holds[child.node]:
            return False
        own = [each for each in walk(child) if not each.is_reference]
        if any(self._graph.nodes[each.node].values for each in own):
            return True
        return any(not self._is_below(each.node, parent) for each in walk(child) if each.is_reference)

    def _is_below(self, number: int, ancestor: int) -> bool:
        at: int | None = number
        while at is not None:
            if at == ancestor:
                return True
            at = self._owners[at][0]
        return False

    def _arrow(self, number: int) -> str:
        return f"→ {self._paths[number] or ROOT}"

    def _label(self, number: int, step: _Step) -> str:
        node = self._graph.nodes[number]
        if number == 0:
            return ROOT
        if is_variable_node(node):
            return printable("; ".join(_described(value) for value in node.values))
        values = [self._graph.nodes[edge.node].values for edge in node.edges if not edge.name.isdecimal()]
        names = {value.full_name.rpartition("/")[0] for each in values for value in each if value.full_name}
        name = names.pop() if len(names) == 1 else ""
        return "" if name == step.name else printable(name)

    def _named_paths(self) -> dict[int, str]:
        paths: dict[int, str] = {}
        for number in self._owners:  # an owner stands before what it owns
            owner, name = self._owners[number]
            paths[number] = f"{paths[owner]}/{printable(name)}" if owner else printable(name)
        return paths

    def _with_variables(self) -> dict[int, bool]:
        """Whether a path leads from an object to a variable."""
        before: dict[int, set[int]] = {number: set() for number in self._owners}
        for number in self._owners:
            for step in _steps(self._graph, number):
                before[step.node].add(number)
        pending = [number for number in self._owners if self._graph.nodes[number].values]
        found = set(pending)
        while pending:
            fresh = before[pending.pop()] - found
            found |= fresh
            pending.extend(fresh)
        return {number: number in found for number in self._owners}


def printable(text: str) -> str:
    r"""The text with control characters and the like escaped, such as a line break as `\n`."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode("ascii") for each in text)


def _owners(graph: ObjectGraph) -> dict[int, tuple[int | None, str]]:
    """Below which object each one is drawn, and under which edge: on the shortest path, around lists of aliases."""
    owners: dict[int, tuple[int | None, str]] = {}
    pending: list[tuple[int, int, int, int | None, str]] = [(0, 0, 0, None, "")]
    order = 0
    while pending:
        cost, _, number, owner, name = heapq.heappop(pending)
        if number in owners:
            continue
        owners[number] = (owner, name)
        for step in _steps(graph, number):
            order += 1
            ahead = cost + _cost(step.name)
            heapq.heappush(pending, (ahead, order, step.node, number, step.name))
    return owners


def _cost(name: str) -> int:
    if name in _ALIASES:
        return 1000
    return 10 if name.startswith("_") else 1


def _steps(graph: ObjectGraph, number: int) -> Iterator[_Step]:
    node = graph.nodes[number]
    yield from (_Step(edge.name, edge.node) for edge in node.edges)
    yield from (_Step(slot.name, slot.node, slot.variable) for slot in node.slots)


def _described(value: Value) -> str:
    shape = "" if value.shape is None else f"[{', '.join(map(str, value.shape))}]"
    name = value.full_name if value.name == "VARIABLE_VALUE" else f"{value.full_name} {value.name}"
    return " ".join(part for part in (name.strip(), shape, value.dtype) if part)
