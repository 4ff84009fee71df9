"""Finding a checkpoint from what users name, and where a new one goes. Imports no TensorFlow."""

from __future__ import annotations

from pathlib import Path

from embexp.checkpoints.opening import find_index, starts_as_keras
from embexp.tensor_bundle.increments import require_whole
from embexp.tensor_bundle.index import read_index
from embexp.tensor_bundle.rekeying import object_index

NAME = "checkpoint"
"""Prefix of a checkpoint in a folder of its own."""


def index_of(path: Path | str, *, as_objects: bool = True) -> Path:
    """The index of a TensorFlow checkpoint.

    Args:
        path: see `opening.open_checkpoint`; of no other format.
        as_objects: whether the object-based one is taken where a run saved both kinds over the same data files.

    Raises:
        CheckpointError: it is incremental.
        DataError: there is none.
    """
    index = find_index(Path(path))
    require_whole(index)
    return object_index(index.parent) if as_objects and index.name == f"{NAME}.index" else index


def files_of(index: Path) -> tuple[Path, ...]:
    """The files of a checkpoint: its index, and all data files that it names.

    Raises:
        DataError: the index is damaged.
    """
    return (index, *sorted({piece.path for entry in read_index(index).values() for piece in entry.pieces}))


def is_keras_file(path: Path | str) -> bool:
    """Whether this is a `.weights.h5` or `.keras` file, by how it begins."""
    return Path(path).is_file() and starts_as_keras(Path(path))


def prefix_for(path: Path | str) -> Path:
    """The prefix of a checkpoint to write: the path itself, or `checkpoint` in it if it is a folder."""
    path = Path(path)
    return path / NAME if path.is_dir() else path
