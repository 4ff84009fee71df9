"""Which value of a checkpoint belongs to which object of a program, and which are to be restored."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import keras
import tensorflow as tf

from embexp.checkpoints import naming, objects
from embexp.checkpoints.account import Mismatch, Value
from embexp.tensor_bundle.index import Entry


@dataclass(frozen=True)
class Stored:
    """A value of a checkpoint.

    Attributes:
        key: of its tensor, or what those of its tensors begin with.
        node: of the object graph; None: no object has it.
    """

    key: str
    node: int | None
    value: Value


@dataclass
class Matching:
    """What is restored into what, before anything is.

    Attributes:
        objects: the objects of the program by node, as far as they exist.
        left_out: keys of values that are not restored, as told.
        mismatched: values of another shape or type than their variables, by key.
        by_name: whether the values are matched by name, so that parts of partitioned variables belong to whole tensors.
        dropped: values whose variables are restored from another value, by key; with that value.
    """

    proto: Any
    stored: list[Stored]
    objects: dict[int, Any] = field(default_factory=dict)
    left_out: set[str] = field(default_factory=set)
    mismatched: dict[str, Mismatch] = field(default_factory=dict)
    by_name: bool = False
    dropped: dict[str, Stored] = field(default_factory=dict)

    @property
    def unused(self) -> set[str]:
        """Keys of all values that are not restored."""
        return {*self.left_out, *self.mismatched, *self.dropped}

    def nodes_by_object(self) -> list[list[int]]:
        """The nodes of each object, the first matched one first; several where the program ties variables."""
        nodes: dict[int, list[int]] = {}
        for node, each in self.objects.items():
            nodes.setdefault(id(each), []).append(node)
        return list(nodes.values())


def values_in(proto: Any, entries: Mapping[str, Entry], tensor_of: Mapping[str, str]) -> list[Stored]:
    """The values of an object graph.

    Args:
        tensor_of: key of the tensor for each key in the graph.
    """
    found = []
    for number, (path, node) in enumerate(zip(naming.paths_of(proto), proto.nodes, strict=True)):
        for attribute in node.attributes:
            key = attribute.checkpoint_key
            whole = path if attribute.name == objects.VARIABLE else f"{path}/.ATTRIBUTES/{attribute.name}"
            if key in tensor_of:
                value = described(whole, attribute.full_name, entries[tensor_of[key]])
            else:  # of a hash table or an iterator, say, whose tensors have keys that begin with this one
                value = Value(whole, attribute.full_name)
            found.append(Stored(key, number, value))
        if node.registered_saver.name and not node.registered_saver.name.endswith(objects.CALLBACK):
            found.append(Stored(registered_key(node), number, Value(path, "")))
    return found


def registered_key(node: Any) -> str:
    """What stands for the key of an object that has a saver of its own."""
    return f"{node.registered_saver.object_name}/{node.registered_saver.name}"


def described(path: str, name: str, entry: Entry) -> Value:
    """A tensor as accounts list it."""
    return Value(path, name, entry.shape, tf.dtypes.as_dtype(entry.kind).name)


def wanted(each: objects.LiveValue, *, by_name: bool = False) -> Value:
    """A value of a program as accounts list it; matched by name, a part of a variable as the whole."""
    if not each.is_variable:
        return Value(each.path, each.name)
    part = objects.part_of(each.object) if by_name else None
    shape = tf.TensorShape(each.object.shape if part is None else part.whole)
    return Value(each.path, each.name, tuple(shape) if shape.is_fully_defined() else None, dtype_of(each.object))


def dtype_of(variable: Any) -> str:
    """The name of a variable's type."""
    if isinstance(variable, keras.Variable):
        return str(variable.dtype)
    return "float32" if hasattr(variable, "covered") else str(variable.dtype.base_dtype.name)


def match(proto: Any, graph: objects.LiveGraph) -> dict[int, Any]:
    """The objects of a program by their nodes in a checkpoint: the same edges lead to both.

    That is how TensorFlow matches them: breadth-first, the first path to a node decides. A slot variable belongs to
    the same optimizer and the same variable.
    """
    number_of = {id(each): number for number, each in enumerate(graph.objects)}
    found = {0: graph.objects[0]}
    pending = deque([0])
    while pending:
        number = pending.popleft()
        known = graph.proto.nodes[number_of[id(found[number])]]
        children = {child.local_name: graph.objects[child.node_id] for child in known.children}
        for child in proto.nodes[number].children:
            target = children.get(child.local_name)
            if target is not None and child.node_id not in found:
                found[child.node_id] = target
                pending.append(child.node_id)
    for number, node in enumerate(proto.nodes):
        if number not in found or not node.slot_variables:
            continue
        slots = {
            (slot.original_variable_node_id, slot.slot_name): graph.objects[slot.slot_variable_node_id]
            for slot in graph.proto.nodes[number_of[id(found[number])]].slot_variables
        }
        for slot in node.slot_variables:
            original = number_of.get(id(found.get(slot.original_variable_node_id)), -1)
            if (original, slot.slot_name) in slots:
                found[slot.slot_variable_node_id] = slots[original, slot.slot_name]
    return found


