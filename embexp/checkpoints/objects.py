"""What users save and restore, as a `tf.train.Checkpoint`: trackables, models, mappings of them, lists of variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from embexp.checkpoints import live, partitioned
from embexp.errors import CheckpointError


def checkpoint_of(objects: Any) -> Any:
    """A `tf.train.Checkpoint` of some objects.

    Args:
        objects: a `tf.train.Checkpoint`; another trackable, such as a `tf.Module` or a Keras model, which is the root;
            a mapping from the name of an edge to a trackable; or variables, the edges to which have their names. A
            partitioned variable of TensorFlow 1 stands for a list of its parts.

    Raises:
        CheckpointError: they are none of these, or several variables of a list have one name.
    """
    if isinstance(objects, tf.train.Checkpoint):
        return objects
    if live.is_variable(objects) or partitioned.is_whole(objects):
        objects = [objects]
    if isinstance(objects, list | tuple | set | frozenset):
        objects = _by_name(list(objects))
    if isinstance(objects, Mapping):
        root = tf.__internal__.tracking.AutoTrackable()
        for name, value in objects.items():
            setattr(root, name, list(value) if partitioned.is_whole(value) else value)
        _check({name: getattr(root, name) for name in objects})
        return tf.train.Checkpoint(root)
    _check({"": objects})
    return tf.train.Checkpoint(objects)


def require_open_graph(path: Any, done: str, remedy: str) -> None:
    """Raises CheckpointError if operations can't be added to the current graph of TensorFlow 1.

    Args:
        path: of the checkpoint.
        done: what can't be done, such as "saved".
        remedy: how to do it all the same.
    """
    if not tf.executing_eagerly() and tf.compat.v1.get_default_graph().finalized:
        raise CheckpointError(
            f"{path}: it can't be {done} in a finalized graph, such as that of a MonitoredTrainingSession; {remedy}"
        )


def names_of(objects: Any, graph: live.LiveGraph) -> dict[str, str]:
    """Unique global names of all variables, by object path.

    That is the name of the variable, or its object path where several share a name. A variable in a mapping has its
    key as the name. Parts of a partitioned variable have one name, that of the whole.

    Args:
        objects: what `checkpoint_of` was given.
        graph: of the checkpoint.
    """
    given: dict[int, str] = {}
    for name, value in objects.items() if isinstance(objects, Mapping) else ():
        given |= {id(each): name for each in (value if partitioned.is_whole(value) else [value])}
    named = [(each, given.get(id(each.object), each.name)) for each in graph.values if each.is_variable]
    first: dict[str, live.LiveValue] = {}  # of the parts of each partitioned variable
    for each, _ in named:
        if (part := partitioned.part_of(each.object)) is not None:
            first.setdefault(part.name, each)
    whole = {id(each.object): first[part.name] for each, _ in named if (part := partitioned.part_of(each.object))}
    found = live.unique_names([(each.path, name) for each, name in named if whole.get(id(each.object), each) is each])
    return {each.path: found[whole.get(id(each.object), each).path] for each, _ in named}


def _by_name(values: list[Any]) -> dict[str, Any]:
    """Variables by the names of the edges to them: their names, of parts their own."""
    variables = [part for each in values for part in (each if partitioned.is_whole(each) else [each])]
    if strange := [each for each in variables if not live.is_variable(each)]:
        kinds = ", ".join(sorted({type(each).__name__ for each in strange}))
        raise CheckpointError(f"found {kinds} in a list, expected variables; give trackables in a mapping, by name")
    names = [
        live.global_name(each) if partitioned.part_of(each) is None else str(each.name).split(":")[0]
        for each in variables
    ]
    count = Counter(names)
    if shared := sorted(f"{name!r} ({times} times)" for name, times in count.items() if times > 1 or not name):
        raise CheckpointError(
            f"found variables that share a name: {', '.join(shared)}; give them in a mapping, by name"
        )
    return dict(zip(names, variables, strict=True))


def _check(objects: Mapping[str, Any]) -> None:
    trackable = tf.__internal__.tracking.Trackable
    if strange := {name: each for name, each in objects.items() if not isinstance(each, trackable)}:
        found = ", ".join(f"{name}: {type(each).__name__}".lstrip(": ") for name, each in strange.items())
        raise CheckpointError(
            f"found {found}; expected a tf.Module, a Keras model or another trackable, a mapping of these by name, or a"
            " list of variables"
        )
