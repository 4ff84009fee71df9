"""Which value of a checkpoint belongs to which object of a program, which are restored, and the account of it."""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal

import keras
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.checkpoint import util

from embexp.checkpoints import naming, object_graph, objects
from embexp.checkpoints.account import Account, Dropped, Grown, Mismatch, Reordered, Value
from embexp.checkpoints.growing import Growth, RowMap
from embexp.errors import CheckpointError
from embexp.system.tensor_bundle import increments, tensor, writer
from embexp.system.tensor_bundle.increments import Values
from embexp.system.tensor_bundle.index import Entry, Piece, prefix_of
from embexp.system.tensor_bundle.stacked import StackedMatrix
from embexp.system.tensor_bundle.writer import KEY_END, OBJECT_GRAPH

_NUMBER = re.compile(r"(?<![^/])[0-9]+(?![^/])")
"""A component of an object path that is the place in a list."""
_DIGITS = re.compile(r"[0-9]+")
SAVE_COUNTER = object_graph.COUNTER + KEY_END
"""Key of TensorFlow's own count of saves, which `tf.train.Checkpoint.save` writes and `write` does not."""


@dataclass(frozen=True)
class Stored:
    """A value of a checkpoint.

    Attributes:
        key: of its tensor in the object graph, or what those of its tensors begin with.
        node: of the object graph; None: no object has it.
    """

    key: str
    node: int | None
    value: Value


@dataclass(frozen=True)
class Renamed:
    """What the values of a program are called in a checkpoint.

    Attributes:
        targets: the new object path by the old path or name.
        patterns: those that name something in the checkpoint.
    """

    targets: Mapping[str, str]
    patterns: tuple[str, ...]

    def former(self, value: Value) -> Value | None:
        """A value of the program as the checkpoint calls it, without names if these are another's; None: the same."""
        for old, new in self.targets.items():
            for known in (value.path, value.name):
                if f"{known}/".startswith(f"{new}/"):
                    return Value(old + known.removeprefix(new), "")
        elsewhere = any(f"{known}/".startswith(f"{old}/") for old in self.targets for known in (value.path, value.name))
        return Value("", "") if elsewhere else None