def mismatches(matching: Matching, graph: objects.LiveGraph) -> dict[str, Mismatch]:
    """Values of another shape or type than the variables that they belong to, by key.

    A slot variable that does not exist yet is one of them if its variable is: TensorFlow would create it by the value.
    """
    values = {id(each.object): each for each in graph.values if each.is_variable}
    found: dict[str, Mismatch] = {}
    of_node: dict[int, Mismatch] = {}
    for stored in matching.stored:
        each = values.get(id(matching.objects.get(stored.node))) if stored.node is not None else None
        if each is None or stored.node is None or stored.value.shape is None:
            continue
        value = wanted(each, by_name=matching.by_name)
        fits = tf.TensorShape(each.object.shape if value.shape is None else value.shape)
        if not fits.is_compatible_with(stored.value.shape) or value.dtype != stored.value.dtype:
            found[stored.key] = of_node[stored.node] = Mismatch(value, stored.value)
    if not found:
        return found
    original = {
        slot.slot_variable_node_id: of_node[slot.original_variable_node_id]
        for node in matching.proto.nodes
        for slot in node.slot_variables
        if slot.original_variable_node_id in of_node and slot.slot_variable_node_id not in matching.objects
    }
    for stored in matching.stored:
        if (variable := original.get(-1 if stored.node is None else stored.node)) is not None:
            of_variable = stored.value.shape == variable.stored.shape
            shape = variable.wanted.shape if of_variable else None
            found[stored.key] = Mismatch(Value(stored.value.path, "", shape, stored.value.dtype), stored.value)
    return found


def dropped(matching: Matching) -> dict[str, Stored]:
    """Values for variables that are restored from another value, by key, with that: the first that is to be restored.

    So TensorFlow decides, too, where two objects of a checkpoint are one object of the program.
    """
    of_node: dict[int, list[Stored]] = {}
    unused = matching.unused
    for stored in matching.stored:
        if stored.node is not None and stored.key not in unused:
            of_node.setdefault(stored.node, []).append(stored)
    found: dict[str, Stored] = {}
    for nodes in matching.nodes_by_object():
        first, *others = [of_node[node] for node in nodes if node in of_node] or [[]]
        found |= {stored.key: first[0] for other in others for stored in other}
    return found


def nodes_of(proto: Any, pattern: str) -> set[int]:
    """The nodes of the object with a path, and of all that it reaches; none if no object has it.

    An optimizer reaches its slot variables, and the variables that they belong to do not.
    """
    found = {number for number, path in enumerate(naming.paths_of(proto)) if path == pattern}
    pending = list(found)
    while pending:
        node = proto.nodes[pending.pop()]
        reached = {child.node_id for child in node.children}
        reached |= {slot.slot_variable_node_id for slot in node.slot_variables}
        fresh = reached - found
        found |= fresh
        pending += fresh
    return found


class Selection:
    """Which values of an object graph are to be restored."""

    def __init__(
        self, proto: Any, values: Iterable[Value], names: Mapping[str, str], patterns: Collection[str] | None
    ) -> None:
        """Takes the choice.

        Args:
            proto: the object graph, of the checkpoint or of the program.
            names: of the program's variables, by object path.
            patterns: object paths or names of values, with `*` for anything; or of objects if no value has that path or
                name, or beginnings of paths or names before a `/` if no object has it either. Slot variables belong to
                their optimizer, whatever their paths and names begin with. None: everything.
        """
        self._names, self._patterns = names, patterns
        exact = {each for value in values for each in self._known(value)}
        self._exact = exact.intersection(patterns or ())
        self._nodes = {each: nodes_of(proto, each) for each in patterns or () if each not in exact}
        self._slots = naming.slots_of(proto)

    def __call__(self, value: Value, node: int | None) -> bool:
        """Whether a value is to be restored; `node` has it in the object graph."""
        return self._patterns is None or any(self.named(value, node, pattern) for pattern in self._patterns)

    def named(self, value: Value, node: int | None, pattern: str) -> bool:
        """Whether a pattern names the value, or an object that has it."""
        candidates = self._known(value)
        if pattern in self._exact:
            return pattern in candidates
        if node in self._nodes[pattern] or any(fnmatchcase(each, pattern) for each in candidates):
            return True
        begins = any(each.startswith(f"{pattern}/") for each in candidates)
        return begins and not self._nodes[pattern] and node not in self._slots

    def _known(self, value: Value) -> list[str]:
        """The paths and names of a value: in the checkpoint, and in the program."""
        return [each for each in (value.path, value.name, self._names.get(value.path, "")) if each]
