"""What the objects of a checkpoint are: optimizers and slot variables, recognised by the names of edges.

The object graph has no classes. These libraries write it as follows:

- Keras 3: an optimizer has `_iterations` and `_variables`; slot variables are in lists such as `_momentums`, and the
  model's variables in `_trainable_variables`.
- Keras 2 and TensorFlow 1: slot variables are recorded as such; an optimizer of Keras 2 has `iter` and its settings.
- `TPUEmbedding`, and embexp's tables: `_variables/<table>` has `parameters`, and a slot variable under each other name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import Enum, auto

from embexp.checkpoints.object_graph import Node, ObjectGraph

TRAINABLE = "_trainable_variables"
"""The edge from a Keras optimizer to the list of the variables that it trains."""


class Role(Enum):
    """What an object is."""

    OBJECT = auto()
    VARIABLE = auto()
    OPTIMIZER = auto()
    SLOT = auto()


def roles(graph: ObjectGraph) -> tuple[Role, ...]:
    """The role of each object, by number."""
    found = [Role.VARIABLE if is_variable(node) else Role.OBJECT for node in graph.nodes]
    optimizers = _optimizers(graph)
    for number in optimizers:
        found[number] = Role.OPTIMIZER
    for number in _slots(graph, optimizers):
        if found[number] is Role.VARIABLE:
            found[number] = Role.SLOT
    return tuple(found)


def is_variable(node: Node) -> bool:
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
    variables = {edge.name for edge in node.edges if is_variable(graph.nodes[edge.node])}
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