@dataclass
class Matching:
    """What is restored into what, before anything is.

    Attributes:
        proto: the object graph of the checkpoint; of a name-based one that of the program.
        tensors: by their keys in the object graph.
        by_name: whether the values are matched by name, so that parts of partitioned variables belong to whole tensors.
        objects: the objects of the program by node, as far as they exist.
        left_out: keys of values that are not restored, as the caller asked.
        mismatched: values of another shape or type than their variables, by key.
        dropped: values whose variables are restored from another value, by key; with that value.
        renamed: what `only` names in the checkpoint, where the caller gave both.
        growth: which values may go into variables with other rows.
        grown: the rows of such variables, by the key of their value.
        joined: all rows, by the key of a value whose parts are tensors of their own in a name-based checkpoint.
    """

    index: Path
    proto: Any
    stored: list[Stored]
    tensors: Mapping[str, Values]
    by_name: bool
    objects: dict[int, Any]
    left_out: set[str] = field(default_factory=set)
    mismatched: dict[str, Mismatch] = field(default_factory=dict)
    dropped: dict[str, Stored] = field(default_factory=dict)
    renamed: Renamed | None = None
    growth: Growth | None = None
    grown: dict[str, RowMap] = field(default_factory=dict)
    joined: dict[str, RowMap] = field(default_factory=dict)

    @property
    def unused(self) -> set[str]:
        """Keys of all values that are not restored."""
        return {*self.left_out, *self.mismatched, *self.dropped}

    def restored(self) -> list[tuple[Stored, Any]]:
        """The values that objects get, which exist."""
        unused = self.unused
        return [
            (each, self.objects[each.node])
            for each in self.stored
            if each.node is not None and each.node in self.objects and each.key not in unused
        ]

    def settle(self, stored: Stored, wanted: Value) -> Mismatch | RowMap | None:
        """Notes if a value does not simply fit a variable: it is of another shape or type, or has other rows."""
        assert stored.value.shape is not None
        if self.growth is not None and (rows := self.growth.rows_of(stored.node, stored.value, wanted)) is not None:
            self.grown[stored.key] = rows
            return rows
        fits = tf.TensorShape(wanted.shape).is_compatible_with(stored.value.shape)
        if fits and wanted.dtype == stored.value.dtype:
            return None
        self.mismatched[stored.key] = found = Mismatch(wanted, stored.value)
        return found

    def settle_late(self, node: int, made: Any) -> Mismatch | RowMap | None:
        """Does so for an object that was made after the restore; None: it is no variable, or the value fits."""
        stored = next((each for each in self.stored if each.node == node and each.value.shape is not None), None)
        if stored is None or stored.key in self.unused or not isinstance(made, tf.Variable | keras.Variable):
            return None
        shape = tf.TensorShape(made.shape)
        # The type of a Keras variable is another one inside a scope that casts.
        dtype = str(made._dtype if isinstance(made, keras.Variable) else made.dtype.base_dtype.name)
        known = tuple(shape) if shape.is_fully_defined() else None
        found = self.settle(stored, Value(stored.value.path, objects.global_name(made), known, dtype))
        if found is not None:
            self.settle_slots({node: found})
        return found

    def settle_slots(self, of_node: Mapping[int, Mismatch | RowMap]) -> None:
        """Notes the slots that do not exist yet of variables, by node: TensorFlow would create them by their values."""
        original = {
            slot.slot_variable_node_id: of_node[slot.original_variable_node_id]
            for node in (self.proto.nodes if of_node else ())
            for slot in node.slot_variables
            if slot.original_variable_node_id in of_node and slot.slot_variable_node_id not in self.objects
        }
        for stored in self.stored:
            variable = None if stored.node is None else original.get(stored.node)
            if isinstance(variable, RowMap) and (stored.value.shape or (0,))[0] == variable.before:
                self.grown[stored.key] = variable
            elif isinstance(variable, Mismatch):
                shape = variable.wanted.shape if stored.value.shape == variable.stored.shape else None
                wanted = Value(stored.value.path, "", shape, stored.value.dtype)
                self.mismatched[stored.key] = Mismatch(wanted, stored.value)

    def nodes_by_object(self) -> list[list[int]]:
        """The nodes of each object, the first matched one first; several where the program ties variables."""
        nodes: dict[int, list[int]] = {}
        for node, each in self.objects.items():
            nodes.setdefault(id(each), []).append(node)
        return list(nodes.values())

    def write_view(self, folder: str, without: Collection[str]) -> str:
        """Writes an object-based checkpoint over the same data files, with all but some keys; returns its prefix.

        Tables in stacks are copied.
        """
        proto = type(self.proto)()
        proto.CopyFrom(self.proto)
        for node in proto.nodes:
            kept = [attribute for attribute in node.attributes if attribute.checkpoint_key not in without]
            del node.attributes[:]
            node.attributes.extend(kept)
            if _registered_key(node) in without:
                node.ClearField("registered_saver")
        for first, *others in self.nodes_by_object():
            # TensorFlow restores an object from the first of its nodes only, whether that has a value or not.
            if not proto.nodes[first].attributes:
                for other in others:
                    proto.nodes[first].attributes.extend(proto.nodes[other].attributes)
        util.add_checkpoint_values_check(proto)
        seen = {key: each for key, each in self.tensors.items() if key not in without}
        copied = {key: each for key, each in seen.items() if isinstance(each, StackedMatrix)}
        keys = {key: each.key for key, each in seen.items() if key not in copied}
        strings = {OBJECT_GRAPH: proto.SerializeToString()}
        prefix = Path(folder) / "checkpoint"
        writer.rekey(self.index, prefix, keys, strings, writer.symbolic, copied)
        return str(prefix)


