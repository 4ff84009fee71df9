"""Names: those of a run's variables in name-based checkpoints, what `rename` means, and object graphs made from names.

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
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import keras
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.checkpoint import util

from embexp.checkpoints import object_graph, objects, store
from embexp.checkpoints.object_graph import move_objects, paths_of
from embexp.checkpoints.objects import VARIABLE, LiveGraph
from embexp.errors import CheckpointError, DataError
from embexp.system.tensor_bundle import increments
from embexp.system.tensor_bundle.index import index_of, prefix_of, unescaped
from embexp.system.tensor_bundle.writer import KEY_END, OBJECT_GRAPH, BundleWriter

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
    fixed = names_of_keys(value.path for value in values)
    named = []
    for value in values:
        name = fixed.get(value.path)
        if name is None and isinstance(value.object, keras.Variable):
            name = _without_number(value.object.path, optimizer)
        named.append((value.path, name or unescaped(value.path)))
    return objects.unique_names(named)


def names_of_keys(keys: Iterable[str]) -> dict[str, str]:
    """Names of tables, their slots and the step, by their keys; other keys of a run are left out.

    Args:
        keys: of a run's checkpoint, without the end that all keys of variables have.
    """
    keys = set(keys)
    slots: dict[str, list[str]] = {}
    for key in sorted(keys):
        table, _, slot = key.rpartition(".S")
        table, slot = (table, slot) if table in keys else (key, "")
        if table.startswith(_TABLES):
            slots.setdefault(table, []).extend([slot] if slot else [])
    names = {_STEP: "global_step"} if _STEP in keys else {}
    for table, found in slots.items():
        names[table] = unescaped(table)
        for slot, name in zip(found, _SLOTS.get(tuple(found), found), strict=True):
            names[f"{table}.S{slot}"] = f"{names[table]}/{name}"
    return names


def names_in(path: Path) -> dict[str, str]:
    """`names_of_keys` of a run's object-based checkpoint; empty if it is name-based.

    Raises:
        DataError: there is none, or its index is damaged.
    """
    index = store.find_index(path, as_objects=False)
    tensors = increments.tensors(increments.chain(prefix_of(index)))
    return names_of_keys(key.removesuffix(KEY_END) for key in tensors) if OBJECT_GRAPH in tensors else {}


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
            found[old] = next((value.path for value in graph.values if value.object is parts[0]), "")
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
            faults.append(f"{old} is renamed to something that is not part of the objects")
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
        olds = [old] if old in entries else [entry for entry in entries if entry.startswith(f"{old}/")]
        if not olds:
            faults.append(_lacks(old))
        for each in olds:
            target = new + each.removeprefix(old)
            paths = paths_of.get(names.get(target, target), [])
            if not paths:
                faults.append(
                    f"{each} is renamed to {target or 'something that is not part of the objects'}, but there "
                    f"is no such variable"
                )
            elif paths[0] in given:
                faults.append(f"{each} and {given[paths[0]]} are both renamed to {paths[0]}")
            else:
                given.update(dict.fromkeys(paths, each))
    # What goes elsewhere does not also go where its old name is.
    return {**{path: name for path, name in found.items() if name not in given.values()}, **given}, faults


def _lacks(old: str) -> str:
    return f"the checkpoint has no {old}"


def read_object_graph(index: Path) -> Any:
    """The object graph of a checkpoint that is to be restored or converted, a `TrackableObjectGraph`.

    Raises:
        CheckpointError: it can't be read.
    """
    try:
        return object_graph.read(index).proto
    except DataError as error:
        raise CheckpointError(f"{index} is damaged: the object graph can't be read: {error}") from error


def add_counter(prefix: Path) -> None:
    """Adds a place for TensorFlow's count of saves to a new object-based checkpoint; see `object_graph.add_counter`."""
    proto = read_object_graph(index_of(prefix))
    if object_graph.add_counter(proto):
        with contextlib.closing(BundleWriter(prefix, appending=True)) as writer:
            writer.add_strings(OBJECT_GRAPH, (), [proto.SerializeToString()])
            writer.finish()


def from_keys(names: Mapping[str, str]) -> Any:
    """An object graph whose objects are the components of object paths.

    Args:
        names: of each variable, by its key.
    """
    proto = trackable_object_graph_pb2.TrackableObjectGraph()
    proto.nodes.add()
    for key, name in names.items():
        path, _, attribute = key.partition("/.ATTRIBUTES/")
        node = proto.nodes[object_graph.reach(proto, path)]
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
    for value in graph.values:
        if value.path in source_of:
            key = value.path + KEY_END
            names[key] = source_of[value.path]
            proto.nodes[value.node].attributes.add(name=VARIABLE, checkpoint_key=key, full_name=names[key])
    util.add_checkpoint_values_check(proto)
    return proto, names


def key_of(name: str) -> str:
    """The key of a variable by its name: each part between `/` is an object. A key of other values is one already."""
    if "/.ATTRIBUTES/" in name:
        return name
    return "/".join(part.replace(".", "..") for part in name.split("/")) + KEY_END
