"""Taking the account of a restore: before it is done, or from what TensorFlow has bound to a program's objects."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from embexp.checkpoints import matching, naming, objects
from embexp.checkpoints.account import Account, Dropped, Reordered, Value
from embexp.checkpoints.matching import Matching, Stored
from embexp.tensor_bundle.increments import entries_as_whole
from embexp.tensor_bundle.rekeying import KEY_END, OBJECT_GRAPH

_NUMBER = re.compile(r"(?<![^/])[0-9]+(?![^/])")
"""A component of an object path that is the place in a list."""
_COUNTER = "save_counter"
SAVE_COUNTER = _COUNTER + KEY_END
"""Key of TensorFlow's own count of saves, which `tf.train.Checkpoint.save` writes and `write` does not."""


class Taking:
    """Takes the account of one restore, as often as it is asked."""

    def __init__(
        self,
        source: str,
        checkpoint: Any,
        found: Matching,
        coordinator: Any,
        only: Collection[str] | None,
        names: Mapping[str, str],
    ) -> None:
        """Remembers what was found before the restore.

        Args:
            checkpoint: the `tf.train.Checkpoint` that was restored.
            found: what was to be restored into what.
            coordinator: TensorFlow's record of what it has restored into what.
            names: of variables, by object path; those that are not in it have their own.
        """
        self._source, self._checkpoint, self._found = source, checkpoint, found
        self._coordinator, self._only, self._names = coordinator, only, names

    def take(self) -> Account:
        """The account as of now."""
        graph = objects.graph_of(self._checkpoint)
        graph.values[:] = [replace(each, name=self._names.get(each.path, each.name)) for each in graph.values]
        values = {id(each.object): each for each in graph.values}
        names = ("restored", "extra", "waiting", "left_out", "dropped")
        lists: dict[str, list[Any]] = {name: [] for name in names}
        done, dropped = self._filled(), self._dropped()
        variables = []
        for stored in self._found.stored:
            if stored.key in self._found.mismatched:
                continue
            if stored.key in dropped:
                lists["dropped"].append(Dropped(stored.value, dropped[stored.key].value))
                continue
            bound = self._bound(stored)
            if stored.key in self._found.left_out:
                lists["left_out"].append(stored.value)
            elif bound is not None:
                each = values.get(id(bound))
                lists["restored"].append(_with_name(stored.value, each))
                if each is not None and each.is_variable:
                    variables.append((stored, each))
            elif stored.key == SAVE_COUNTER:
                continue
            else:
                lists["waiting" if self._waits(stored, graph) else "extra"].append(stored.value)
        missing = [each for each in graph.values if id(each.object) not in done and each.path != _COUNTER]
        wanted = [matching.wanted(each, by_name=self._found.by_name) for each in missing]
        selected = matching.Selection(graph.proto, map(matching.wanted, graph.values), self._names, self._only)
        picked = [selected(value, each.node) for value, each in zip(wanted, missing, strict=True)]
        chosen = [value for value, is_chosen in zip(wanted, picked, strict=True) if is_chosen]
        left_out = [value for value, is_chosen in zip(wanted, picked, strict=True) if not is_chosen]
        return Account(
            self._source,
            missing=tuple(chosen),
            mismatched=tuple(self._found.mismatched.values()),
            restored=tuple(lists["restored"]),
            extra=tuple(lists["extra"]),
            waiting=tuple(lists["waiting"]),
            dropped=tuple(lists["dropped"]),
            reordered=tuple(_reordered(variables)),
            left_out=(*lists["left_out"], *(each for each in left_out if each not in lists["left_out"])),
        )

    def initialize(self, session: Any) -> None:
        """Runs the initializers of all variables of a graph that were not restored."""
        done = self._filled(only_restored=True)
        others = [each.object for each in objects.graph_of(self._checkpoint).values if id(each.object) not in done]
        session.run([each.initializer for each in others if hasattr(each, "initializer")])

    def _filled(self, *, only_restored: bool = False) -> set[int]:
        """Ids of objects whose value in the checkpoint is accounted for: restored, of another shape, or left out."""
        without = self._found.unused if only_restored else set()
        bound = (self._bound(each) for each in self._found.stored if each.key not in without)
        return {id(each) for each in bound if each is not None}

    def _bound(self, stored: Stored) -> Any:
        return None if stored.node is None else self._coordinator.object_by_proto_id.get(stored.node)

    def _dropped(self) -> dict[str, Stored]:
        """See `Matching.dropped`; also for objects made since, which have the value that was bound to them first."""
        found, known = dict(self._found.dropped), {id(each) for each in self._found.objects.values()}
        stored_at: dict[int, list[Stored]] = {}
        unused = self._found.unused
        for stored in self._found.stored:
            if stored.node is not None and stored.key not in unused:
                stored_at.setdefault(stored.node, []).append(stored)
        first: dict[int, Stored] = {}
        for node, each in self._coordinator.object_by_proto_id.items():
            if id(each) not in known and node in stored_at:
                instead = first.setdefault(id(each), stored_at[node][0])
                found |= {stored.key: instead for stored in stored_at[node] if instead.node != node}
        return found

    def _waits(self, stored: Stored, graph: objects.LiveGraph) -> bool:
        """Whether an object above a value exists, and has no variables yet."""
        if stored.node is None:
            return False
        nodes = self._found.proto.nodes
        for number, node in enumerate(nodes):
            if any(slot.slot_variable_node_id == stored.node for slot in node.slot_variables):
                optimizer = self._coordinator.object_by_proto_id.get(number)
                return optimizer is not None and not _live_node(graph, optimizer).slot_variables
        pending, seen = [stored.node], {stored.node}
        while pending:
            number = pending.pop(0)
            for parent, node in enumerate(nodes):
                if parent in seen or all(child.node_id != number for child in node.children):
                    continue
                seen.add(parent)
                above = self._coordinator.object_by_proto_id.get(parent)
                if above is None:
                    pending.append(parent)
                elif _unbuilt(above, graph):
                    return True
        return False


