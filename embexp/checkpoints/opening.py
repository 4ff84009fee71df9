"""Opens the checkpoint that a path stands for, TensorFlow's or Keras': its contents, keys and rows. No TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from embexp.checkpoints import contents
from embexp.checkpoints.contents import Contents, KeyInfo, Stored, StoredKind
from embexp.errors import DataError
from embexp.system import files
from embexp.tensor_bundle import first_format, increments, location, tensor
from embexp.tensor_bundle.increments import ChangedMatrix, Link
from embexp.tensor_bundle.index import Entry
from embexp.tensor_bundle.rekeying import OBJECT_GRAPH, object_index
from embexp.tensor_bundle.tensor import Tensor

EXPECTED = (
    "a run's directory, a checkpoint's prefix, folder or .index file, a SavedModel, or a .weights.h5 or .keras file"
)
_OF_RUN = "checkpoint.index"
_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_STEP = re.compile(r"step_(\d+)$")
_HDF5, _ZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
CHECKED_BYTES = 1 << 24
"""Values of at most so many bytes are always checked: that takes some milliseconds."""


def open_checkpoint(path: Path | str, *, as_objects: bool = False, named: bool = True) -> Contents:
    """What a checkpoint holds; no values are read.

    Args:
        path: a run's directory (its final checkpoint, else the newest); a folder with checkpoints (the one that
            TensorFlow's file `checkpoint` names, else the newest); the prefix of a checkpoint, or one of its files; a
            SavedModel's directory; or a `.weights.h5`, `.keras` or other HDF5 file. A checkpoint of TensorFlow's first
            format (V1) is converted into the cache.
        as_objects: whether the object-based one is opened where a run saved both kinds over the same data files.
        named: whether names of variables are read, which takes some 100 ms for object-based checkpoints.

    Raises:
        CheckpointError: it is incremental, and what it is based on is missing or has changed.
        DataError: there is no checkpoint, or its index is damaged.
    """
    path = Path(path)
    if path.is_file() and starts_as_keras(path):
        from embexp.checkpoints import keras_weights

        return keras_weights.contents(path, zipped=_start(path).startswith(_ZIP))
    found = find(path)
    index = found if found.suffix == ".index" else first_format.index_of(found)
    if as_objects and index.name == _OF_RUN:
        index = object_index(index.parent)
    saved_model = index.parent.name == "variables" and _is_saved_model(index.parent.parent)
    contents = contents_of_bundle(path, index, saved_model=saved_model, named=named)
    return contents if found.suffix == ".index" else replace(contents, source=found)


def starts_as_keras(path: Path) -> bool:
    """Whether a file begins as HDF5 or as a zip, as Keras' files of weights do."""
    return _start(path).startswith((_HDF5, _ZIP))


def _start(path: Path) -> bytes:
    with files.opened(path) as file:
        return file.read(8)


def find_index(path: Path) -> Path:
    """The `.index` file of the TensorFlow checkpoint that a path stands for, see `open_checkpoint`.

    Raises:
        DataError: there is none; or one of the first format (V1), which is converted, is damaged.
    """
    found = find(path)
    return found if found.suffix == ".index" else first_format.index_of(found)


def find(path: Path) -> Path:
    """As `find_index`; of a checkpoint of the first format (V1) its own path, as it is not converted.

    Raises:
        DataError: there is none.
    """
    prefix = _ENDING.sub("", path.name)
    beside = path.parent / f"{prefix}.index"
    if not beside.is_file() and first_format.is_first_format(path.parent / prefix):
        return path.parent / prefix
    if beside.is_file() or prefix != path.name:
        return beside
    if not path.is_dir():
        if fault := files.fault_of(path):
            raise DataError(f"{path}: {fault.replace('no such file', 'no such file or folder')}; give {EXPECTED}")
        raise DataError(f"{path}: it is no file of weights; give {EXPECTED}")
    if _is_saved_model(path):
        variables = path / "variables" / "variables.index"
        if not variables.is_file():
            raise DataError(f"{path}: found a SavedModel without variables")
        return variables
    for folder in (path, *_of_run(path / "checkpoints"), *_of_run(path)):
        if (found := _newest(folder)) is not None:
            return found
    runs = sorted(each.parent.name for each in path.glob("*/checkpoints"))
    hint = f"its folders {', '.join(runs[:5])} have some" if runs else f"give {EXPECTED}"
    raise DataError(f"{path}: found no checkpoint in this folder; {hint}")


def _of_run(checkpoints: Path) -> list[Path]:
    """Folders in which a run may have a checkpoint, the best first."""
    steps = [(int(found[1]), each) for each in checkpoints.glob("step_*") if (found := _STEP.search(each.name))]
    newest_first = [each for _, each in sorted(steps, reverse=True)]
    return [checkpoints / "final", *newest_first, checkpoints / "estimator", checkpoints / "best"]


