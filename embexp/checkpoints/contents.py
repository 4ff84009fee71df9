"""What a checkpoint holds, whoever wrote it: keys, values, parts of a model, and figures of values. No TensorFlow."""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from embexp.errors import DataError
from embexp.tensor_bundle.rekeying import KEY_END, OBJECT_GRAPH

TABLES, SLOTS, DENSE, OPTIMIZER, RANDOM, STEP = "tables", "slots", "dense", "optimizer", "random", "step"
GRAPH = "object graph"
_ORDER = (TABLES, SLOTS, DENSE, OPTIMIZER, RANDOM, STEP)
_BY_START = {
    "model": DENSE,
    "optimizer": OPTIMIZER,
    "random": RANDOM,
    "step": STEP,
    "save_counter": STEP,
    "global_step": STEP,
}
_WEIGHTS_OF_OPTIMIZER = "optimizer/_trainable_variables/"
"""A Keras optimizer refers to the model's weights; it is the shortest way to them, so they have such keys."""
_SLOT_OF_KERAS_2 = "/.OPTIMIZER_SLOT/"
_STEPS_OF_KERAS = "/iteration"
_TABLES = "embedding/"
"""Where `TPUEmbedding` is in a checkpoint of embexp, and in TensorFlow's own examples."""
_BLOCK_BYTES = 1 << 23
FEW = 6
"""So many values are shown themselves."""


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
        source: prefix of the checkpoint that was found there, or the file.
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


class Group(NamedTuple):
    """The part that a key belongs to.

    Attributes:
        table: name of the table, for tables and their slots.
    """

    name: str
    table: str | None = None
    slot: str | None = None


def groups_in_order(group: str, key: str) -> tuple[object, ...]:
    """What keys are sorted by: the known groups first, the object graph last; numbers in keys as numbers."""
    place = _ORDER.index(group) if group in _ORDER else len(_ORDER) + (group == GRAPH)
    # Text and numbers alternate, so the same places hold the same types.
    parts = enumerate(re.split(r"([0-9]+)", key))
    # Digits as their number, but not by `int`, which takes none of thousands.
    return place, group, [(len(part.lstrip("0")), part.lstrip("0")) if number % 2 else part for number, part in parts]


def groups_of_objects(keys: Iterable[str]) -> dict[str, Group]:
    """Groups of the keys of an object-based checkpoint.

    `TPUEmbedding` keeps a table as a child of that name, and a slot as a child `table/slot`. In keys, names of edges
    have `.S` for "/" and `..` for "." (`_escape_local_name` in tensorflow/python/checkpoint/trackable_view.py).
    """
    short = {key: key.removesuffix(KEY_END) for key in keys}
    known = set(short.values())
    owners = {key: _owner(name, known) for key, name in short.items()}
    tables = {owner for owner, _ in filter(None, owners.values())}
    found: dict[str, Group] = {}
    for key, name in short.items():
        if (owner := owners[key]) is not None:
            found[key] = Group(SLOTS, _plain(owner[0].rpartition("/")[2]), owner[1])
        elif name in tables or _is_table(name):
            found[key] = Group(TABLES, _plain(name.rpartition("/")[2]))
        elif name == OBJECT_GRAPH:
            found[key] = Group(GRAPH)
        elif _SLOT_OF_KERAS_2 in name:
            found[key] = Group(OPTIMIZER)
        elif name.startswith(_WEIGHTS_OF_OPTIMIZER):
            found[key] = Group(DENSE)
        else:
            found[key] = group_of_name(name)
    return found


def groups_of_names(keys: Iterable[str]) -> dict[str, Group]:
    """Groups of the keys of a name-based checkpoint.

    An optimizer of TensorFlow 1 calls its slot of a variable `variable/Adam`; one of Keras has `adam/iteration`. embexp
    calls a table `embedding/table`; where there are tables, what remains is the dense part.
    """
    known = set(keys)
    tables = {key for key in known if _is_table(key)}
    optimizers = {key.removesuffix(_STEPS_OF_KERAS) for key in known if key.endswith(_STEPS_OF_KERAS)}
    found: dict[str, Group] = {}
    for key in known:
        start, (variable, _, slot) = key.partition("/")[0], key.rpartition("/")
        if key in tables:
            found[key] = Group(TABLES, key.removeprefix(_TABLES))
        elif variable in tables:
            found[key] = Group(SLOTS, variable.removeprefix(_TABLES), slot)
        elif variable in known or start in optimizers:
            found[key] = Group(OPTIMIZER)
        else:
            found[key] = Group(DENSE) if tables and start not in _BY_START else group_of_name(key)
    return found


def group_of_name(key: str) -> Group:
    """Group of a key by how it begins, as far as its first "/"."""
    start = key.partition("/")[0]
    return Group(_BY_START.get(start, start))


def _is_table(key: str) -> bool:
    return key.startswith(_TABLES) and key.count("/") == 1


def _owner(key: str, known: set[str]) -> tuple[str, str] | None:
    """The key of the table that a key is a slot of, and the slot; None: it is no slot."""
    path, _, edge = key.rpartition("/")
    table, _, slot = edge.rpartition(".S")
    owner = f"{path}/{table}" if path else table
    return (owner, _plain(slot)) if table and owner in known else None


def _plain(edge: str) -> str:
    """The name of an edge without escapes."""
    return re.sub(r"\.(.)", lambda found: "/" if found[1] == "S" else found[1], edge)


@dataclass(frozen=True)
class Statistics:
    """Figures of values.

    Attributes:
        minimum: of the finite ones; None where there are none, or they are complex.
        mean: of the finite ones; None where there are none.
        norm: L2 norm of the finite ones; None where they are no numbers.
        not_finite: how many are NaN or infinite.
        values: the values themselves where they are few, as Python's; strings that are no text as their `repr`.
    """

    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    norm: float | None = None
    not_finite: int = 0
    values: tuple[object, ...] | None = None


def statistics(entry: Stored) -> Statistics:
    """Reads all values of a key.

    Raises:
        DataError: they can't be read.
    """
    if entry.values.dtype is None:
        return Statistics()
    count = math.prod(entry.info.shape)
    values = tuple(map(_decoded, entry.values.value().reshape(-1).tolist())) if count <= FEW else None
    if not entry.numeric:
        return Statistics(values=values)
    low, high, total, squares, finite_ones = math.inf, -math.inf, 0.0, 0.0, 0
    ordered = entry.values.dtype.kind != "c"
    for _, block in entry.blocks(_BLOCK_BYTES):
        numbers = block.reshape(-1)
        # Types of ml_dtypes lack most operations; complex numbers are only measured.
        with np.errstate(invalid="ignore", over="ignore"):
            numbers = numbers.astype(np.float64) if ordered else np.abs(numbers.astype(np.complex128))
        finite = numbers[np.isfinite(numbers)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            total += float(finite.sum())
            squares += float(finite @ finite)
            finite_ones += finite.size
    some = finite_ones > 0 and ordered
    return Statistics(
        minimum=low if some else None,
        maximum=high if some else None,
        mean=total / finite_ones if some else None,
        norm=math.sqrt(squares),
        not_finite=count - finite_ones,
        values=values,
    )


def _decoded(value: object) -> object:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return repr(value)
    return value if isinstance(value, bool | int | float) else str(value)
