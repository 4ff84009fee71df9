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
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from embexp.errors import CheckpointError, DataError
from embexp.system.tensor_bundle import stacked, tensor
from embexp.system.tensor_bundle.index import Entry, escaped, read_index, unescaped
from embexp.system.tensor_bundle.stacked import Layout
from embexp.system.tensor_bundle.tensor import read_strings
from embexp.system.tensor_bundle.writer import OBJECT_GRAPH

TRAINABLE = "_trainable_variables"
"""The edge from a Keras optimizer to the list of the variables that it trains."""
_ALIASES = {"_variables", TRAINABLE, "_non_trainable_variables", "_layers", "keras_api"}
"""Edges to lists in which Keras keeps a second time what an object has under a name of its own."""
COUNTER = "save_counter"
"""The edge from the root to TensorFlow's count of saves."""
ROOT = "checkpoint"
"""Label of the root, which has no name."""


@dataclass(frozen=True)
class ObjectGraph:
    """All objects of a checkpoint by number; 0 is the root.

    Attributes:
        proto: TensorFlow's `TrackableObjectGraph`: each of its `nodes` has `children`, `attributes`, which are its
            tensors, and, of the optimizers of TensorFlow 1 and of Keras 2, `slot_variables`.
        entries: the checkpoint's tensors, by key, with tables in place of stacks. An object of several, such as a
            lookup table, has none of its own.
    """

    proto: Any
    entries: Mapping[str, Entry]

    @property
    def nodes(self) -> Any:
        """The objects."""
        return self.proto.nodes


def read(index: Path) -> ObjectGraph:
    """The object graph of a checkpoint.

    Args:
        index: the file that ends with `.index`.

    Raises:
        CheckpointError: the checkpoint is name-based, and has no graph.
        DataError: it is no checkpoint, or it is damaged.
    """
    from tensorboard.compat.proto.trackable_object_graph_pb2 import TrackableObjectGraph

    entries = read_index(index)
    if OBJECT_GRAPH not in entries:
        prefix = str(index).removesuffix(".index")
        tensors = f"{len(entries)} tensor{'' if len(entries) == 1 else 's'}"
        raise CheckpointError(
            f"{prefix} is a name-based checkpoint: it holds {tensors} by name, and no object graph\n"
            f"    `embexp checkpoint convert {prefix} OUT --to object` writes an object-based one"
        )
    try:
        proto = TrackableObjectGraph.FromString(read_strings(OBJECT_GRAPH, entries[OBJECT_GRAPH])[0])
        slots = [slot for node in proto.nodes for slot in node.slot_variables]
        named = [child.node_id for node in proto.nodes for child in node.children]
        named += [number for slot in slots for number in (slot.original_variable_node_id, slot.slot_variable_node_id)]
        if not proto.nodes or not all(0 <= number < len(proto.nodes) for number in named):
            raise IndexError(f"an edge leads to an object that is not among its {len(proto.nodes)} objects")
    except (DecodeError, IndexError) as error:
        raise DataError(f"{index}: {OBJECT_GRAPH} is not an object graph: {error}") from None
    tables = stacked.layouts(entries, index)
    gone = stacked.replaced(tables)
    if tables:
        _take_apart(index, proto, tables, gone)
    of_tables = {key: each.entry(entries[each.stack]) for key, each in tables.items()}
    return ObjectGraph(proto, {**{key: each for key, each in entries.items() if key not in gone}, **of_tables})


def _take_apart(index: Path, proto: Any, tables: Mapping[str, Layout], gone: set[str]) -> None:
    """Gives each `TPUEmbeddingV2` its tables as objects, in place of the stacks that were saved: see `stacked`.

    Args:
        gone: keys of the stacks and records.
    """
    nodes = {
        number for number, node in enumerate(proto.nodes) if gone & {each.checkpoint_key for each in node.attributes}
    }
    owners = {
        each.checkpoint_key: number
        for number, node in enumerate(proto.nodes)
        for child in node.children
        if child.local_name == stacked.RECORD
        for each in proto.nodes[child.node_id].attributes
    }
    if lacking := {each.record for each in tables.values()} - owners.keys():
        raise DataError(f"{index}: {OBJECT_GRAPH} has no object of {', '.join(sorted(lacking))}")
    for number in nodes:
        del proto.nodes[number].attributes[:]
    for owner in owners.values():
        nodes |= {child.node_id for child in proto.nodes[_child(proto, owner, "_variables")].children}
    for node in proto.nodes:
        kept = [child for child in node.children if child.node_id not in nodes]
        if len(kept) < len(node.children):
            del node.children[:]
            node.children.extend(kept)
    # Tables first: where TensorFlow restores them into stacks, it takes the first edge for rows, that to a slot too.
    for key, layout in sorted(tables.items(), key=lambda each: each[1].slot):
        table = proto.nodes.add()
        table.attributes.add(name="VARIABLE_VALUE", checkpoint_key=key)
        table.has_checkpoint_values.value = True
        owner, number = owners[layout.record], len(proto.nodes) - 1
        proto.nodes[owner].children.add(node_id=number, local_name=layout.edge)
        slots = _child(proto, _child(proto, owner, "_variables"), layout.table)
        proto.nodes[slots].children.add(node_id=number, local_name=layout.slot or "parameters")