def match(
    index: Path,
    graph: objects.LiveGraph,
    names: Mapping[str, str],
    rename: Mapping[str, Any],
    only: Collection[str] | None = None,
    rows: Literal["grow"] | None = None,
    by_token: Mapping[str, RowMap] | None = None,
) -> Matching:
    """Matches a checkpoint with a program.

    Args:
        names: global names of the program's variables, by object path.
        rename: see `restoring.restore`.
        only: see `restoring.restore`.
        rows: see `restoring.restore`.
        by_token: rows that are matched by token, by path or name of their variables.

    Raises:
        CheckpointError: `only`, `rename` or `by_token` name what the checkpoint does not have, or it is damaged.
        DataError: it is damaged.
    """
    stored = increments.tensors(increments.chain(prefix_of(index)))
    targets = naming.rename_targets(rename, graph, names)
    by_name, extra = OBJECT_GRAPH not in stored, []
    in_checkpoint: list[tuple[str, Value, int | None]]  # by the names that it has, whatever is renamed
    joined: dict[str, Values] = {}
    if by_name:
        joined = _joined(stored, graph, names, rename)
        in_joined = {part for name in joined for part in _parts_of(name, stored)}
        stored = {**{name: each for name, each in stored.items() if name not in in_joined}, **joined}
        source_of, faults = naming.rename_sources(targets, names, stored)
        proto, source = naming.named_graph(graph, source_of)
        tensors = {key: stored[name] for key, name in source.items()}
        unused = sorted(stored.keys() - source.values())
        extra = [Stored(name, None, _described("", name, stored[name])) for name in unused]
        before, in_checkpoint = proto, []
    else:
        proto = naming.read_object_graph(index)
        before = type(proto)()
        before.CopyFrom(proto)
        in_checkpoint = [(each.key, each.value, each.node) for each in _values_in(before, stored)]
        faults = naming.move_values(proto, targets)
        tensors = {key: each for key, each in stored.items() if key != OBJECT_GRAPH}
    if faults:
        raise CheckpointError(f"{index}: can't rename: {'; '.join(faults)}")
    values = [*_values_in(proto, tensors), *extra]
    if by_name:
        for each in values:
            name = source.get(each.key, each.key)
            moved = any(f"{name}/".startswith(f"{old}/") for old in targets)
            in_checkpoint.append((each.key, *((Value("", name), None) if moved else (each.value, each.node))))
    found = Matching(index, proto, values, tensors, by_name, _objects_by_node(proto, graph))
    found.joined = {
        key: RowMap.by_number(each.entry.shape[0], each.entry.shape[0])
        for key, each in tensors.items()
        if each in joined.values()
    }
    if only is not None:
        first = Selection(before, [value for _, value, _ in in_checkpoint], {}, only)
        chosen = {
            pattern: {key for key, value, node in in_checkpoint if first.named(value, node, pattern)}
            for pattern in only
        }
        others = [pattern for pattern in only if not chosen[pattern]]
        then = Selection(proto, [value.value for value in values], names, others)
        if unknown := then.unused(values):
            known = ", ".join(str(value.value) for value in values[:20])
            raise CheckpointError(
                f"{index} has nothing named {', '.join(unknown)}, so only can't restore it; it has {known}"
            )
        of_checkpoint = set().union(*chosen.values())
        found.left_out = {
            value.key for value in values if value.key not in of_checkpoint and not then(value.value, value.node)
        }
        found.renamed = Renamed(targets, tuple(pattern for pattern in only if chosen[pattern]))
    if rows is not None or by_token:
        numbered = [(each.node, each.value) for each in values]
        found.growth = Growth(proto, numbered, by_number=rows is not None, by_token=by_token or {})
    _settle(found, graph)
    found.dropped = _dropped(found)
    return found


_PART = re.compile(r"(.+)/part_([0-9]+)")
"""The name of a part of a partitioned variable of TensorFlow 1, of which a `Saver` gets a mapping by name."""


def _parts_of(name: str, stored: Collection[str]) -> list[str]:
    """The tensors that are parts of a variable, in order; none if one is missing."""
    numbers = {int(match[2]): each for each in stored if (match := _PART.fullmatch(each)) and match[1] == name}
    return [numbers[number] for number in sorted(numbers)] if sorted(numbers) == [*range(len(numbers))] else []