def _reordered(restored: Iterable[tuple[Stored, objects.LiveValue]]) -> list[Reordered]:
    """Variables of lists that have one another's values, to judge by the names that the checkpoint knows.

    They do if the names form a circle. A layer's name with a number may have become that of its neighbour, without
    another order: such names form no circle.
    """
    lists: dict[str, dict[str, Reordered]] = {}
    for stored, each in restored:
        place = _NUMBER.sub("*", each.path)
        moved = stored.key.removesuffix(KEY_END) != stored.value.path  # by `rename`, or from a name-based checkpoint
        if place != each.path and not moved:
            name = objects.global_name(each.object)
            lists.setdefault(place, {})[stored.value.name] = Reordered(each.path, name, stored.value.name)
    found = []
    for by_name in lists.values():
        for start, one in by_name.items():
            name, steps = one.name, 1
            while name != start and name in by_name and steps < len(by_name):
                name, steps = by_name[name].name, steps + 1
            if name == start and steps > 1:
                found.append(one)
    return found


def _unbuilt(above: Any, graph: objects.LiveGraph) -> bool:
    """Whether an object has yet to make its variables: Keras says so, others have none; a root not even objects."""
    built = getattr(above, "built", None)
    if isinstance(built, bool):
        return not built
    if above is graph.objects[0] and len(graph.objects) > 1:
        return False
    holders = {each.node for each in graph.values}
    numbers = {id(each): number for number, each in enumerate(graph.objects)}
    pending = [numbers[id(above)]] if id(above) in numbers else []
    seen = set(pending)
    while pending:
        number = pending.pop()
        if number in holders:
            return False
        fresh = {child.node_id for child in graph.proto.nodes[number].children} - seen
        seen |= fresh
        pending += fresh
    return True


def _live_node(graph: objects.LiveGraph, value: Any) -> Any:
    return next(node for each, node in zip(graph.objects, graph.proto.nodes, strict=True) if each is value)


def _with_name(value: Value, each: objects.LiveValue | None) -> Value:
    """The value of a checkpoint under the path and name that the program has for it."""
    if each is None:
        return value
    suffix = value.path.partition("/.ATTRIBUTES/")[2]
    return Value(f"{each.path}/.ATTRIBUTES/{suffix}" if suffix else each.path, each.name, value.shape, value.dtype)


def planned_account(source: str, checkpoint: Any, index: Path) -> Account:
    """Compares an object-based checkpoint with an object all of whose variables exist; reads no values.

    Args:
        checkpoint: a `tf.train.Checkpoint`.
        index: of the checkpoint, which may be incremental.

    Raises:
        CheckpointError: the object graph can't be read.
        DataError: the index is damaged.
    """
    graph, entries = objects.graph_of(checkpoint), entries_as_whole(index)
    proto = naming.read_object_graph(index)
    found = Matching(proto, matching.values_in(proto, entries, {key: key for key in entries if key != OBJECT_GRAPH}))
    found.objects = matching.match(proto, graph)
    found.mismatched = matching.mismatches(found, graph)
    found.dropped = matching.dropped(found)
    filled = {id(found.objects[each.node]) for each in found.stored if each.node in found.objects}
    return Account(
        source,
        restored=tuple(
            each.value for each in found.stored if each.node in found.objects and each.key not in found.unused
        ),
        missing=tuple(matching.wanted(each) for each in graph.values if id(each.object) not in filled),
        extra=tuple(each.value for each in found.stored if each.node not in found.objects),
        mismatched=tuple(found.mismatched.values()),
        dropped=tuple(
            Dropped(each.value, found.dropped[each.key].value) for each in found.stored if each.key in found.dropped
        ),
    )