def _child(proto: Any, number: int, name: str) -> int:
    """The node that an edge leads to, which is added if there is none."""
    for child in proto.nodes[number].children:
        if child.local_name == name:
            return int(child.node_id)
    proto.nodes.add()
    proto.nodes[number].children.add(node_id=len(proto.nodes) - 1, local_name=name)
    return len(proto.nodes) - 1


def add_counter(proto: Any) -> bool:
    """Adds a place for TensorFlow's count of saves, which has no value; returns whether there was none.

    `tf.train.Checkpoint.restore` binds a counter there, and its `assert_consumed` fails without it. `read` knows no
    counter, and its `assert_consumed` fails where that has a value. So this suits both.
    """
    if any(child.local_name == COUNTER for child in proto.nodes[0].children):
        return False
    proto.nodes.add().has_checkpoint_values.value = True  # else nothing is bound to it
    proto.nodes[0].children.add(node_id=len(proto.nodes) - 1, local_name=COUNTER)
    proto.nodes[0].has_checkpoint_values.value = True
    return True


def paths_of(proto: Any) -> list[str]:
    """The object path of each node, the shortest one; that of a slot variable is what its key begins with."""
    paths: list[str | None] = [None] * len(proto.nodes)
    paths[0] = ""
    pending = deque([0])
    while pending:
        number = pending.popleft()
        for child in proto.nodes[number].children:
            if paths[child.node_id] is None:
                edge = escaped(child.local_name)
                paths[child.node_id] = f"{paths[number]}/{edge}" if number else edge
                pending.append(child.node_id)
    for number, node in enumerate(proto.nodes):
        if paths[number] is None and node.attributes:
            paths[number] = node.attributes[0].checkpoint_key.partition("/.ATTRIBUTES/")[0]
    return [path or "" for path in paths]


def move_objects(proto: Any, moves: Mapping[str, str]) -> list[str]:
    """Moves objects, with all that they reach, to other object paths, and returns what can't be moved and why.

    Objects keep the keys of their values. No other edge than the new one leads to a moved object.
    """
    paths = {path: number for number, path in reversed([*enumerate(paths_of(proto))])}
    reached = slots_of(proto)
    faults = [f"there is no object {old}" for old in moves if old not in paths]
    faults += [
        f"{old} is a slot variable, whose place follows from its variable" for old in moves if paths.get(old) in reached
    ]
    if faults:
        return faults
    numbers = {new: paths[old] for old, new in moves.items()}
    for node in proto.nodes:
        kept = [child for child in node.children if child.node_id not in numbers.values()]
        if len(kept) < len(node.children):
            del node.children[:]
            node.children.extend(kept)
    for new, number in numbers.items():
        parent, _, edge = new.rpartition("/")
        children = proto.nodes[reach(proto, parent)].children
        kept = [child for child in children if child.local_name != unescaped(edge)]
        del children[:]
        children.extend(kept)
        children.add(node_id=number, local_name=unescaped(edge))
    return []


def slots_of(proto: Any) -> set[int]:
    """The nodes of slot variables, as the optimizers of TensorFlow 1 and of Keras 2 record them."""
    return {slot.slot_variable_node_id for node in proto.nodes for slot in node.slot_variables}


def nodes_of(proto: Any, pattern: str) -> set[int]:
    """The nodes of the object with a path, and of all that it reaches; none if no object has it.

    An optimizer reaches its slot variables, and the variables that they belong to do not.
    """

    def following(number: int) -> Iterator[int]:
        yield from (child.node_id for child in proto.nodes[number].children)
        yield from (slot.slot_variable_node_id for slot in proto.nodes[number].slot_variables)

    return closure((number for number, path in enumerate(paths_of(proto)) if path == pattern), following)


