"""Saving objects of any kind, as an object-based or a name-based checkpoint."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tensorflow as tf

from embexp.checkpoints import live, locating, objects, publishing
from embexp.checkpoints.kinds import Kind
from embexp.checkpoints.plain_paths import plain_path
from embexp.errors import CheckpointError
from embexp.tensor_bundle import rekeying
from embexp.tensor_bundle.rekeying import KEY_END


def save(path: Path | str, objects_or_variables: Any, *, kind: Kind | str = Kind.OBJECT) -> Path:
    """Saves objects; in a graph of TensorFlow 1, their values in the default session.

    The files are on disk when this returns, and are there whole or not at all. A checkpoint of that name is replaced.

    Args:
        path: prefix of the checkpoint; in an existing folder, `checkpoint` in it.
        objects_or_variables: a `tf.train.Checkpoint`, a `tf.Module`, a Keras model or another trackable; a mapping of
            trackables or variables by name; or a list of variables.
        kind: `object`, as `tf.train.Checkpoint.write` writes; or `name`, as `tf.compat.v1.train.Saver` writes: every
            variable by its global name. That of a Keras variable is its path, that of a variable of a mapping its key;
            variables that share a name have their object paths.

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
    with publishing.published(prefix) as folder:
        try:
            with plain_path(folder) as plain:
                checkpoint.write(str(plain / locating.NAME))
        except tf.errors.OpError as error:
            raise CheckpointError(f"{path}: TensorFlow can't save: {error.message}") from error
        if kind is Kind.NAME:
            rekeying.rewrite(folder / f"{locating.NAME}.index", {name: path + KEY_END for path, name in names.items()})
    return prefix