def _joined(
    stored: Mapping[str, Values], graph: objects.LiveGraph, names: Mapping[str, str], rename: Mapping[str, Any]
) -> dict[str, Values]:
    """Variables whose parts are tensors of their own, by name, as a `Saver` would have saved them: in slices.

    A program that has variables of the parts' names takes these.
    """
    wholes = {match[1] for each in stored if (match := _PART.fullmatch(each))}
    shapes: dict[str, tuple[int, ...] | None] = {}
    for each in graph.values:
        if each.is_variable and each.path in names:
            part = objects.part_of(each.object)
            shape = tf.TensorShape(each.object.shape if part is None else part.whole)
            shapes[names[each.path]] = tuple(shape) if shape.is_fully_defined() else None
    found = {}
    for name in (wholes & {*shapes, *rename}) - stored.keys():
        parts = _parts_of(name, stored)
        if parts and not shapes.keys() & {*parts}:
            entries = [stored[part].entry for part in parts]
            for axis in range(len(entries[0].shape)):
                whole = list(entries[0].shape)
                whole[axis] = sum(entry.shape[axis] for entry in entries if len(entry.shape) > axis)
                like = {(entry.kind, *entry.shape[:axis], *entry.shape[axis + 1 :]) for entry in entries}
                if len(like) == 1 and tuple(whole) == (shapes.get(name) or tuple(whole)):
                    found[name] = _in_slices(name, [stored[part] for part in parts], tuple(whole), axis)
                    break
    return found


def _in_slices(name: str, parts: Sequence[Values], whole: tuple[int, ...], axis: int) -> Values:
    pieces, at = list[Piece](), 0
    for part in parts:
        for piece in part.entry.pieces:
            start = list(piece.start)
            start[axis] += at
            pieces.append(replace(piece, start=tuple(start)))
        at += part.entry.shape[axis]
    return tensor.Tensor(f"{parts[0].key} and others", name, Entry(whole, parts[0].entry.kind, tuple(pieces)))


def _values_in(proto: Any, tensors: Mapping[str, Values]) -> list[Stored]:
    """The values of an object graph."""
    found = []
    for number, (path, node) in enumerate(zip(object_graph.paths_of(proto), proto.nodes, strict=True)):
        for attribute in node.attributes:
            key = attribute.checkpoint_key
            whole = path if attribute.name == objects.VARIABLE else f"{path}/.ATTRIBUTES/{attribute.name}"
            if key in tensors:
                value = _described(whole, attribute.full_name, tensors[key])
            else:  # of a hash table or an iterator, say, whose tensors have keys that begin with this one
                value = Value(whole, attribute.full_name)
            found.append(Stored(key, number, value))
        if node.registered_saver.name and not node.registered_saver.name.endswith(objects.CALLBACK):
            found.append(Stored(_registered_key(node), number, Value(path, "")))
    return found


def _registered_key(node: Any) -> str:
    """What stands for the key of an object that has a saver of its own."""
    return f"{node.registered_saver.object_name}/{node.registered_saver.name}"


def _described(path: str, name: str, values: Values) -> Value:
    return Value(path, name, values.entry.shape, tensor.type_name(values.entry.kind))


def _wanted(each: objects.LiveValue, *, by_name: bool = False) -> Value:
    """A value of a program as accounts list it; matched by name, a part of a variable as the whole."""
    if not each.is_variable:
        return Value(each.path, each.name)
    variable, part, name = each.object, objects.part_of(each.object), each.name
    shape = tf.TensorShape(part.whole if part is not None and by_name else variable.shape)
    if part is not None and not by_name and name == part.name:
        name = str(variable.name).split(":")[0]
    dtype = str(variable.dtype if isinstance(variable, keras.Variable) else variable.dtype.base_dtype.name)
    return Value(each.path, name, tuple(shape) if shape.is_fully_defined() else None, dtype)


def _objects_by_node(proto: Any, graph: objects.LiveGraph) -> dict[int, Any]:
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


def _settle(matching: Matching, graph: objects.LiveGraph) -> None:
    """Notes the values of another shape or type than the variables that they belong to, or with other rows.

    A slot variable that does not exist yet is one of them if its variable is.
    """
    values = {id(each.object): each for each in graph.values if each.is_variable}
    of_node: dict[int, Mismatch | RowMap] = {}
    for stored in matching.stored:
        each = values.get(id(matching.objects.get(stored.node))) if stored.node is not None else None
        if each is None or stored.node is None or stored.value.shape is None or stored.key in matching.left_out:
            continue
        shape = tf.TensorShape(each.object.shape)
        alone = shape.is_fully_defined() and tuple(shape) == stored.value.shape
        if (found := matching.settle(stored, _wanted(each, by_name=matching.by_name and not alone))) is not None:
            of_node[stored.node] = found
    matching.settle_slots(of_node)


