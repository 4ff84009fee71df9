"""Keys and rows of any checkpoint, for your own code: `embexp.checkpoints.keys` and `read_rows`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from embexp.checkpoints.contents import KeyInfo
from embexp.checkpoints.opening import open_checkpoint

CHECKED_BYTES = 1 << 24
"""Values of at most so many bytes are always checked: that takes some milliseconds."""


def keys(path: Path | str) -> dict[str, KeyInfo]:
    """What a checkpoint holds, by key; reads no values and imports no TensorFlow.

    Args:
        path: a run's directory, a checkpoint's prefix, folder or `.index` file, a SavedModel, or a `.weights.h5` or
            `.keras` file.

    Returns:
        Keys as they are in the file, the ones that `tf.train.load_checkpoint` takes, each with its shape, dtype, bytes,
        and the variable's global name.

    Raises:
        CheckpointError: it is incremental, and what it is based on is missing or has changed.
        DataError: there is no checkpoint, or its index is damaged.
    """
    return {key: entry.info for key, entry in open_checkpoint(path).entries.items()}


def read_rows(path: Path | str, key: str, start: int, stop: int, *, verify: bool | None = None) -> np.ndarray:
    """Rows of a tensor of a checkpoint, mapped from the file where its format allows it.

    A TensorFlow checkpoint has one checksum for all of a tensor, so rows can't be checked without reading the whole.
    The checksums of the index are always compared, as are shapes and sizes with those of the files.

    Args:
        path: see `keys`.
        key: of the tensor, with or without the `/.ATTRIBUTES/VARIABLE_VALUE` that ends keys of object-based
            checkpoints.
        start: the first row: number of a slice along the first dimension.
        stop: the row behind the last.
        verify: whether to read all of the tensor, a block at a time, and to compare its checksum. None: if it has at
            most 16 MiB, or if all of it is asked for. Strings are always checked; HDF5 files of Keras have no
            checksums.

    Returns:
        [stop - start, …] in the stored type (bfloat16 as that of ml_dtypes, strings as `bytes`), which can't be written
        to. It stays valid as long as the file is not overwritten or cut short.

    Raises:
        CheckpointError: it is incremental, and what it is based on is missing or has changed.
        DataError: there is no such checkpoint, key or row; or a file is missing, cut short or damaged.
    """
    contents = open_checkpoint(path, named=False)
    entry = contents.entry(key)
    rows = entry.values.read(start, stop)
    if verify is None:
        whole = entry.info.bytes <= CHECKED_BYTES or (start, stop) == (0, entry.info.rows)
        verify = whole and contents.checksums
    if verify:
        entry.values.verify()
    found = np.asarray(rows)
    found.flags.writeable = False
    return found