def closure(start: Iterable[int], following: Callable[[int], Iterable[int]]) -> set[int]:
    """Objects, those that follow from each of them, and so on."""
    found = set(start)
    pending = list(found)
    while pending:
        fresh = set(following(pending.pop())) - found
        found |= fresh
        pending += fresh
    return found


def reach(proto: Any, path: str) -> int:
    """The node of an object path, which is created if there is none."""
    number = 0
    for part in path.split("/") if path else ():
        number = _child(proto, number, unescaped(part))
    return number


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


def is_variable_node(node: Any) -> bool:
    """Whether this is a variable, or another leaf with a state, such as a lookup table."""
    return bool(node.attributes) and not node.children


def _optimizers(graph: ObjectGraph) -> set[int]:
    found = {number for number, node in enumerate(graph.nodes) if _is_optimizer(graph, node)}
    # An optimizer that scales the loss has no slots of its own.
    found |= {
        number
        for number, node in enumerate(graph.nodes)
        if any(edge.local_name == "inner_optimizer" and edge.node_id in found for edge in node.children)
    }
    return found


def _is_optimizer(graph: ObjectGraph, node: Any) -> bool:
    names = {edge.local_name for edge in node.children}
    variables = {edge.local_name for edge in node.children if is_variable_node(graph.nodes[edge.node_id])}
    keras3 = "_iterations" in variables and "_variables" in names
    keras2 = "iter" in variables and "learning_rate" in names
    return bool(node.slot_variables) or keras3 or keras2


def _slots(graph: ObjectGraph, optimizers: set[int]) -> Iterator[int]:
    yield from (slot.slot_variable_node_id for node in graph.nodes for slot in node.slot_variables)
    elsewhere = _reached(graph, {0} - optimizers, around=optimizers)
    for number in optimizers:
        edges = graph.nodes[number].children
        # What an optimizer has under a name of its own, such as its step counter, is no slot of a variable.
        own = {edge.node_id for edge in edges} | optimizers
        lists = {edge.node_id for edge in edges if edge.local_name != TRAINABLE and graph.nodes[edge.node_id].children}
        trained = _reached(graph, {edge.node_id for edge in edges if edge.local_name == TRAINABLE}, around=own)
        yield from _reached(graph, lists - optimizers, around=optimizers) - own - trained - elsewhere
    for node in graph.nodes:
        tables = [graph.nodes[edge.node_id] for edge in node.children if edge.local_name == "_variables"]
        for table in (graph.nodes[edge.node_id] for each in tables for edge in each.children):
            if any(edge.local_name == "parameters" for edge in table.children):
                yield from (edge.node_id for edge in table.children if edge.local_name != "parameters")


def _reached(graph: ObjectGraph, start: Iterable[int], *, around: set[int]) -> set[int]:
    """The objects that a path leads to from one of `start`, which are among them, past none of `around`."""
    return closure(
        start, lambda number: {edge.node_id for edge in graph.nodes[number].children if edge.node_id not in around}
    )


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
        if any(self._graph.nodes[each.node].attributes for each in own):
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
            return printable("; ".join(_described(value, self._graph.entries) for value in node.attributes))
        values = [
            self._graph.nodes[edge.node_id].attributes for edge in node.children if not edge.local_name.isdecimal()
        ]
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
        found = closure((owner for owner in self._owners if self._graph.nodes[owner].attributes), before.__getitem__)
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
    for edge in node.children:
        if number or edge.local_name != COUNTER or graph.nodes[edge.node_id].attributes:
            yield _Step(edge.local_name, edge.node_id)
    yield from (
        _Step(slot.slot_name, slot.slot_variable_node_id, slot.original_variable_node_id)
        for slot in node.slot_variables
    )


def _described(value: Any, entries: Mapping[str, Entry]) -> str:
    """A tensor of an object: name, shape and type."""
    name = value.full_name if value.name == "VARIABLE_VALUE" else f"{value.full_name} {value.name}"
    entry = entries.get(value.checkpoint_key)
    kind = [] if entry is None else [f"[{', '.join(map(str, entry.shape))}]", tensor.type_name(entry.kind)]
    return " ".join(filter(None, [name.strip(), *kind]))
