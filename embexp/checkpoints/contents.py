"""What a checkpoint holds, whoever wrote it: keys, shapes, types, and how to read the values. Without TensorFlow."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import numpy as np

from embexp.errors import DataError
from embexp.tensor_bundle.rekeying import KEY_END


class StoredKind(StrEnum):
    """How a checkpoint says which value belongs to which variable."""

    OBJECT = "object"
    NAME = "name"
    SAVED_MODEL = "savedmodel"
    KERAS = "keras weights"


@dataclass(frozen=True)
class KeyInfo:
    """What is known of a key without reading its values.

    Attributes:
        key: as in the file.
        shape: of the tensor.
        dtype: TensorFlow's name of the type, such as `float32` or `string`.
        bytes: of the values in the file; of an incremental checkpoint, of the rows that are in it.
        variable: global name of the variable, such as `dense/kernel`; None: the file has none.
        group: `tables`, `slots`, `dense`, `optimizer`, `random`, `step`, `object graph`, or how the key begins.
        table: name of the table, for keys of tables and their slots.
        slot: name of the slot, for keys of slots of tables.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    variable: str | None
    group: str
    table: str | None = None
    slot: str | None = None

    @property
    def short(self) -> str:
        """The key without the end that all keys of variables share in an object-based checkpoint."""
        return self.key.removesuffix(KEY_END)

    @property
    def rows(self) -> int:
        """Length of the first dimension; 1 for a scalar."""
        return self.shape[0] if self.shape else 1


class StoredValues(Protocol):
    """The values of a key."""

    @property
    def dtype(self) -> np.dtype | None:
        """NumPy's type; `object` for strings, as `bytes`; None: they can't be read."""
        ...

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop; may be a mapping of the file.

        Raises:
            DataError: there are no such rows, or they can't be read.
        """
        ...

    def value(self) -> np.ndarray:
        """All values.

        Raises:
            DataError: they can't be read.
        """
        ...

    def verify(self) -> None:
        """Reads all values, a block at a time, and compares their checksums where the format has some.

        Raises:
            DataError: a checksum is wrong, or values can't be read.
        """
        ...


@dataclass(frozen=True)
class Stored:
    """A key and its values."""

    info: KeyInfo
    values: StoredValues

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers that NumPy can read."""
        return self.values.dtype is not None and self.values.dtype != np.dtype(object)

    def blocks(self, size: int) -> Iterator[tuple[int, np.ndarray]]:
        """All values as blocks of rows, each with the number of its first row; a scalar is one row.

        Args:
            size: bytes of a block, at most, unless a row has more.

        Raises:
            DataError: they can't be read.
        """
        if not self.info.shape:
            yield 0, self.values.value().reshape(1)
            return
        width = 1 if self.values.dtype is None else self.values.dtype.itemsize
        step = max(1, size // max(1, math.prod(self.info.shape[1:]) * width))
        for start in range(0, self.info.rows, step):
            yield start, self.values.read(start, min(self.info.rows, start + step))


@dataclass(frozen=True)
class Contents:
    """What a checkpoint holds.

    Attributes:
        path: as asked for.
        source: prefix of the checkpoint that was found there, or the file.
        kind: of the checkpoint.
        entries: by key, in the order in which they are listed.
        base: folder of the checkpoint that an incremental one is based on; its tables are listed whole. None: it is
            whole.
        checksums: whether the format has checksums.
        faults: what is wrong with the files as a whole, a sentence each; keys can be listed all the same.
        files: the index of a TensorFlow checkpoint, and the data files of it and of those that it is based on.
    """

    path: Path
    source: Path
    kind: StoredKind
    entries: Mapping[str, Stored]
    base: Path | None = None
    checksums: bool = True
    faults: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()

    @property
    def bytes(self) -> int:
        """Of all values."""
        return sum(entry.info.bytes for entry in self.entries.values())

    def entry(self, key: str) -> Stored:
        """A key, with or without the end that keys of variables share in an object-based checkpoint.

        Raises:
            DataError: there is no such key.
        """
        for each in (key, f"{key}{KEY_END}"):
            if each in self.entries:
                return self.entries[each]
        known = [entry.info.short for entry in self.entries.values()]
        near = difflib.get_close_matches(key, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"its {len(known)} keys begin with {known[:3]}"
        raise DataError(f"{self.source}: found no key {key!r}; {hint}")
