"""Finding the checkpoint that a path stands for."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from embexp.checkpoints import bundles
from embexp.checkpoints.contents import Contents
from embexp.errors import DataError
from embexp.system import regular
from embexp.tensor_bundle import first_format, location
from embexp.tensor_bundle.rekeying import object_index

EXPECTED = (
    "a run's directory, a checkpoint's prefix, folder or .index file, a SavedModel, or a .weights.h5 or .keras file"
)
_OF_RUN = "checkpoint.index"
_ENDING = re.compile(r"\.(index|meta|data-\d{5}-of-\d{5})$")
_STEP = re.compile(r"step_(\d+)$")
_HDF5, _ZIP = b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"


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
    contents = bundles.contents(path, index, saved_model=saved_model, named=named)
    return contents if found.suffix == ".index" else replace(contents, source=found)


def starts_as_keras(path: Path) -> bool:
    """Whether a file begins as HDF5 or as a zip, as Keras' files of weights do."""
    return _start(path).startswith((_HDF5, _ZIP))


def _start(path: Path) -> bytes:
    with regular.opened(path) as file:
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
        if fault := regular.fault_of(path):
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
