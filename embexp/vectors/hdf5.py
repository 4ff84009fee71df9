"""Vectors in HDF5 files: a dataset of two dimensions, and perhaps one of strings with the tokens."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pyarrow as pa

from embexp.errors import DataError
from embexp.vectors.stored import Place, Stored, checked_shape, counted, only_key


def read(path: Path, key: str | None, token_column: str | None) -> Stored:
    """One dataset of the file: mapped where it is stored in one piece, else read by ranges.

    Args:
        path: of the file.
        key: the dataset, such as `layers/embedding/vars/0`; None: the only matrix.
        token_column: the dataset of tokens; None: there are none.

    Raises:
        DataError: it can't be read, or doesn't hold the one matrix.
    """
    try:
        with h5py.File(path, "r") as file:
            datasets: dict[str, h5py.Dataset] = {}
            file.visititems(lambda name, item: datasets.update({name: item} if isinstance(item, h5py.Dataset) else {}))
            key = only_key(path, {name: item.shape or () for name, item in datasets.items()}, key, "dataset")
            dataset = datasets[key]
            name = f"{path}: {key}"
            rows, dim = checked_shape(name, dataset.shape, dataset.dtype)
            offset = dataset.id.get_offset() if dataset.chunks is None and not dataset.external else None
            dtype = dataset.dtype
            if token_column is not None and token_column not in datasets:
                strings = [each for each, item in datasets.items() if len(item.shape or ()) == 1]
                listed = ", ".join(strings) or "none"
                raise DataError(f"{path}: found no dataset {token_column!r}; those of one dimension are {listed}")
    except OSError as error:
        raise DataError(f"{path}: found no whole HDF5 file: {error}") from None
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


def _range(path: Path, key: str, start: int, stop: int) -> np.ndarray:
    try:
        with h5py.File(path, "r") as file:
            return np.asarray(file[key][start:stop])
    except OSError as error:
        raise DataError(f"{path}: {key}: rows {start:,} to {stop:,} can't be read: {error}") from None


def _tokens(path: Path, column: str, rows: int) -> pa.LargeStringArray:
    with h5py.File(path, "r") as file:
        dataset = file[column]
        if h5py.check_string_dtype(dataset.dtype) is None or dataset.shape != (rows,):
            found = f"{dataset.dtype} {list(dataset.shape)}"
            raise DataError(f"{path}: {column}: found {found}, expected {counted(rows, 'string')}, one for each row")
        try:
            return pa.array([bytes(token).decode("utf-8") for token in dataset[:]], pa.large_string())
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: {column}: found {error.object!r}, expected text in UTF-8") from None
