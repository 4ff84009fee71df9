"""Names: those of a run's variables in name-based checkpoints, what `rename` means, and the object graphs for them.

| variable | name |
|---|---|
| a table | `embedding/<table>` |
| its slots | that and `/Adagrad`; `/Adam`, `/Adam_1`; `/Ftrl`, `/Ftrl_1`; `/AdagradMomentum`, `/AdagradMomentum_1` |
| a weight of the model | its Keras path, such as `hidden.0/kernel` |
| a variable of the dense optimizer | its Keras path without a number after `adam`: `adam/hidden.0_kernel_momentum` |
| the step | `global_step` |
| anything else | its object path, such as `random/0` |

The slots are named as those of `tf.compat.v1.train.AdagradOptimizer`, `AdamOptimizer` and `FtrlOptimizer`, so that a
program of TensorFlow 1 that trains the table by the same rule finds them too; there is no optimizer for the fourth.
`global_step` is what `tf.compat.v1.train.get_or_create_global_step` creates.

Object graphs as checkpoints store them: TensorFlow's `TrackableObjectGraph`, read, renamed, and made from names.
Source: tensorflow/core/protobuf/trackable_object_graph.proto
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.checkpoint import util

from embexp.checkpoints import objects, paths
from embexp.checkpoints.objects import VARIABLE, LiveGraph, escaped, unescaped
from embexp.errors import CheckpointError, DataError
from embexp.tensor_bundle.index import read_index
from embexp.tensor_bundle.tensor import read_strings
from embexp.tensor_bundle.writer import KEY_END, OBJECT_GRAPH, is_name_based

_SLOTS = {
    ("accumulators",): ("Adagrad",),
    ("momenta", "velocities"): ("Adam", "Adam_1"),
    ("accumulators", "linears"): ("Ftrl", "Ftrl_1"),
    ("accumulators", "momenta"): ("AdagradMomentum", "AdagradMomentum_1"),
}
"""By the slots that `TPUEmbedding` gives a table, sorted."""
_TABLES = "embedding/"
_STEP = "step"


def variable_names(checkpoint: Any) -> dict[str, str]:
    """A global name for each key of a run's checkpoint.

    The names are the same eagerly and in a graph, on every strategy. Nothing is read or created.

    Args:
        checkpoint: the run's `tf.train.Checkpoint`, with the part embedding, and model, optimizer, random, step if it
            has them; all variables exist.

    Returns:
        Unique names by key, without the end that all keys of variables have.
    """
    optimizer = getattr(checkpoint, "optimizer", None)
    values = objects.graph_of(checkpoint).values
    fixed = names_of_keys(each.path for each in values)
    named = []
    for each in values:
        name = fixed.get(each.path)
        if name is None and isinstance(each.object, keras.Variable):
            name = _without_number(each.object.path, optimizer)
        named.append((each.path, name or objects.unescaped(each.path)))
    return objects.unique_names(named)


def names_of_keys(keys: Iterable[str]) -> dict[str, str]:
    """Names of tables, their slots and the step, by their keys; other keys of a run are left out.

    Args:
        keys: of a run's checkpoint, without the end that all keys of variables have.
    """
    keys = set(keys)
    slots: dict[str, list[str]] = {}
    for key in sorted(keys):
        table, slot = _table_of(key, keys)
        if table.startswith(_TABLES):
            slots.setdefault(table, []).extend([slot] if slot else [])
    names = {_STEP: "global_step"} if _STEP in keys else {}
    for table, found in slots.items():
        names[table] = objects.unescaped(table)
        for slot, name in zip(found, _SLOTS.get(tuple(found), found), strict=True):
            names[f"{table}.S{slot}"] = f"{names[table]}/{name}"
    return names


def names_in(path: Path) -> dict[str, str]:
    """`names_of_keys` of a run's object-based checkpoint; empty if it is name-based.

    Raises:
        DataError: there is none, or its index is damaged.
    """
    index = paths.index_of(path, as_objects=False)
    return {} if is_name_based(index) else names_of_keys(key.removesuffix(KEY_END) for key in read_index(index))


def _table_of(key: str, keys: Collection[str]) -> tuple[str, str]:
    """The key of a table and the name of a slot, or the key itself."""
    table, _, slot = key.rpartition(".S")
    return (table, slot) if table in keys else (key, "")


def _without_number(path: str, optimizer: Any) -> str:
    """The path of a variable of the dense optimizer, whose name Keras numbers by how many the process has made."""
    first, _, rest = path.partition("/")
    return f"{re.sub(r'_[0-9]+$', '', first)}/{rest}" if rest and first == getattr(optimizer, "name", None) else path


def rename_targets(rename: Mapping[str, Any], graph: objects.LiveGraph, names: Mapping[str, str]) -> dict[str, str]:
    """The object path that each old path or name goes to.

    Args:
        rename: by old object path or name, the new one, or the variable.
        names: global names of its variables, by object path.
    """
    path_of = {name: path for path, name in names.items()}
    found = {}
    for old, new in rename.items():
        if isinstance(new, str):
            found[old] = new if new in names else path_of.get(new, new)
        else:
            parts = list(new) if objects.is_whole(new) else [new]
            found[old] = next((each.path for each in graph.values if each.object is parts[0]), "")
    return found


def move_values(proto: Any, targets: Mapping[str, str]) -> list[str]:
    """Moves objects in the object graph of a checkpoint, and returns faults."""
    paths = paths_of(proto)
    by_name: dict[str, list[str]] = {}
    for path, node in zip(paths, proto.nodes, strict=True):
        for attribute in node.attributes:
            by_name.setdefault(attribute.full_name, []).append(path)
    moves, faults = {}, []
    for old, new in targets.items():
        named = [old] if old in paths else by_name.get(old, [])
        if not new:
            faults.append(f"{old} is to go to what is no part of the objects")
        elif len(named) != 1:
            faults.append(f"{old} is the name of {len(named)} variables: {', '.join(named)}" if named else _lacks(old))
        else:
            moves[named[0]] = new
    return faults or move_objects(proto, moves)


def rename_sources(
    targets: Mapping[str, str], names: Mapping[str, str], entries: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """The name in a name-based checkpoint of each variable that it has, by object path; and faults.

    Args:
        targets: by old name, or the beginning of names before a `/`, the new object path or name.
        names: global names of the program's variables, by object path.
        entries: all names in the checkpoint.
    """
    paths_of: dict[str, list[str]] = {}  # several of a partitioned variable
    for path, name in names.items():
        paths_of.setdefault(name, []).append(path)
    found = {path: name for path, name in names.items() if name in entries}
    given: dict[str, str] = {}
    faults = []
    for old, new in targets.items():
        olds = [old] if old in entries else [each for each in entries if each.startswith(f"{old}/")]
        if not olds:
            faults.append(_lacks(old))
        for each in olds:
            target = new + each.removeprefix(old)
            paths = paths_of.get(names.get(target, target), [])
            if not paths:
                faults.append(
                    f"{each} is to go to {target or 'what is no part of the objects'}, and there is no such variable"
                )
            elif paths[0] in given:
                faults.append(f"{each} and {given[paths[0]]} are to go to {paths[0]} both")
            else:
                given.update(dict.fromkeys(paths, each))
    # What goes elsewhere does not also go where its old name is.
    return {**{path: name for path, name in found.items() if name not in given.values()}, **given}, faults


def _lacks(old: str) -> str:
    return f"the checkpoint has no {old}"


def read_object_graph(index: Path) -> Any:
    """The object graph of a checkpoint.

    Raises:
        CheckpointError: it can't be read.
    """
    try:
        message = read_strings(OBJECT_GRAPH, read_index(index)[OBJECT_GRAPH])[0]
        return trackable_object_graph_pb2.TrackableObjectGraph.FromString(message)
    except (DataError, DecodeError, IndexError) as error:
        raise CheckpointError(f"{index} is damaged: the object graph can't be read: {error}") from error


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


def from_keys(names: Mapping[str, str]) -> Any:
    """An object graph whose objects are the components of object paths.

    Args:
        names: of each variable, by its key.
    """
    proto = trackable_object_graph_pb2.TrackableObjectGraph()
    proto.nodes.add()
    for key, name in names.items():
        path, _, attribute = key.partition("/.ATTRIBUTES/")
        node = proto.nodes[_reach(proto, path)]
        node.attributes.add(name=unescaped(attribute) or VARIABLE, checkpoint_key=key, full_name=name)
    util.add_checkpoint_values_check(proto)
    return proto


def named_graph(graph: LiveGraph, source_of: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """The object graph of a program, whose variables have the values of a name-based checkpoint.

    Args:
        source_of: the name in the checkpoint, by object path.

    Returns:
        The object graph, and the name in the checkpoint by key.
    """
    proto = trackable_object_graph_pb2.TrackableObjectGraph()
    proto.CopyFrom(graph.proto)
    names = {}
    for each in graph.values:
        if each.path in source_of:
            key = each.path + KEY_END
            names[key] = source_of[each.path]
            proto.nodes[each.node].attributes.add(name=VARIABLE, checkpoint_key=key, full_name=names[key])
    util.add_checkpoint_values_check(proto)
    return proto, names


def key_of(name: str) -> str:
    """The key of a variable by its name: each part between `/` is an object. A key of other values is one already."""
    if "/.ATTRIBUTES/" in name:
        return name
    return "/".join(part.replace(".", "..") for part in name.split("/")) + KEY_END


def move_objects(proto: Any, moves: Mapping[str, str]) -> list[str]:
    """Moves objects, with all that they reach, to other object paths, and returns what can't be moved and why.

    Objects keep the keys of their values. No other edge than the new one leads to a moved object.
    """
    paths = {path: number for number, path in reversed([*enumerate(paths_of(proto))])}
    reached = slots_of(proto)
    faults = [f"there is no object {old}" for old in moves if old not in paths]
    faults += [
        f"{old} is a slot variable, which is where its variable is" for old in moves if paths.get(old) in reached
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
        children = proto.nodes[_reach(proto, parent)].children
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
    found = {number for number, path in enumerate(paths_of(proto)) if path == pattern}
    pending = list(found)
    while pending:
        node = proto.nodes[pending.pop()]
        reached = {child.node_id for child in node.children}
        reached |= {slot.slot_variable_node_id for slot in node.slot_variables}
        fresh = reached - found
        found |= fresh
        pending += fresh
    return found


def _reach(proto: Any, path: str) -> int:
    """The node of an object path, which is created if there is none."""
    number = 0
    for part in _components(path):
        name = unescaped(part)
        for child in proto.nodes[number].children:
            if child.local_name == name:
                number = child.node_id
                break
        else:
            proto.nodes.add()
            proto.nodes[number].children.add(node_id=len(proto.nodes) - 1, local_name=name)
            number = len(proto.nodes) - 1
    return number


def _components(path: str) -> Iterable[str]:
    return path.split("/") if path else ()
