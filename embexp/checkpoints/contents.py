"""What a checkpoint holds, TensorFlow's or Keras', whoever wrote it: keys, rows, parts of a model. No TensorFlow.

Contents of Keras' `.weights.h5` and `.keras` files, and of other HDF5 files.
"""

from __future__ import annotations

import contextlib
import difflib
import math
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol

import ml_dtypes
import numpy as np

from embexp.checkpoints import store
from embexp.checkpoints.store import CHECKPOINT_NAME
from embexp.errors import DataError, read_by_library
from embexp.system import files, hdf5
from embexp.system.hdf5 import File
from embexp.system.tensor_bundle import increments
from embexp.system.tensor_bundle.increments import Values
from embexp.system.tensor_bundle.index import Entry, data_files, prefix_of, unescaped
from embexp.system.tensor_bundle.stacked import StackedMatrix
from embexp.system.tensor_bundle.tensor import Tensor, bytes_of, type_name
from embexp.system.tensor_bundle.writer import KEY_END, OBJECT_GRAPH, object_index

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
WEIGHTS_OF_OPTIMIZER = "optimizer/_trainable_variables/"
"""A Keras optimizer refers to the model's weights; it is the shortest way to them, so they have such keys."""
_SLOT_OF_KERAS_2 = "/.OPTIMIZER_SLOT/"
_STEPS_OF_KERAS = "/iteration"
_TABLES = "embedding/"
"""Where `TPUEmbedding` is in a checkpoint of embexp, and in TensorFlow's own examples."""
CHECKED_BYTES = 1 << 24
"""Values of at most so many bytes are always checked: that takes some milliseconds."""


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
        bytes: size of the values in the file; in an incremental checkpoint, of the rows in it.
        variable: global name of the variable, such as `dense/kernel`; None: the file has none.
        group: `tables`, `slots`, `dense`, `optimizer`, `random`, `step`, `object graph`, or the beginning of the key.
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
        """The key without the suffix that all keys of variables share in an object-based checkpoint."""
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

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop; may be a mapping of the file.

        Raises:
            DataError: there are no such rows, or they can't be read.
        """

    def value(self) -> np.ndarray:
        """All values.

        Raises:
            DataError: they can't be read.
        """

    def verify(self) -> None:
        """Reads all values, a block at a time, and compares their checksums where the format has some.

        Raises:
            DataError: a checksum is wrong, or values can't be read.
        """


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
            found[key] = Group(SLOTS, unescaped(owner[0].rpartition("/")[2]), owner[1])
        elif name in tables or _is_table(name):
            found[key] = Group(TABLES, unescaped(name.rpartition("/")[2]))
        elif name == OBJECT_GRAPH:
            found[key] = Group(GRAPH)
        elif _SLOT_OF_KERAS_2 in name:
            found[key] = Group(OPTIMIZER)
        elif name.startswith(WEIGHTS_OF_OPTIMIZER):
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
    return (owner, unescaped(slot)) if table and owner in known else None


def open_checkpoint(path: Path | str, *, as_objects: bool = False, named: bool = True) -> Contents:
    """What a checkpoint holds; no values are read.

    Args:
        path: a run's directory (its final checkpoint, else the newest); a folder with checkpoints (the one that
            TensorFlow's file `checkpoint` names, else the newest); the prefix of a checkpoint, or one of its files; a
            SavedModel's directory; or a `.weights.h5`, `.keras` or other HDF5 file.
        as_objects: whether the object-based one is opened where a run saved both kinds over the same data files.
        named: whether names of variables are read, which takes some 100 ms for object-based checkpoints.

    Raises:
        CheckpointError: it is incremental, and the checkpoint it is based on is missing or has changed.
        DataError: there is no checkpoint, or its index is damaged.
    """
    path = Path(path)
    if store.is_keras_file(path):
        return contents(path, zipped=store.first_bytes(path).startswith(store.ZIP))
    index = store.find(path)
    if as_objects and index.name == f"{CHECKPOINT_NAME}.index":
        index = object_index(index.parent)
    return _contents_of_bundle(path, index, named=named)


def _contents_of_bundle(path: Path, index: Path, *, named: bool) -> Contents:
    if not index.is_file():
        raise DataError(f"{index}: found no such file, expected the index of a checkpoint")
    links = increments.chain(prefix_of(index))
    faults = [fault for link in links for fault in _faults(link.entries)]
    names: Mapping[str, str] = {}
    object_based = OBJECT_GRAPH in links[0].entries
    if object_based and named and not faults:
        from embexp.checkpoints import object_graph

        try:
            graph = object_graph.read(index)
            names = {
                attribute.checkpoint_key: attribute.full_name
                for node in graph.nodes
                for attribute in node.attributes
                if attribute.full_name
            }
        except DataError as error:
            faults.append(str(error))
    try:
        tensors = increments.tensors(links)
    except DataError as error:
        if not faults or links[0].base is not None:
            raise
        faults.append(str(error))  # the record of a stack's tables is in a file that lacks something
        tensors = {key: links[0].tensor(key) for key in links[0].entries}
    places = groups_of_objects(tensors) if object_based else groups_of_names(tensors)
    sizes = _sizes(tensors)
    listed = [
        Stored(
            KeyInfo(
                key=key,
                shape=values.entry.shape,
                dtype=type_name(values.entry.kind),
                bytes=sizes[key],
                variable=names.get(key) if object_based else key,
                group=places[key].name,
                table=places[key].table,
                slot=places[key].slot,
            ),
            values,
        )
        for key, values in tensors.items()
    ]
    listed.sort(key=lambda each: groups_in_order(each.info.group, each.info.short))
    kind = StoredKind.OBJECT if object_based else StoredKind.NAME
    if index.parent.name == "variables" and store.is_saved_model(index.parent.parent):
        kind = StoredKind.SAVED_MODEL
    return Contents(
        path,
        prefix_of(index),
        kind,
        {each.info.key: each for each in listed},
        base=None if links[0].base is None else links[0].base.parent,
        faults=tuple(faults),
        files=(index, *data_files(entry for link in links for entry in link.entries.values())),
    )


def _sizes(tensors: Mapping[str, Values]) -> dict[str, int]:
    """Bytes that each key has in the checkpoint itself; a table and its slots share the numbers of changed rows."""
    found: dict[str, int] = {}
    counted: set[str] = set()
    for key, values in tensors.items():
        if isinstance(values, StackedMatrix):
            found[key] = bytes_of(values.entry)
            continue
        parts = [values] if isinstance(values, Tensor) else list(values.changes[-1])
        found[key] = sum(piece.size for part in parts if part.key not in counted for piece in part.entry.pieces)
        if len(parts) > 1:
            counted.add(parts[0].key)
    return found


def _faults(entries: Mapping[str, Entry]) -> list[str]:
    """Data files that are missing or cut short, a sentence for each."""
    needed: dict[Path, list[tuple[int, str]]] = {}
    for key, entry in entries.items():
        for piece in entry.pieces:
            needed.setdefault(piece.path, []).append((piece.offset + piece.size, key))
    found = []
    for path, ends in sorted(needed.items()):
        if not path.is_file():
            found.append(f"{path}: found no such file, but the index needs it for {len(ends)} of {len(entries)} keys")
            continue
        size, end = path.stat().st_size, max(ends)[0]
        if size < end:
            lost = len({key for until, key in ends if until > size})
            found.append(
                f"{path}: found {size:,} bytes, expected {end:,}: the file is cut short, {lost} of {len(entries)} keys"
                " are not in it whole"
            )
    return found


def keys(path: Path | str) -> dict[str, KeyInfo]:
    """What a checkpoint holds, by key; reads no values and imports no TensorFlow.

    Args:
        path: a run's directory, a checkpoint's prefix, folder or `.index` file, a SavedModel, or a `.weights.h5` or
            `.keras` file.

    Returns:
        Keys as in the file, which `tf.train.load_checkpoint` accepts, each with its shape, dtype, bytes, and the
        variable's global name.

    Raises:
        CheckpointError: it is incremental, and the checkpoint it is based on is missing or has changed.
        DataError: there is no checkpoint, or its index is damaged.
    """
    return {key: entry.info for key, entry in open_checkpoint(path).entries.items()}


def read_rows(path: Path | str, key: str, start: int, stop: int, *, verify: bool | None = None) -> np.ndarray:
    """Rows of a tensor of a checkpoint, mapped from the file if its format allows it.

    A TensorFlow checkpoint has one checksum per tensor, so rows can't be checked without reading the whole tensor. The
    checksums of the index are always checked, and shapes and sizes are compared with those of the files.

    Args:
        path: see `keys`.
        key: key of the tensor, with or without the suffix `/.ATTRIBUTES/VARIABLE_VALUE` of object-based checkpoints.
        start: the first row, an index along the first dimension.
        stop: the row after the last.
        verify: whether to read the whole tensor, a block at a time, and compare its checksum. None: only if it has at
            most 16 MiB or all of it is requested. Strings are always checked; HDF5 files of Keras have no checksums.

    Returns:
        A read-only array [stop - start, …] in the stored type (bfloat16 from ml_dtypes, strings as `bytes`). It stays
        valid as long as the file is not overwritten or truncated.

    Raises:
        CheckpointError: it is incremental, and the checkpoint it is based on is missing or has changed.
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


