"""Saving objects of any kind, as an object-based or a name-based checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tensorflow as tf

from embexp.checkpoints import live, locating, objects, partitioned, publishing
from embexp.checkpoints.kinds import Kind
from embexp.checkpoints.partitioned import Part
from embexp.checkpoints.plain_paths import plain_path
from embexp.errors import CheckpointError
from embexp.tensor_bundle import rekeying
from embexp.tensor_bundle.rekeying import KEY_END, Slice


def save(path: Path | str, objects_or_variables: Any, *, kind: Kind | str = Kind.OBJECT) -> Path:
    """Saves objects; in a graph of TensorFlow 1, their values in the default session.

    The files are on disk when this returns, and are there whole or not at all. A checkpoint of that name is replaced.

    Args:
        path: prefix of the checkpoint; in an existing folder, `checkpoint` in it.
        objects_or_variables: a `tf.train.Checkpoint`, a `tf.Module`, a Keras model or another trackable; a mapping of
            trackables or variables by name; or a list of variables, also of parts of partitioned ones.
        kind: `object`, as `tf.train.Checkpoint.write` writes; or `name`, as `tf.compat.v1.train.Saver` writes: every
            variable by its global name, and the file in which `tf.train.latest_checkpoint` finds the prefix. The name
            of a Keras variable is its path, that of a variable of a mapping its key; variables that share a name have
            their object paths. Parts of a partitioned variable are slices of one tensor.

    Returns:
        The prefix, for `tf.train.load_checkpoint`.

    Raises:
        CheckpointError: what is given can't be saved, or not as that kind; the graph is finalized; or a file can't be
            written.
    """
    kind, prefix = Kind.parse(kind), locating.prefix_for(path)
    objects.require_open_graph(
        path, "saved", "save with the session's own Saver, or in a session of a graph that is not"
    )
    checkpoint = objects.checkpoint_of(objects_or_variables)
    graph = live.graph_of(checkpoint)
    others = [each.path or type(each.object).__name__ for each in graph.values if not each.is_variable]
    if kind is Kind.NAME and others:
        raise CheckpointError(
            f"{path}: a name-based checkpoint holds variables only, and these are none: {', '.join(others)}."
            " Save them with kind='object'"
        )
    if not graph.values:
        raise CheckpointError(f"{path}: there is nothing to save: the objects have no variables (yet)")
    names = objects.names_of(objects_or_variables, graph)
    slices = _slices(graph, names) if kind is Kind.NAME else {}
    with publishing.published(prefix) as folder:
        try:
            with plain_path(folder) as plain:
                checkpoint.write(str(plain / locating.NAME))
        except tf.errors.OpError as error:
            raise CheckpointError(f"{path}: TensorFlow can't save: {error.message}") from error
        if kind is Kind.NAME:
            keys = {name: path + KEY_END for path, name in names.items() if name not in slices}
            rekeying.rewrite(folder / f"{locating.NAME}.index", keys, slices)
    if kind is Kind.NAME:
        publishing.mark_latest(prefix)
    return prefix


def _slices(graph: live.LiveGraph, names: Mapping[str, str]) -> dict[str, list[Slice]]:
    """The parts of partitioned variables by name, in the order in which they begin."""
    found: dict[str, list[tuple[Part, str]]] = {}
    for each in graph.values:
        if each.is_variable and (part := partitioned.part_of(each.object)) is not None:
            found.setdefault(names[each.path], []).append((part, each.path + KEY_END))
    partitioned.require_whole({name: [part for part, _ in parts] for name, parts in found.items()})
    return {
        name: [part.slice_of(key) for part, key in sorted(parts, key=lambda each: each[0].start)]
        for name, parts in found.items()
    }
