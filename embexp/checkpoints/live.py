"""The objects of a program as a checkpoint sees them: their values by object path, and the object graph.

An object path is what the key of an object-based checkpoint begins with: the names of the edges from the root, in
which `.` is written `..` and `/` is written `.S`, with `/` between them. Nothing is read or created here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.checkpoint import graph_view, util
from tensorflow.python.saved_model import registration
from tensorflow.python.training.saving import saveable_object_util

from embexp.checkpoints.partitioned import part_of

VARIABLE = "VARIABLE_VALUE"
"""Name of the one attribute of a variable in an object graph."""
CALLBACK = "TPUEmbeddingCallback"
"""The saver that TensorFlow gives a `TPUEmbedding`: it moves tables between the TPU and the host, and saves nothing."""
_ESCAPE = re.compile(r"\.[.S]")


@dataclass(frozen=True)
class LiveValue:
    """An object that a checkpoint has a value of.

    Attributes:
        path: its object path, the shortest one.
        name: its global name, such as `dense/kernel`; empty if it is no variable.
        object: a `tf.Variable`, a `keras.Variable`, or another object that saves values of its own.
        node: its number in the object graph.
    """

    path: str
    name: str
    object: Any
    node: int

    @property
    def is_variable(self) -> bool:
        """Whether it is one value, of a known shape and type, with the key of a variable."""
        return is_variable(self.object)


@dataclass(frozen=True)
class LiveGraph:
    """All objects that a root reaches.

    Attributes:
        objects: the objects, the root first.
        paths: their object paths, in the same order.
        proto: the object graph, a `TrackableObjectGraph` whose nodes are in the same order, without attributes.
        values: those that a checkpoint has values of.
    """

    objects: list[Any]
    paths: list[str]
    proto: Any
    values: list[LiveValue]


def graph_of(root: Any) -> LiveGraph:
    """The objects that a trackable, or a `tf.train.Checkpoint`, reaches; slot variables of optimizers behind them."""
    view = view_of(root)
    objects, _, numbers, slots, paths = util.objects_ids_and_slot_variables_and_paths(view)
    proto = trackable_object_graph_pb2.TrackableObjectGraph()
    for each in objects:
        node = proto.nodes.add(slot_variables=slots.get(each, ()))
        for child in view.list_children(each):
            node.children.add(node_id=numbers[child.ref], local_name=child.name)
    values = [
        LiveValue(paths[each], global_name(each), each, number)
        for number, each in enumerate(objects)
        if _holds_value(each)
    ]
    return LiveGraph(objects, [paths[each] for each in objects], proto, values)


def view_of(root: Any) -> Any:
    """TensorFlow's view of the objects that a checkpoint of `root` reaches.

    A `tf.train.Checkpoint` may have a root of its own, which then has the object path "".
    """
    if isinstance(root, tf.train.Checkpoint):
        return root._saver._graph_view
    return graph_view.ObjectGraphView(root)


def _holds_value(value: Any) -> bool:
    if is_variable(value):
        return True
    saver = registration.get_registered_saver_name(value)
    if saver is not None:
        return not saver.endswith(CALLBACK)
    return bool(saveable_object_util.saveable_objects_from_trackable(value))


def is_variable(value: Any) -> bool:
    """Whether an object is a variable, or is written as one."""
    return isinstance(value, tf.Variable | keras.Variable) or hasattr(value, "covered")


def global_name(value: Any) -> str:
    """The name by which a name-based checkpoint knows a variable; empty if it is none.

    Of a Keras variable that is its path, such as `dense/kernel`: the name of its `tf.Variable` is only `kernel`.
    """
    if isinstance(value, keras.Variable):
        return str(value.path)
    if not is_variable(value):
        return ""
    part = part_of(value)
    return str(value.name if part is None else part.name).split(":")[0]


def unique_names(named: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Names by object path: the given ones where they are unique, object paths elsewhere.

    Args:
        named: object paths, and names, which may be empty.
    """
    pairs = list(named)
    count = Counter(name for _, name in pairs)
    found = {path: name for path, name in pairs if name and count[name] == 1}
    taken = set(found.values())
    readable = Counter(unescaped(path) for path, _ in pairs if path not in found)
    for path, _ in pairs:
        if path in found:
            continue
        name = unescaped(path)
        if readable[name] > 1 or name in taken:
            name = path
        while name in taken:
            name += "_"
        found[path] = name
        taken.add(name)
    return found


def escaped(edge: str) -> str:
    """A component of an object path, from the name of an edge."""
    return edge.replace(".", "..").replace("/", ".S")


def unescaped(component: str) -> str:
    """The name of an edge, from a component of an object path; of a whole path, the names with `/` between them."""
    return _ESCAPE.sub(lambda found: "." if found[0] == ".." else "/", component)
