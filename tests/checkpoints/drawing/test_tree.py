"""What is drawn of a graph."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from hypothesis import given

from embexp.checkpoints import object_graph
from embexp.checkpoints.object_graph import Branch, ObjectGraph, printable, spanning_tree, walk
from tests import object_graphs
from tests.object_graphs import Variable, graph
from tests.thoroughness import examples

VARIABLE = Variable()


def lines(branch: Branch, depth: int = 0) -> list[str]:
    below = [line for each in branch.branches for line in lines(each, depth + 1)]
    hidden = f" +{branch.hidden}" if branch.hidden else ""
    return [f"{'  ' * depth}{branch.edge}: {branch.label}{hidden}", *below]


def steps(node: Any) -> list[tuple[str, int]]:
    """Names of edges and slots of an object, and where they lead."""
    slots = [(slot.slot_name, slot.slot_variable_node_id) for slot in node.slot_variables]
    return [(child.local_name, child.node_id) for child in node.children] + slots


def reachable(graph: ObjectGraph) -> set[int]:
    found, pending = set(), [0]
    while pending:
        number = pending.pop()
        if number not in found:
            found.add(number)
            node = graph.nodes[number]
            pending += [child for _, child in steps(node)]
    return found


@examples(60)
@given(object_graphs.graphs())
def test_every_edge_is_drawn_once_and_every_object(graph: ObjectGraph) -> None:
    tree = spanning_tree(graph, everything=True)
    drawn = Counter(
        (branch.node, below.edge, below.node)
        for branch in walk(tree)
        if not branch.is_reference
        for below in branch.branches
    )
    names = Counter(
        (number, printable(name), child) for number in reachable(graph) for name, child in steps(graph.nodes[number])
    )
    assert set(drawn) == set(names)
    assert {branch.node for branch in walk(tree) if not branch.is_reference} == reachable(graph)
    assert not any(branch.hidden for branch in walk(tree))


@examples(60)
@given(object_graphs.graphs())
def test_what_is_left_out_is_counted(graph: ObjectGraph) -> None:
    whole = spanning_tree(graph, everything=True)
    part = spanning_tree(graph, everything=False)
    count = sum(1 + branch.hidden for branch in walk(part))
    assert count == sum(1 for _ in walk(whole))
    drawn = {branch.node for branch in walk(part) if not branch.is_reference}
    # All variables are there, and all that references lead to.
    assert {number for number in reachable(graph) if graph.nodes[number].attributes} <= drawn
    assert {branch.refers_to for branch in walk(part)} <= drawn | {None}


def test_an_object_stands_below_its_owner_and_lists_of_aliases_are_left_out() -> None:
    found = graph(
        {"_variables": 1, "net": 2},
        {"0": 3, "1": 4},
        {"_layers": 5, "first": 6, "empty": 7},
        VARIABLE,
        VARIABLE,
        {"0": 6},
        {"kernel": 3, "_bias": 4},
        {},
    )
    assert lines(spanning_tree(found, everything=False)) == [
        ": checkpoint",
        "  _variables: ",
        "    0: → net/first/kernel",
        "    1: → net/first/_bias",
        "  net:  +3",
        "    first: dense",
        "      kernel: dense/kernel [2, 3] float32",
        "      _bias: dense/kernel [2, 3] float32",
    ]
    assert lines(spanning_tree(found, everything=True))[4:7] == ["  net: ", "    _layers: ", "      0: → net/first"]


def test_a_part_that_refers_to_others_stays() -> None:
    """A GAN of two models that are parts themselves."""
    found = graph({"gan": 1, "net": 2}, {"_operations": 3}, {"kernel": 4}, {"0": 2}, VARIABLE)
    assert lines(spanning_tree(found, everything=False)) == [
        ": checkpoint",
        "  gan: ",
        "    _operations: ",
        "      0: → net",
        "  net: dense",
        "    kernel: dense/kernel [2, 3] float32",
    ]


def test_a_list_of_aliases_is_drawn_where_something_else_refers_to_it() -> None:
    """In `a`, the list only repeats `v`; `b` refers to the list."""
    found = graph({"a": 1, "b": 4}, {"v": 2, "_again": 3}, VARIABLE, {"0": 2}, {"_z": 3})
    assert lines(spanning_tree(found, everything=False)) == [
        ": checkpoint",
        "  a: dense",
        "    v: dense/kernel [2, 3] float32",
        "    _again: ",
        "      0: → a/v",
        "  b: ",
        "    _z: → a/_again",
    ]


def test_a_variable_in_the_place_of_a_list_is_drawn() -> None:
    optimizer = {"_trainable_variables": 2}
    found = graph({"optimizer": 1}, optimizer, VARIABLE, VARIABLE, slots={1: [("m", 2, 3)]})
    assert lines(spanning_tree(found, everything=False))[2:] == [
        "    _trainable_variables: dense/kernel [2, 3] float32",
        "    m: dense/kernel [2, 3] float32 → optimizer/_trainable_variables",
    ]


def test_the_root_can_be_referred_to() -> None:
    found = graph({"child": 1}, {"parent": 0, "v": 2}, VARIABLE)
    assert "    parent: → checkpoint" in lines(spanning_tree(found, everything=False))


def test_slots_name_their_variable(tmp_path: Path) -> None:
    tree = spanning_tree(object_graph.read(object_graphs.tensorflow_gan(tmp_path / "gan")), everything=False)
    assert "    m: Adam/generator/layer0/kernel/m [4, 8] float32 → generator/layers/0/kernel" in lines(tree)


def test_a_keras_gan(tmp_path: Path) -> None:
    tree = spanning_tree(object_graph.read(object_graphs.keras_gan(tmp_path / "gan")), everything=False)
    parts = {branch.edge: [each.edge for each in branch.branches] for branch in tree.branches}
    expected = ["_trainable_variables", "_iterations", "_learning_rate", "_momentums", "_velocities"]
    assert parts["generator_optimizer"] == parts["discriminator_optimizer"] == expected
    trained = [each.label for each in tree.branches[-1].branches[0].branches]
    assert [parts["generator"], trained[0]] == [["_functional"], "→ generator/_functional/_operations/1/_kernel"]


def test_characters_that_cannot_be_printed() -> None:
    assert printable("ü\n\x00\u200b\ufffeκ") == "ü\\n\\x00\\u200b\\ufffeκ"
