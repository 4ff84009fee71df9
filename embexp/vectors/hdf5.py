"""Vectors in HDF5 files: a dataset of two dimensions, and perhaps one of strings with the tokens."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.errors import DataError, read_by_library
from embexp.system import hdf5_files
from embexp.system.hdf5_files import Dataset, File
from embexp.vectors.stored import Place, Stored, checked_shape, counted, only_key

_TOKENS, _FEW_TOKENS, _TOKEN_BYTES = 4096, 256, 1 << 24


def read(path: Path, key: str | None, token_column: str | None) -> Stored:
    """One dataset of the file: mapped where it is stored in one piece, else read by ranges.

    Args:
        path: of the file.
        key: the dataset, such as `layers/embedding/vars/0`; None: the only matrix.
        token_column: the dataset of tokens; None: there are none.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    with read_by_library(f"{path}: found no whole HDF5 file"):
        listed = hdf5_files.datasets(File(path))
    datasets = {name: each for name, each in listed.items() if not each.elsewhere}
    for each in listed.values():
        if each.elsewhere and (each.name == key or not datasets):
            raise DataError(f"{path}: {each.name}: {each.elsewhere}, which are never read")
    key = only_key(path, {name: each.shape or () for name, each in datasets.items()}, key, "dataset")
    dataset, dtype = datasets[key], np.dtype(datasets[key].dtype)
    name = f"{path}: {key}"
    rows, dim = checked_shape(name, dataset.shape or (), dtype)
    if token_column is not None and token_column not in datasets:
        strings = ", ".join(each.name for each in datasets.values() if len(each.shape or ()) == 1) or "none"
        raise DataError(f"{path}: found no dataset {token_column!r}; those of one dimension are {strings}")
    _range(path, dataset, 0, 1)  # compares what the file holds with the shape, too
    size = path.stat().st_size
    if dataset.offset is not None and dataset.offset + rows * dataset.row_bytes > size:
        raise DataError(f"{name}: found {size:,} bytes, expected more: the file is cut short")
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=dtype,
        read=lambda start, stop: _range(path, dataset, start, stop),
        files=[path],
        place=Place(path, dataset.offset) if dataset.offset is not None and dtype == np.dtype("<f4") else None,
        tokens=(lambda: _tokens(path, datasets[token_column], rows)) if token_column is not None else None,
    )


def _range(path: Path, dataset: Dataset, start: int, stop: int) -> np.ndarray:
    with read_by_library(f"{path}: {dataset.name}: rows {start:,} to {stop:,} can't be read"):
        values = hdf5_files.read(File(path), dataset, start, stop)
        if values.shape != (stop - start, *(dataset.shape or ())[1:]) or values.dtype != np.dtype(dataset.dtype):
            raise ValueError(f"found {values.dtype} {list(values.shape)}")
        return values


def _tokens(path: Path, dataset: Dataset, rows: int) -> pa.LargeStringArray:
    name, size = f"{path}: {dataset.name}", path.stat().st_size
    if not dataset.strings or dataset.shape != (rows,):
        found = f"{dataset.type_name} {list(dataset.shape or ())}"
        raise DataError(f"{name}: found {found}, expected {counted(rows, 'string')}, one for each row")
    parts: list[pa.LargeStringArray] = []
    done, step = 0, min(_TOKENS, max(_FEW_TOKENS, _TOKEN_BYTES // size))
    for start in range(0, rows, step):
        with read_by_library(f"{name}: its strings can't be read"):
            tokens = hdf5_files.read(File(path), dataset, start, min(rows, start + step)).tolist()
            done += sum(map(len, tokens))
        if dataset.strings == "any" and done > size:  # many strings may be one and the same place in the file
            raise DataError(f"{name}: found strings of more bytes than the file has, {size:,}")
        parts.append(_as_text(name, tokens))
    return pa.concat_arrays(parts)


def _as_text(name: str, tokens: Iterable[bytes]) -> pa.LargeStringArray:
    try:
        return pa.array([token.decode("utf-8") for token in tokens], pa.large_string())
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: found {error.object!r}, expected text in UTF-8") from None