def _dropped(matching: Matching) -> dict[str, Stored]:
    """Values for variables that are restored from another value, by key, with that: the first that is to be restored.

    So TensorFlow decides, too, where two objects of a checkpoint are one object of the program.
    """
    of_node = _by_node(stored for stored, _ in matching.restored())
    found: dict[str, Stored] = {}
    for nodes in matching.nodes_by_object():
        first, *others = [of_node[node] for node in nodes if node in of_node] or [[]]
        found |= {stored.key: first[0] for other in others for stored in other}
    return found


def _by_node(stored: Iterable[Stored]) -> dict[int, list[Stored]]:
    found: dict[int, list[Stored]] = {}
    for each in stored:
        if each.node is not None:
            found.setdefault(each.node, []).append(each)
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
        self._nodes = {
            pattern: object_graph.nodes_of(proto, pattern) for pattern in patterns or () if pattern not in exact
        }
        self._slots = object_graph.slots_of(proto)

    def __call__(self, value: Value, node: int | None) -> bool:
        """Whether a value is to be restored; `node` has it in the object graph."""
        return self._patterns is None or any(self.named(value, node, pattern) for pattern in self._patterns)

    def unused(self, stored: Collection[Stored]) -> list[str]:
        """The patterns that name nothing."""
        patterns = self._patterns or ()
        return [pattern for pattern in patterns if not any(self.named(one.value, one.node, pattern) for one in stored)]

    def named(self, value: Value, node: int | None, pattern: str) -> bool:
        """Whether a pattern names the value, or an object that has it."""
        candidates = self._known(value)
        if pattern in self._exact:
            return pattern in candidates
        if node in self._nodes[pattern] or any(fnmatchcase(candidate, pattern) for candidate in candidates):
            return True
        begins = any(candidate.startswith(f"{pattern}/") for candidate in candidates)
        return begins and not self._nodes[pattern] and node not in self._slots

    def _known(self, value: Value) -> list[str]:
        """The paths and names of a value: in the checkpoint, and in the program."""
        return [each for each in (value.path, value.name, self._names.get(value.path, "")) if each]


