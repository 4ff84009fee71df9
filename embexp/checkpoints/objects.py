"""The objects of a program as a checkpoint sees them: their values by path, partitioned ones, and the object graph.

An object path is what the key of an object-based checkpoint begins with: the names of the edges from the root, in
which `.` is written `..` and `/` is written `.S`, with `/` between them. Nothing is read or created here.

Partitioned variables of TensorFlow 1: in a name-based checkpoint, their parts are slices of one tensor.

`tf.compat.v1.get_variable` makes them if it is given a `partitioner`. The parts in a program need not be those in the
checkpoint: `tf.compat.v1.train.Saver` restores any slice, and so does this module, by the same operation. In an
object-based checkpoint each part is an object of its own, and the parts must be the same.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf
from tensorflow.core.protobuf import trackable_object_graph_pb2
from tensorflow.python.checkpoint import graph_view, util
from tensorflow.python.ops import resource_variable_ops
from tensorflow.python.ops.variables import PartitionedVariable
from tensorflow.python.saved_model import registration
from tensorflow.python.training.saving import saveable_object_util

from embexp.errors import CheckpointError
from embexp.system.tensor_bundle.index import unescaped

VARIABLE = "VARIABLE_VALUE"
"""Name of the one attribute of a variable in an object graph."""
CALLBACK = "TPUEmbeddingCallback"
"""The saver that TensorFlow gives a `TPUEmbedding`: it moves tables between the TPU and the host, and saves nothing."""


def checkpoint_of(objects: Any) -> Any:
    """A `tf.train.Checkpoint` of some objects.

    Args:
        objects: a `tf.train.Checkpoint`; another trackable, such as a `tf.Module` or a Keras model, which is the root;
            a mapping from the name of an edge to a trackable; or variables, the edges to which have their names. A
            partitioned variable of TensorFlow 1 stands for a list of its parts.

    Raises:
        CheckpointError: they are none of these, or several variables of a list have one name.
    """
    checkpoint = objects if isinstance(objects, tf.train.Checkpoint) else _made(objects)
    _track_collections(checkpoint)
    return checkpoint


def _made(objects: Any) -> Any:
    if _is_variable(objects) or is_whole(objects):
        objects = [objects]
    if isinstance(objects, list | tuple | set | frozenset):
        objects = _by_name(list(objects))
    if isinstance(objects, Mapping):
        root = tf.__internal__.tracking.AutoTrackable()
        for name, value in objects.items():
            setattr(root, name, list(value) if is_whole(value) else value)
        _check({name: getattr(root, name) for name in objects})
        return tf.train.Checkpoint(root)
    _check({"": objects})
    return tf.train.Checkpoint(objects)


def _track_collections(root: Any) -> None:
    """Has TensorFlow see lists, tuples and dicts of layers and variables that are attributes of Keras layers.

    Keras 3 keeps them from TensorFlow's object graph, so that a `tf.train.Checkpoint` leaves their values out. Their
    edges are those that Keras 2 made: the attribute, then the number in a list or the key in a dict.
    """
    seen: set[int] = set()
    while fresh := [each for each in _layers(root) if id(each) not in seen]:
        for layer in fresh:
            seen.add(id(layer))
            for name in dict.fromkeys(layer._tracked):
                if name != "_layers" and _holds_layers(value := getattr(layer, name, None)):
                    plain = tf.__internal__.tracking.wrap(_plain(value))
                    layer._track_trackable(plain, name, overwrite=True)


def _layers(root: Any) -> Iterator[Any]:
    for each in tf.train.TrackableView(root).descendants():
        if isinstance(each, keras.layers.Layer):
            yield each


def _holds_layers(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_holds_layers, value.values()))
    if isinstance(value, list | tuple):
        return any(map(_holds_layers, value))
    return isinstance(value, keras.layers.Layer | keras.Variable)


def _plain(value: Any) -> Any:
    """The same without Keras' own kinds of lists and dicts, which TensorFlow does not take for such."""
    if isinstance(value, dict):
        return {str(name): _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def assign(variable: Any, value: np.ndarray) -> None:
    """Assigns a value, eagerly or in the default session, where it adds no operation to the graph."""
    if tf.executing_eagerly():
        variable.assign(value)
    else:
        initializer = variable.initializer
        tf.compat.v1.get_default_session().run(initializer, {initializer.inputs[1]: value})


def resource_variables(variable: Any) -> list[Any]:
    """The variables of resource type that make up a variable: itself, or its copies; none if it is of another kind."""
    if isinstance(variable, keras.Variable):
        variable = variable.value
    if isinstance(variable, resource_variable_ops.ResourceVariable):
        return [variable]
    copies = getattr(variable, "values", ())
    if isinstance(variable, tf.distribute.DistributedValues) and isinstance(variable, tf.Variable):
        return [copy for copy in copies if isinstance(copy, resource_variable_ops.ResourceVariable)]
    return []


def require_open_graph(path: Any, done: str, remedy: str) -> None:
    """Raises CheckpointError if operations can't be added to the current graph of TensorFlow 1.

    Args:
        done: what can't be done, such as "saved".
        remedy: how to do it all the same.
    """
    if not tf.executing_eagerly() and tf.compat.v1.get_default_graph().finalized:
        raise CheckpointError(
            f"{path}: it can't be {done} in a finalized graph, such as the one of a MonitoredTrainingSession; {remedy}"
        )


def names_of(objects: Any, graph: LiveGraph) -> dict[str, str]:
    """Unique global names of all variables, by object path.

    That is the name of the variable, or its object path where several share a name. A variable in a mapping has its
    key as the name. Parts of a partitioned variable have one name, that of the whole, unless they have own keys.

    Args:
        objects: what `checkpoint_of` was given.
    """
    given: dict[int, str] = {}
    alone = set()  # parts with keys of their own, which are no slices for a `Saver` either
    for name, value in objects.items() if isinstance(objects, Mapping) else ():
        given |= {id(each): name for each in (value if is_whole(value) else [value])}
        alone |= {id(value)} if _is_variable(value) else set()
    named = [(each, given.get(id(each.object), each.name)) for each in graph.values if each.is_variable]
    first: dict[str, LiveValue] = {}  # of the parts of each partitioned variable
    for each, _ in named:
        if id(each.object) not in alone and (part := part_of(each.object)) is not None:
            first.setdefault(part.name, each)
    whole = {
        id(each.object): first[part.name]
        for each, _ in named
        if id(each.object) not in alone and (part := part_of(each.object))
    }
    found = unique_names([(each.path, name) for each, name in named if whole.get(id(each.object), each) is each])
    return {each.path: found[whole.get(id(each.object), each).path] for each, _ in named}


def _by_name(values: list[Any]) -> dict[str, Any]:
    """Variables by the names of the edges to them: their names, of parts their own."""
    variables = [part for value in values for part in (value if is_whole(value) else [value])]
    if strange := [variable for variable in variables if not _is_variable(variable)]:
        kinds = ", ".join(sorted({type(each).__name__ for each in strange}))
        raise CheckpointError(f"found {kinds} in a list, expected variables; pass trackables in a mapping by name")
    names = [
        global_name(variable) if part_of(variable) is None else str(variable.name).split(":")[0]
        for variable in variables
    ]
    count = Counter(names)
    if shared := sorted(f"{name!r} ({times} times)" for name, times in count.items() if times > 1 or not name):
        raise CheckpointError(f"found variables that share a name: {', '.join(shared)}; pass them in a mapping by name")
    return dict(zip(names, variables, strict=True))


def _check(objects: Mapping[str, Any]) -> None:
    trackable = tf.__internal__.tracking.Trackable
    if strange := {name: each for name, each in objects.items() if not isinstance(each, trackable)}:
        found = ", ".join(f"{name}: {type(each).__name__}".lstrip(": ") for name, each in strange.items())
        raise CheckpointError(
            f"found {found}; expected a tf.Module, a Keras model or another trackable, a mapping of these by name, or a"
            " list of variables"
        )


@dataclass(frozen=True)
class LiveValue:
    """An object that a checkpoint has a value of.

    Attributes:
        name: its global name, such as `dense/kernel`; empty if it is no variable.
        object: a `tf.Variable`, a `keras.Variable`, or another object that saves values of its own.
    """

    path: str
    name: str
    object: Any
    node: int

    @property
    def is_variable(self) -> bool:
        """Whether it is one value, of a known shape and type, with the key of a variable."""
        return _is_variable(self.object)


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
    # A `tf.train.Checkpoint` may have a root of its own, which then has the object path "".
    view = root._saver._graph_view if isinstance(root, tf.train.Checkpoint) else graph_view.ObjectGraphView(root)
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


def unreached(graph: LiveGraph) -> list[Any]:
    """The weights of Keras layers that no edge leads to, such as those of layers in a set."""
    reached = {id(each) for each in graph.objects}
    layers = [each for each in graph.objects if isinstance(each, keras.layers.Layer)]
    return list({id(each): each for layer in layers for each in layer.weights if id(each) not in reached}.values())


def _holds_value(value: Any) -> bool:
    if _is_variable(value):
        return True
    saver = registration.get_registered_saver_name(value)
    if saver is not None:
        return not saver.endswith(CALLBACK)
    return bool(saveable_object_util.saveable_objects_from_trackable(value))


def _is_variable(value: Any) -> bool:
    """Whether an object is a variable, or is written as one."""
    return isinstance(value, tf.Variable | keras.Variable) or hasattr(value, "covered")


def global_name(value: Any) -> str:
    """The name by which a name-based checkpoint knows a variable; empty if it is none.

    Of a Keras variable that is its path, such as `dense/kernel`: the name of its `tf.Variable` is only `kernel`.
    """
    if isinstance(value, keras.Variable):
        return str(value.path)
    if not _is_variable(value):
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


@dataclass(frozen=True)
class Part:
    """What a part of a partitioned variable is of the whole.

    Attributes:
        whole: its shape.
        start: in each dimension, where the part begins.
    """

    name: str
    whole: tuple[int, ...]
    start: tuple[int, ...]
    shape: tuple[int, ...]


def part_of(variable: Any) -> Part | None:
    """What a variable is a part of; None: it is whole."""
    found = getattr(variable, "_save_slice_info", None)
    if found is None:
        return None
    numbers = (found.full_shape, found.var_offset, found.var_shape)
    whole, start, shape = (tuple(int(each) for each in some) for some in numbers)
    return Part(str(found.full_name), whole, start, shape)


def is_whole(value: Any) -> bool:
    """Whether this is a partitioned variable: what `get_variable` returned, or a list of parts of one variable."""
    if isinstance(value, list | tuple):
        parts = [part_of(each) for each in value]
        return bool(parts) and all(part is not None and part.name == getattr(parts[0], "name", "") for part in parts)
    return isinstance(value, PartitionedVariable)


def require_whole(parts: Mapping[str, Sequence[Part]]) -> None:
    """Checks that the parts of each variable, by name, are all of it.

    Raises:
        CheckpointError: some are missing: the checkpoint could not be restored.
    """
    for name, some in parts.items():
        found = sum(math.prod(each.shape) for each in some)
        if found != math.prod(some[0].whole):
            raise CheckpointError(
                f"the {len(some)} parts of {name} have {found:,} of its {math.prod(some[0].whole):,} values; "
                f"pass all parts of a partitioned variable"
            )