class TensorRows:
    """A matrix of a checkpoint as the values of a variable, for `embexp.initialization`: read by ranges, or mapped.

    Attributes:
        dtype: as stored; rows are read as float32.
    """

    rows: int
    dim: int
    dtype: np.dtype

    def __init__(self, source: Path, entry: Stored) -> None:
        """Reads nothing yet.

        Raises:
            DataError: it is no matrix of floating-point numbers.
        """
        self._name, self._values, self._verified = f"{source}: {entry.info.short}", entry.values, False
        dtype = entry.values.dtype
        is_float = dtype is not None and (dtype.kind == "f" or dtype.name == "bfloat16")
        if not is_float or len(entry.info.shape) != 2 or 0 in entry.info.shape:
            found = f"{entry.info.dtype} {list(entry.info.shape)}"
            raise DataError(f"{self._name}: found {found}, expected floating-point numbers of shape [rows, dim]")
        assert dtype is not None
        (self.rows, self.dim), self.dtype = entry.info.shape, dtype

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, float32 [stop - start, dim].

        Raises:
            DataError: there are no such rows, or the file is damaged or cut short.
        """
        self._verify()
        return np.ascontiguousarray(self._values.read(start, stop), np.float32)

    def memory_map(self) -> np.ndarray | None:
        """All rows, float32 [rows, dim], mapped from the data file; None if the file does not hold them in this form.

        Writing to it changes nothing on disk. It may begin anywhere in the file.

        Raises:
            DataError: the file is damaged or cut short.
        """
        self._verify()
        if not isinstance(self._values, Tensor) or self.dtype != np.float32 or len(self._values.entry.pieces) != 1:
            return None
        (piece,) = self._values.entry.pieces
        return np.asarray(np.memmap(piece.path, np.float32, "c", piece.offset, (self.rows, self.dim)))

    def _verify(self) -> None:
        if not self._verified:
            self._values.verify()
            self._verified = True


def tensor(path: Path | str, name: str) -> TensorRows:
    """A matrix of a checkpoint as the source of a variable in your own program, without a second copy in memory.

    `embexp.initialization.scaffold({variable: tensor(path, name)})`, and likewise the other init methods.

    Args:
        path: see `keys`.
        name: its key, with or without the suffix that keys of variables share in an object-based checkpoint; or the
            global name of its variable.

    Raises:
        CheckpointError: it is incremental, and the checkpoint it is based on is missing or has changed.
        DataError: there is no such checkpoint or matrix, or several variables have that name.
    """
    contents = open_checkpoint(path)
    named = [] if {name, f"{name}{KEY_END}"} & contents.entries.keys() else _named(contents, name)
    if len(named) > 1:
        raise DataError(
            f"{contents.source}: {name} is the name of several variables; give one of the keys {', '.join(named)}"
        )
    return TensorRows(contents.source, contents.entry(named[0] if named else name))


def _named(contents: Contents, name: str) -> list[str]:
    return [key for key, entry in contents.entries.items() if entry.info.variable == name]


_CHUNK_BYTES = 1 << 24
_LARGEST_PACKED, _MOST_PACKED = 1 << 30, 1_100
"""Bytes that a compressed file of weights may have, and bytes that one of them can become: deflate reaches 1,032."""
_ENCRYPTED = 1
_MOST_STRINGS = 64
_LOCAL_HEADER = 30
"""Bytes of a zip's header of a file, before the file's name: section 4.3.7 of PKWARE's APPNOTE."""


