"""Vectors in TensorFlow checkpoints, name-based or object-based, read without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from embexp.errors import DataError
from embexp.system.tensor_bundle import increments
from embexp.system.tensor_bundle import index as bundle_index
from embexp.system.tensor_bundle.index import Entry, data_files, prefix_of, read_index
from embexp.system.tensor_bundle.tensor import Tensor, number_type, type_name
from embexp.system.tensor_bundle.writer import KEY_END
from embexp.vectors.stored import FLOATS, ROW_TYPES, Place, Stored, Wanted, checked_shape, only_key


def read_checkpoint(path: Path, wanted: Wanted) -> Stored:
    """One tensor of a checkpoint, by its prefix, its `.index` file or its folder.

    Raises:
        DataError: there is none, it can't be read, or doesn't hold the one matrix.
    """
    index = bundle_index.find(path)
    if index is None:
        raise DataError(f"{path}: found no checkpoint: neither {path.name}.index nor a folder that holds one")
    return read(index, wanted.key)


def read(index: Path, key: str | None) -> Stored:
    """One tensor of a checkpoint; see `stored_tensor`.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    if not index.is_file():
        raise DataError(f"{index}: found no such file, expected the index of a checkpoint")
    return stored_tensor(index, tensors(index), key)


def tensors(index: Path) -> dict[str, Entry]:
    """All tensors of a checkpoint, by their keys without the end that all keys of an object-based one share.

    Raises:
        DataError: its index can't be read, or it is incremental, so that it has some rows of its matrices only.
    """
    if (base := increments.link(prefix_of(index)).base) is not None:
        raise DataError(
            f"{index.parent}: found an incremental checkpoint, with the rows that changed since {base.parent.name},"
            " expected a whole one, as runs write at their end"
        )
    return {key.removesuffix(KEY_END): entry for key, entry in read_index(index).items()}


def stored_tensor(index: Path, tensors: Mapping[str, Entry], key: str | None) -> Stored:
    """One tensor of a checkpoint whose index has been read, mapped. Its checksum is compared by `Stored.check`.

    Args:
        index: the `.index` file.
        tensors: what it holds, see `tensors`.
        key: of the tensor, with or without the end that all keys of an object-based one share; None: the only matrix.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    shapes = {each: entry.shape for each, entry in tensors.items()}
    key = only_key(index, shapes, None if key is None else key.removesuffix(KEY_END), "tensor")
    entry, name = tensors[key], f"{index}: {key}"
    dtype = number_type(entry.kind)
    if dtype not in FLOATS:
        expected = "float16, bfloat16, float32 or float64"
        raise DataError(f"{name}: found a tensor of {type_name(entry.kind)}, expected {expected}")
    rows, dim = checked_shape(name, entry.shape, dtype)
    tensor = Tensor(name, key, entry)
    tensor.check_place()
    whole = len(entry.pieces) == 1 and dtype in ROW_TYPES.values()
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=dtype,
        read=tensor.read,
        files=[index, *data_files([entry])],
        place=Place(entry.pieces[0].path, entry.pieces[0].offset) if whole else None,
        check=tensor.verify,
    )