class Taking:
    """Takes the account of one restore, as often as it is asked."""

    def __init__(
        self,
        source: str,
        checkpoint: Any,
        found: Matching,
        bound: Mapping[int, Any],
        only: Collection[str] | None,
        names: Mapping[str, str],
        *,
        unreached: bool = False,
    ) -> None:
        """Remembers what was found before the restore.

        Args:
            checkpoint: the `tf.train.Checkpoint` that was restored.
            bound: the objects that are restored, by node, as of the time when the account is taken.
            names: of variables, by object path; those that are not in it have their own.
            unreached: whether weights of Keras layers that no edge leads to are missing.
        """
        self._unreached = unreached and only is None
        self._source, self._checkpoint, self._found = source, checkpoint, found
        self._objects, self._only, self._names = bound, only, names

    def bound(self) -> dict[str, Any]:
        """The objects that are restored, by the key of their value."""
        without = {*self._found.unused, *self._dropped()}
        bound = {each.key: self._bound(each) for each in self._found.stored if each.key not in without}
        return {key: each for key, each in bound.items() if each is not None}

    def take(self, assigned: Collection[str] | None = None, *, initial: bool = False) -> Account:
        """The account as of now.

        Args:
            assigned: keys of the values that the restore operations of a graph have assigned; None: all of them.
            initial: whether variables that have yet to be restored have other values already.
        """
        graph = objects.graph_of(self._checkpoint)
        graph.values[:] = [replace(each, name=self._name(each)) for each in graph.values]
        values = {id(each.object): each for each in graph.values}
        lists: dict[str, list[Any]] = defaultdict(list)
        found, done, dropped = self._found, self._filled(), self._dropped()
        variables = []
        for stored in found.stored:
            bound = self._bound(stored)
            if stored.key in found.mismatched:
                lists["mismatched"].append(found.mismatched[stored.key])
            elif stored.key in dropped:
                lists["dropped"].append(Dropped(stored.value, dropped[stored.key].value))
            elif stored.key in found.left_out:
                lists["left_out"].append(stored.value)
            elif bound is not None and (id(bound) in values or stored.value.shape is None):
                live = values.get(id(bound))
                lists["restored"].append(_with_name(stored.value, live))
                if assigned is not None and stored.key not in assigned:
                    lists["pending"].append(lists["restored"][-1])
                if (rows := found.grown.get(stored.key)) is not None:
                    lists["grown"].append(_grown(rows, stored.value, live))
                if live is not None and live.is_variable:
                    variables.append((stored, live))
            elif stored.key != SAVE_COUNTER:
                lists["waiting" if self._waits(stored, graph) else "extra"].append(stored.value)
        selected = self._selected(graph)
        for each in graph.values:
            if id(each.object) not in done and each.path != object_graph.COUNTER:
                value = _wanted(each, by_name=found.by_name)
                if selected(value, each.node):
                    lists["missing"].append(value)
                elif value not in lists["left_out"]:
                    lists["left_out"].append(value)
        for each in objects.unreached(graph) if self._unreached else ():
            lists["missing"].append(Value("", each.path, tuple(each.shape), str(each._dtype)))
        lists["reordered"] = _reordered(variables, found.stored)
        return Account(self._source, **{name: tuple(listed) for name, listed in lists.items()}, initial=initial)

    def _name(self, each: objects.LiveValue) -> str:
        """How the account calls a variable: a part that is a tensor of its own by its own name."""
        if each.path not in self._names and not self._found.by_name and objects.part_of(each.object) is not None:
            return str(each.object.name).split(":")[0]
        return self._names.get(each.path, each.name)

    def _selected(self, graph: objects.LiveGraph) -> Callable[[Value, int], bool]:
        """Whether the caller asked for a value of the program, in its names or in those of the checkpoint."""
        known = [_wanted(each, by_name=self._found.by_name) for each in graph.values]
        whole, renamed = Selection(graph.proto, known, self._names, self._only), self._found.renamed
        if renamed is None or not renamed.targets:
            return whole
        formers = [renamed.former(value) or value for value in known]
        nothing = trackable_object_graph_pb2.TrackableObjectGraph()
        nothing.nodes.add()
        of_checkpoint = Selection(nothing, formers, {}, renamed.patterns)
        others = {*(self._only or ())}.difference(renamed.patterns)
        of_program = Selection(graph.proto, known, self._names, others)

        def selected(value: Value, node: int) -> bool:
            former = renamed.former(value)
            if former is None:
                return whole(value, node)
            return of_checkpoint(former, -1) or of_program(value, node)

        return selected

    def initialize(self, session: Any) -> None:
        """Runs the initializers of all variables of a graph that were not restored."""
        done = self._filled(only_restored=True)
        others = [value.object for value in objects.graph_of(self._checkpoint).values if id(value.object) not in done]
        session.run([other.initializer for other in others if hasattr(other, "initializer")])

    def _filled(self, *, only_restored: bool = False) -> set[int]:
        """Ids of objects whose value in the checkpoint is accounted for: restored, of another shape, or left out."""
        without = self._found.unused if only_restored else set()
        bound = (self._bound(each) for each in self._found.stored if each.key not in without)
        return {id(each) for each in bound if each is not None}

    def _bound(self, stored: Stored) -> Any:
        return None if stored.node is None else self._objects.get(stored.node)

    def _dropped(self) -> dict[str, Stored]:
        """See `Matching.dropped`; also for objects made since, which have the value that was bound to them first."""
        found, known = dict(self._found.dropped), {id(each) for each in self._found.objects.values()}
        unused = self._found.unused
        stored_at = _by_node(each for each in self._found.stored if each.key not in unused)
        first: dict[int, Stored] = {}
        for node, each in self._objects.items():
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
                optimizer = self._objects.get(number)
                if optimizer is None:
                    return False
                here = next(number for number, each in enumerate(graph.objects) if each is optimizer)
                return not graph.proto.nodes[here].slot_variables
        parents = defaultdict[int, list[int]](list)
        for number, node in enumerate(nodes):
            for child in node.children:
                parents[child.node_id].append(number)
        # As far up as no object exists.
        above = object_graph.closure([stored.node], lambda number: [] if number in self._objects else parents[number])
        return any(_unbuilt(self._objects[number], graph) for number in above if number in self._objects)