@dataclass(frozen=True)
class Dataset:
    """A dataset of an HDF5 file.

    Attributes:
        member: of the zip that the file is; None: it is HDF5 itself.
        dtype: NumPy's; `object` for strings; None: it can't be read.
    """

    path: Path
    member: str | None
    key: str
    shape: tuple[int, ...]
    dtype: np.dtype | None
    stored: hdf5.Dataset

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, in memory of their own.

        Raises:
            DataError: there are no such rows, or they can't be read.
        """
        if not self.shape and self.dtype is not None:
            raise DataError(f"{self.path}: {self.key}: it is a scalar, so it has no rows")
        if self.shape and not 0 <= start <= stop <= self.shape[0]:
            raise DataError(
                f"{self.path}: {self.key}: there are no rows {start:,} to {stop:,}, it has {self.shape[0]:,}"
            )
        return self._read((start, stop))

    def value(self) -> np.ndarray:
        """All values.

        Raises:
            DataError: they can't be read.
        """
        return self._read(None)

    def verify(self) -> None:
        """Reads all values; HDF5 has no checksums unless the writer asked for some, and Keras does not.

        Raises:
            DataError: they can't be read.
        """
        if not self.shape:
            self.value()
            return
        row = max(1, int(np.prod(self.shape[1:], dtype=np.int64)) * 8)
        step = max(1, _CHUNK_BYTES // row)
        for start in range(0, self.shape[0], step):
            self.read(start, min(self.shape[0], start + step))

    def _read(self, rows: tuple[int, int] | None) -> np.ndarray:
        if self.dtype is None:
            raise DataError(f"{self.path}: {self.key}: NumPy has no type for its values, or they are in other files")
        where = f"{self.path}: {self.key}: it can't be read"
        with read_by_library(where), _opened(self.path, self.member) as file:
            values = hdf5.value(file, self.stored) if rows is None else hdf5.read(file, self.stored, *rows)
            expected = self.shape if rows is None else (rows[1] - rows[0], *self.shape[1:])
            if values.shape != expected:
                raise ValueError(f"found values of {list(values.shape)}, expected {list(expected)}")
            if values.dtype.kind == "V":
                return values.view(self.dtype)
            return values.astype(self.dtype, copy=False)  # in this machine's byte order


def contents(path: Path, *, zipped: bool) -> Contents:
    """Lists a file.

    Args:
        zipped: whether it is a zip with an HDF5 file in it, as `.keras` is, or an HDF5 file.

    Raises:
        DataError: it is neither, or it is damaged.
    """
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    member = _member(path) if zipped else None
    where = path if member is None else f"{path}: {member}"
    with read_by_library(f"{where}: found no whole HDF5 file"), _opened(path, member) as file:
        found = hdf5.datasets(file)
    if not found:
        raise DataError(f"{path}: found an HDF5 file without datasets, expected weights")
    keys = sorted(found, key=lambda key: groups_in_order(_group(key), key))
    listed = {key: _listed(path, member, found[key]) for key in keys}
    return Contents(path, path if member is None else path / member, StoredKind.KERAS, listed, checksums=False)


def _listed(path: Path, member: str | None, dataset: hdf5.Dataset) -> Stored:
    dtype, name = _type(dataset)
    shape = dataset.shape or ()
    size = dataset.stored if name == "string" else math.prod(shape) * np.dtype(dataset.dtype).itemsize
    variable = None if dataset.layer is None else f"{dataset.layer}/{dataset.name.rpartition('/')[2]}"
    info = KeyInfo(key=dataset.name, shape=shape, dtype=name, bytes=size, variable=variable, group=_group(dataset.name))
    return Stored(info, Dataset(path, member, dataset.name, shape, dtype, dataset))


@contextlib.contextmanager
def _opened(path: Path, member: str | None) -> Iterator[File]:
    """An HDF5 file, or one that is a member of a zip: where it is while the block runs."""
    if member is None:
        yield File(path)
        return
    with files.opened(path) as opened, zipfile.ZipFile(opened) as archive:
        info = archive.getinfo(member)
        if info.flag_bits & _ENCRYPTED:
            raise ValueError("it is encrypted")
        if info.compress_type != zipfile.ZIP_STORED:
            with tempfile.NamedTemporaryFile(prefix="embexp-", suffix=".h5") as unpacked:
                if info.file_size > min(_LARGEST_PACKED, _MOST_PACKED * path.stat().st_size):
                    raise ValueError(
                        f"it is compressed, and has {info.file_size:,} bytes; Keras does not compress it: "
                        f"unpack the file and zip it again with `zip -0`"
                    )
                with archive.open(info) as packed:
                    shutil.copyfileobj(packed, unpacked, _CHUNK_BYTES)
                unpacked.flush()
                yield File(Path(unpacked.name))
            return
        opened.seek(info.header_offset)
        header = opened.read(_LOCAL_HEADER)
    name, extra = int.from_bytes(header[26:28], "little"), int.from_bytes(header[28:30], "little")
    start = info.header_offset + _LOCAL_HEADER + name + extra
    if start + info.file_size > path.stat().st_size:
        raise ValueError("the file is cut short")
    yield File(path, (start, info.file_size))


def _member(path: Path) -> str:
    with read_by_library(f"{path}: found no complete zip file"), zipfile.ZipFile(path) as archive:
        found = [name for name in archive.namelist() if name.endswith(".weights.h5")]
    if len(found) != 1:
        raise DataError(f"{path}: found {len(found)} files *.weights.h5 in the zip, expected one, as a .keras file has")
    return found[0]


def _type(dataset: hdf5.Dataset) -> tuple[np.dtype | None, str]:
    """NumPy's type of a dataset's values, None where they can't be read, and its name."""
    dtype = np.dtype(dataset.dtype)
    if dataset.strings:
        # Strings of any length may all be one and the same place in the file, so only few are read.
        few = dataset.strings == "fixed" or math.prod(dataset.shape or ()) <= _MOST_STRINGS
        return (np.dtype(object) if few and not dataset.elsewhere else None), "string"
    if dataset.note == "bfloat16" and dtype.itemsize == 2:  # HDF5 has no such type, so Keras stores two bytes
        name, found = "bfloat16", np.dtype(ml_dtypes.bfloat16)
    else:
        name, found = dataset.type_name, dtype.newbyteorder("=")
    known = dataset.shape is not None and not dataset.elsewhere and (dtype.kind in "biufc" or name == "bfloat16")
    return (found if known else None), name


def _group(key: str) -> str:
    name = group_of_name(key).name
    # Keras keeps an object's variables in a group `vars`: those of layers, and of the optimizer.
    return DENSE if "vars" in key.split("/") and name != OPTIMIZER else name
