"""The object graph as a tree: each object once, below the object that owns it, and references for all other edges."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass

from embexp.checkpoints.object_graph import TRAINABLE, ObjectGraph, Role, Value, is_variable_node, roles

_ALIASES = {"_variables", TRAINABLE, "_non_trainable_variables", "_layers", "keras_api"}
"""Edges to lists in which Keras keeps a second time what an object has under a name of its own."""


ROOT = "checkpoint"
"""Label of the root, which has no name."""


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