def _reordered(restored: Iterable[tuple[Stored, objects.LiveValue]], stored: Iterable[Stored]) -> list[Reordered]:
    """Variables of lists that have the values of others, to judge by the names that the checkpoint knows.

    The number in a list decides which value a variable gets, of the layers of a `Sequential` or functional model and of
    the slots of an optimizer, too. A variable has the value of another one if the names form a circle, or if its name
    is that of another value in the list, which no variable has. A layer's name with a number may have become that of
    its neighbour, without another order: such names form no circle.

    Args:
        restored: values, and the variables that have them.
        stored: all values of the checkpoint.
    """
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for each in stored:
        names[_place(each.value)].append(each.value.name)
    lists: dict[tuple[str, str], list[tuple[Stored, objects.LiveValue]]] = defaultdict(list)
    for one, live in restored:
        moved = one.key.removesuffix(KEY_END) != one.value.path  # by `rename`, or from a name-based checkpoint
        if _NUMBER.search(one.value.path) and not moved:
            lists[_place(one.value)].append((one, live))
    found = []
    for place, members in lists.items():
        before = _own_parts(names[place])
        after = _own_parts([objects.global_name(live.object) for _, live in members])
        extra = {before[name] for name in before.keys() - {one.value.name for one, _ in members}}
        now = {before[one.value.name]: after[objects.global_name(live.object)] for one, live in members}
        for one, live in members:
            name = objects.global_name(live.object)
            start, own, steps = before[one.value.name], after[name], 1
            another = _DIGITS.sub("", start) != _DIGITS.sub("", own) and own in extra
            while own != start and own in now and steps < len(now):
                own, steps = now[own], steps + 1
            if another or (own == start and steps > 1):
                found.append(Reordered(live.path, name, one.value.name))
    return found


def _place(value: Value) -> tuple[str, str]:
    """What the values have in common that a change of numbers could confuse: lists, shape and type."""
    return _NUMBER.sub("*", value.path), value.kind


def _own_parts(names: Collection[str]) -> dict[str, str]:
    """What names have that others in the list have not: Keras numbers models and optimizers, so these begin otherwise.

    Of a single name it is the last two parts, which are those of layer and variable.
    """
    if len({*names}) == 1:
        return {name: "/".join(name.split("/")[-2:]) for name in names}
    first, last = min(names), max(names)
    alike = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    common = re.sub(r"[^/_]*$", "", first[:alike])
    return {name: name.removeprefix(common) for name in names}


def _unbuilt(above: Any, graph: objects.LiveGraph) -> bool:
    """Whether an object has yet to make its variables: Keras says so, others have none; a root not even objects."""
    built = getattr(above, "built", None)
    if isinstance(built, bool):
        return not built
    if above is graph.objects[0] and len(graph.objects) > 1:
        return False
    holders = {value.node for value in graph.values}
    numbers = {id(each): number for number, each in enumerate(graph.objects)}
    start = [numbers[id(above)]] if id(above) in numbers else []
    below = object_graph.closure(start, lambda number: {child.node_id for child in graph.proto.nodes[number].children})
    return not holders & below


def _grown(rows: RowMap, stored: Value, live: objects.LiveValue | None) -> Grown:
    now = replace(_with_name(stored, live), shape=(len(rows.places), *(stored.shape or ())[1:]))
    return Grown(now, *rows.counts)


def _with_name(value: Value, each: objects.LiveValue | None) -> Value:
    """The value of a checkpoint under the path and name that the program has for it."""
    if each is None:
        return value
    suffix = value.path.partition("/.ATTRIBUTES/")[2]
    return Value(f"{each.path}/.ATTRIBUTES/{suffix}" if suffix else each.path, each.name, value.shape, value.dtype)
