"""HDF5 files, read in a process of their own: see `hdf5_worker` for why."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embexp.system.processes import Isolated, IsolatedError

_PROCESS = Isolated("embexp.system.hdf5_worker")
_BLOCK_BYTES = 1 << 24
_SECONDS, _BYTES_PER_SECOND = 1.0, 2e7
"""Processor time that an answer may take: a second, and one more for so many bytes of the file and of the answer."""


@dataclass(frozen=True)
class File:
    """An HDF5 file.

    Attributes:
        section: offset and size of the part that is the file; None: all of it.
    """

    path: Path
    section: tuple[int, int] | None = None


@dataclass(frozen=True)
class Dataset:
    """A dataset, as its file describes it. Datasets that only links lead to are not listed.

    Attributes:
        name: path of the dataset in the file.
        shape: of the dataset; None: it has none, or it is virtual.
        dtype: NumPy's type of its values, written as `np.dtype` takes it.
        type_name: the name of that type.
        strings: `any` or `fixed` where its values are strings, by their length; "" where they are not.
        offset: in bytes, where its values begin if they are in one piece; None: they are not.
        stored: bytes that it takes in the file.
        elsewhere: why its values are not in the file; "" where they are.
        note: what Keras notes as its type; None: nothing.
        layer: what Keras notes as the name of its layer; None: nothing.
    """

    name: str
    shape: tuple[int, ...] | None
    dtype: str
    type_name: str
    strings: str
    offset: int | None
    stored: int
    elsewhere: str
    note: str | None
    layer: str | None

    @property
    def row_bytes(self) -> int:
        """Of each row, at least 1."""
        return max(1, math.prod((self.shape or ())[1:]) * np.dtype(self.dtype).itemsize)


def datasets(file: File) -> dict[str, Dataset]:
    """All datasets of a file, by name.

    Raises:
        IsolatedError: it is no HDF5 file, or it is damaged.
    """
    listed, _ = _PROCESS.ask(_question(file), seconds=_seconds(file.path.stat().st_size))
    found = [Dataset(**each | {"shape": None if each["shape"] is None else tuple(each["shape"])}) for each in listed]
    return {dataset.name: dataset for dataset in found}


def read(file: File, dataset: Dataset, start: int, stop: int) -> np.ndarray:
    """Rows start to stop, in memory of their own; strings as an array of `bytes`.

    Raises:
        IsolatedError: they can't be read, or are not in the file.
    """
    step = max(1, _BLOCK_BYTES // dataset.row_bytes)
    parts = [_part(file, dataset, [at, min(stop, at + step)]) for at in range(start, stop, step)]
    if not parts:
        return np.empty((0, *(dataset.shape or ())[1:]), object if dataset.strings else np.dtype(dataset.dtype))
    return np.concatenate(parts) if len(parts) > 1 else parts[0]


def value(file: File, dataset: Dataset) -> np.ndarray:
    """All values; of a scalar, an array without dimensions.

    Raises:
        IsolatedError: they can't be read, or are not in the file.
    """
    if dataset.shape and dataset.shape[0]:
        return read(file, dataset, 0, dataset.shape[0])
    return _part(file, dataset, None)


def _part(file: File, dataset: Dataset, rows: list[int] | None) -> np.ndarray:
    size = file.path.stat().st_size + (1 if rows is None else rows[1] - rows[0]) * dataset.row_bytes
    question = _question(file) | {"key": dataset.name, "rows": rows}
    found, data = _PROCESS.ask(question, seconds=_seconds(size))
    shape = tuple(found["shape"])
    if "lengths" not in found:
        return np.frombuffer(bytearray(data), np.dtype(found["dtype"])).reshape(shape)
    if sum(found["lengths"]) != len(data):
        raise IsolatedError("its strings can't be read")
    texts, at = np.empty(len(found["lengths"]), object), 0
    for number, length in enumerate(found["lengths"]):
        texts[number] = data[at : at + length]
        at += length
    return texts.reshape(shape)


def _question(file: File) -> dict[str, object]:
    return {"path": str(file.path.absolute()), "section": file.section}


def _seconds(size: int) -> float:
    return _SECONDS + size / _BYTES_PER_SECOND
