"""Object graphs as checkpoints store them: TensorFlow's `TrackableObjectGraph`, read, renamed, and made from names.

Source: tensorflow/core/protobuf/trackable_object_graph.proto
"""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.checkpoint import util

from embexp.checkpoints.live import VARIABLE, LiveGraph, escaped, unescaped
from embexp.checkpoints.plain_paths import plain_temporary
from embexp.errors import CheckpointError
from embexp.tensor_bundle import rekeying
from embexp.tensor_bundle.rekeying import KEY_END, OBJECT_GRAPH


def read(index: Path) -> Any:
    """The object graph of a checkpoint.

    Raises:
        CheckpointError: it can't be read.
    """
    proto = trackable_object_graph_pb2.TrackableObjectGraph()
    try:
        with tempfile.TemporaryDirectory(prefix="embexp-", dir=plain_temporary(index.parent)) as folder:
            view = Path(folder) / "checkpoint"
            rekeying.rekey(index, view, {OBJECT_GRAPH: OBJECT_GRAPH}, {}, rekeying.symbolic)
            proto.ParseFromString(tf.train.load_checkpoint(str(view)).get_tensor(OBJECT_GRAPH))
    except (tf.errors.OpError, ValueError, IndexError, RuntimeError, DecodeError) as error:
        raise CheckpointError(f"{index} is damaged: the object graph can't be read: {error}") from error
    return proto


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


def named(graph: LiveGraph, source_of: Mapping[str, str]) -> tuple[Any, dict[str, str]]:
    """The object graph of a program, whose variables have the values of a name-based checkpoint.

    Args:
        graph: the objects of the program.
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


def move(proto: Any, moves: Mapping[str, str]) -> list[str]:
    """Moves objects, with all that they reach, to other object paths, and returns what can't be moved and why.

    Objects keep the keys of their values. No other edge than the new one leads to a moved object.

    Args:
        proto: the object graph, which is changed.
        moves: new object paths by old ones.
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