def _newest(folder: Path) -> Path | None:
    """The index of the newest checkpoint in a folder, or a file of the first format; None: it has none."""
    found = location.indexes_in(folder)
    if not found:
        return location.marked_first_format(folder)
    if len(found) > 1 and (marked := location.marked_latest(folder)) in found:
        return marked
    return max(found, key=lambda index: index.stat().st_mtime_ns, default=None)


def _is_saved_model(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("saved_model.pb", "saved_model.pbtxt"))


def contents_of_bundle(path: Path, index: Path, *, saved_model: bool, named: bool = True) -> Contents:
    """Lists a checkpoint.

    Args:
        index: the `.index` file.
        saved_model: whether these are the variables of a SavedModel.
        named: whether the names of variables are read, which takes some 100 ms where there is an object graph.

    Raises:
        CheckpointError: it is incremental, and what it is based on is missing or has changed.
        DataError: there is no such index, or it is damaged.
    """
    if not index.is_file():
        raise DataError(f"{index}: found no such file, expected the index of a checkpoint")
    prefix = index.with_name(index.name.removesuffix(".index"))
    links = increments.chain(prefix)
    entries = [link.entries() for link in links]
    faults = [fault for each in entries for fault in _faults(each)]
    names: Mapping[str, str] = {}
    object_based = OBJECT_GRAPH in entries[0]
    if object_based and named and not faults:
        from embexp.checkpoints import object_graph

        try:
            graph = object_graph.read(index)
            names = {value.key: value.full_name for node in graph.nodes for value in node.values if value.full_name}
        except DataError as error:
            faults.append(str(error))
    tensors = _tensors(links, entries)
    places = contents.groups_of_objects(tensors) if object_based else contents.groups_of_names(tensors)
    listed = [
        Stored(
            KeyInfo(
                key=key,
                shape=entry.shape,
                dtype=tensor.type_name(entry.kind),
                bytes=size,
                variable=names.get(key) if object_based else key,
                group=places[key].name,
                table=places[key].table,
                slot=places[key].slot,
            ),
            values,
        )
        for key, (entry, size, values) in tensors.items()
    ]
    listed.sort(key=lambda each: contents.groups_in_order(each.info.group, each.info.short))
    return Contents(
        path,
        prefix,
        StoredKind.SAVED_MODEL if saved_model else StoredKind.OBJECT if object_based else StoredKind.NAME,
        {each.info.key: each for each in listed},
        base=None if links[0].base is None else links[0].base.parent,
        faults=tuple(faults),
        files=(index, *sorted({piece.path for each in entries for entry in each.values() for piece in entry.pieces})),
    )


def _tensors(
    links: Sequence[Link], entries: Sequence[Mapping[str, Entry]]
) -> dict[str, tuple[Entry, int, Tensor | ChangedMatrix]]:
    """Of each key the place of its values, or those of its base; the bytes in the checkpoint itself; and the values."""
    found: dict[str, tuple[Entry, int, Tensor | ChangedMatrix]] = {}
    counted: set[str] = set()
    parts = {name for some in links[0].matrices.values() for name in (some.numbers, some.rows)}
    for key, entry in entries[0].items():
        if key not in parts and key not in links[0].matrices:
            found[key] = entry, _size(entry), _tensor(links[0], key, entry)
    for key, some in links[0].matrices.items():
        changes = []
        for link, each in zip(links, entries, strict=True):
            if key not in link.matrices:
                break
            names = link.matrices[key].numbers, link.matrices[key].rows
            if not all(name in each for name in names):
                raise DataError(f"{link.prefix}: found no {' and no '.join(names)}, expected the changed rows of {key}")
            changes.append((_tensor(link, names[0], each[names[0]]), _tensor(link, names[1], each[names[1]])))
        if key not in each or each[key].shape != some.shape:
            raise DataError(f"{link.prefix}: found no {key} of {list(some.shape)}, which {links[0].prefix} is based on")
        numbers, rows = changes[0]
        size = _size(rows.entry) + (0 if numbers.key in counted else _size(numbers.entry))
        counted.add(numbers.key)  # a table and its slots share it
        found[key] = each[key], size, ChangedMatrix(_tensor(link, key, each[key]), changes[::-1])
    return found


def _tensor(link: Link, key: str, entry: Entry) -> Tensor:
    return Tensor(f"{link.prefix}.index: {key}", key, entry)


def _size(entry: Entry) -> int:
    return sum(piece.size for piece in entry.pieces)


def _faults(entries: Mapping[str, Entry]) -> list[str]:
    """Data files that are missing or cut short, a sentence for each."""
    needed: dict[Path, list[tuple[int, str]]] = {}
    for key, entry in entries.items():
        for piece in entry.pieces:
            needed.setdefault(piece.path, []).append((piece.offset + piece.size, key))
    found = []
    for path, ends in sorted(needed.items()):
        if not path.is_file():
            found.append(f"{path}: found no such file, and the index names it for {len(ends)} of {len(entries)} keys")
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
