"""Vectors in HDF5 files: a dataset of two dimensions, and perhaps one of strings with the tokens."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa

from embexp.errors import DataError, read_by_library
from embexp.system import hdf5
from embexp.vectors.stored import Place, Stored, checked_shape, counted, only_key

_TOKENS, _FEW_TOKENS, _TOKEN_BYTES = 4096, 64, 1 << 24


def read(path: Path, key: str | None, token_column: str | None) -> Stored:
    """One dataset of the file: mapped where it is stored in one piece, else read by ranges.

    Args:
        path: of the file.
        key: the dataset, such as `layers/embedding/vars/0`; None: the only matrix.
        token_column: the dataset of tokens; None: there are none.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    with read_by_library(f"{path}: found no whole HDF5 file"), h5py.File(path, "r") as file:
        datasets = _datasets(path, file, key)
        key = only_key(path, {name: item.shape or () for name, item in datasets.items()}, key, "dataset")
        dataset = datasets[key]
        name = f"{path}: {key}"
        rows, dim = checked_shape(name, dataset.shape, dataset.dtype)
        _check(name, dataset)
        offset = dataset.id.get_offset() if dataset.chunks is None else None
        dtype = dataset.dtype
        if token_column is not None and token_column not in datasets:
            strings = [each for each, item in datasets.items() if len(item.shape or ()) == 1]
            listed = ", ".join(strings) or "none"
            raise DataError(f"{path}: found no dataset {token_column!r}; those of one dimension are {listed}")
    if offset is not None and offset + rows * dim * dtype.itemsize > path.stat().st_size:
        raise DataError(f"{name}: found {path.stat().st_size:,} bytes, expected more: the file is cut short")
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=dtype,
        read=lambda start, stop: _range(path, key, start, stop),
        files=[path],
        place=Place(path, offset) if offset is not None and dtype == np.dtype("<f4") else None,
        tokens=(lambda: _tokens(path, token_column, rows)) if token_column is not None else None,
    )


def _datasets(path: Path, file: h5py.File, key: str | None) -> dict[str, h5py.Dataset]:
    """The datasets of a file, by name, without those whose values are in other files.

    Links are not followed, as they may lead to other files.

    Raises:
        DataError: the one that is asked for, or the only one, is in another file.
    """
    found: dict[str, h5py.Dataset] = {}
    elsewhere: dict[str, str] = {}

    def add(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            if reason := hdf5.elsewhere(item):
                elsewhere[name] = reason
            else:
                found[name] = item

    file.visititems(add)
    for name, reason in elsewhere.items():
        if name == key or not found:
            raise DataError(f"{path}: {name}: {reason}, which are never read")
    return found


def _check(name: str, dataset: h5py.Dataset) -> None:
    if fault := hdf5.fault_of(dataset):
        raise DataError(f"{name}: {fault}")


def _range(path: Path, key: str, start: int, stop: int) -> np.ndarray:
    where = f"{path}: {key}: rows {start:,} to {stop:,} can't be read"
    with read_by_library(where), h5py.File(path, "r") as file:
        return np.asarray(file[key][start:stop])


def _tokens(path: Path, column: str, rows: int) -> pa.LargeStringArray:
    name, size = f"{path}: {column}", path.stat().st_size
    parts: list[pa.LargeStringArray] = []
    with read_by_library(f"{name}: its strings can't be read"), h5py.File(path, "r") as file:
        dataset = file[column]
        kind = h5py.check_string_dtype(dataset.dtype)
        if kind is None or dataset.shape != (rows,):
            found = f"{dataset.dtype} {list(dataset.shape)}"
            raise DataError(f"{name}: found {found}, expected {counted(rows, 'string')}, one for each row")
        _check(name, dataset)
        done, step = 0, min(_TOKENS, max(_FEW_TOKENS, _TOKEN_BYTES // size))
        for start in range(0, rows, step):
            tokens = [bytes(token) for token in dataset[start : start + step]]
            done += sum(map(len, tokens))
            if kind.length is None and done > size:  # many strings may be one and the same place in the file
                raise DataError(f"{name}: found strings of more bytes than the file has, {size:,}")
            parts.append(_as_text(name, tokens))
    return pa.concat_arrays(parts)


def _as_text(name: str, tokens: list[bytes]) -> pa.LargeStringArray:
    try:
        return pa.array([token.decode("utf-8") for token in tokens], pa.large_string())
    except UnicodeDecodeError as error:
        raise DataError(f"{name}: found {error.object!r}, expected text in UTF-8") from None
