"""Finding a checkpoint from what users name: its prefix, its index, or its folder."""

from __future__ import annotations

from pathlib import Path

import tensorflow as tf

from embexp.checkpoints.plain_paths import plain_path
from embexp.errors import CheckpointError
from embexp.tensor_bundle.rekeying import object_index

NAME = "checkpoint"
"""Prefix of a checkpoint in a folder of its own."""


def index_of(path: Path | str) -> Path:
    """The index of a checkpoint.

    Args:
        path: its prefix, its index, or a folder: one with one checkpoint, one whose latest checkpoint TensorFlow's file
            `checkpoint` names, or a SavedModel. Of a folder with both kinds, the object-based one is taken.

    Raises:
        CheckpointError: there is none, or several of which none is the latest.
    """
    path = Path(path)
    if path.name.endswith(".index") and path.is_file():
        return path
    beside = path.with_name(f"{path.name}.index")
    if beside.is_file():
        return object_index(path.parent) if path.name == NAME else beside
    if not path.is_dir():
        raise CheckpointError(f"{path}: there is no such checkpoint: neither {beside.name} nor a folder of that name")
    if (path / f"{NAME}.index").is_file():
        return object_index(path)
    found = sorted(path.glob("*.index")) or sorted((path / "variables").glob("variables.index"))
    if len(found) == 1:
        return found[0]
    with plain_path(path) as plain:
        latest = tf.train.latest_checkpoint(str(plain)) if found else None
    if latest is not None:
        return path / f"{Path(latest).name}.index"
    listed = ", ".join(each.name.removesuffix(".index") for each in found)
    why = f"several checkpoints, and no latest one: {listed}. Name the one to read" if found else "no checkpoint"
    raise CheckpointError(f"{path} holds {why}")


def prefix_for(path: Path | str) -> Path:
    """The prefix of a checkpoint to write: the path itself, or `checkpoint` in it if it is a folder."""
    path = Path(path)
    return path / NAME if path.is_dir() else path
