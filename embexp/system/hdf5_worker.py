"""The process in which HDF5 files are read, as `python -m embexp.system.hdf5_worker`; `hdf5_files` asks it.

HDF5's own library (1.14) ends the process, or never returns, on some damaged files: of the first 2,000 mutated ones,
one crashed and one hung. And what a dataset claims is compared here with what the file holds, before memory is taken
for it: a dataset of 10^16 numbers fits into a file of a kilobyte, as rows that were never written read as a fill
value. Its values may also be in other files (external storage, virtual datasets); those are never read, nor are links
followed.
"""

from __future__ import annotations

import io
import math
import resource
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from embexp.system import files, processes

_ADDRESS_SPACE = 4 << 30
_MOST_PACKED = 1_100
"""Bytes that one stored byte can become: deflate reaches 1,032 (https://zlib.net/zlib_tech.html)."""
_LARGEST_CHUNK = 1 << 28


def _elsewhere(dataset: Any) -> str:
    """Why the values of an `h5py.Dataset` are not in its file, such as `it is virtual: …`; "" where they are."""
    settings = dataset.id.get_create_plist()
    if settings.get_layout() == h5py.h5d.VIRTUAL:  # before its shape is asked for, which may open its sources
        return "it is virtual: its values are in other datasets"
    if settings.get_layout() == h5py.h5d.CONTIGUOUS and settings.get_external_count():
        return "its values are in other files (external storage)"
    return ""


def _fault(dataset: Any) -> str:
    """Why a dataset does not hold the values that it claims; "" where it does, as far as its sizes show.

    Args:
        dataset: an `h5py.Dataset` that is not elsewhere.
    """
    shape, settings = tuple(map(int, dataset.shape or ())), dataset.id.get_create_plist()
    claimed = math.prod(shape) * int(dataset.id.get_type().get_size())
    if dataset.shape is None or not claimed:
        return ""
    stored = int(dataset.id.get_storage_size())
    if settings.get_layout() != h5py.h5d.CHUNKED:
        # Of strings of any length, what is stored is larger than a pointer to one.
        return "" if stored >= claimed else f"found {stored:,} bytes of it in the file, expected {claimed:,}"
    chunk = tuple(map(int, settings.get_chunk()))
    size = math.prod(chunk) * int(dataset.id.get_type().get_size())
    if size > _LARGEST_CHUNK:
        return f"found chunks of {size:,} bytes, expected at most {_LARGEST_CHUNK:,}"
    expected = math.prod(-(-whole // part) for whole, part in zip(shape, chunk, strict=True))
    found = int(dataset.id.get_num_chunks())
    if found != expected:
        return f"found {found:,} of its {expected:,} chunks in the file: the others were never written"
    most = stored * (_MOST_PACKED if settings.get_nfilters() else 1)
    return "" if claimed <= most else f"found {stored:,} bytes of it in the file, too few for {claimed:,}"


class _Section(io.RawIOBase):
    """Part of a file, as a file."""

    def __init__(self, path: str, offset: int, size: int) -> None:
        self._file, self._offset, self._size, self._at = files.opened(Path(path)), offset, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        self._file.seek(self._offset + self._at)
        count = self._file.readinto(memoryview(buffer)[: max(0, self._size - self._at)])
        self._at += count
        return int(count)

    def close(self) -> None:
        self._file.close()
        super().close()


def _answer(question: dict[str, Any]) -> tuple[Any, Any]:
    path, section = question["path"], question["section"]
    with h5py.File(path if section is None else _Section(path, *section), "r") as file:
        if "key" in question:
            return _read(file[question["key"]], question["rows"])
        return _listed(file), b""


def _listed(file: h5py.File) -> list[dict[str, Any]]:
    """All datasets of a file; see `hdf5_files.Dataset`."""
    found: dict[str, h5py.Dataset] = {}
    file.visititems(lambda name, item: found.update({name: item} if isinstance(item, h5py.Dataset) else {}))
    return [_described(name, dataset) for name, dataset in found.items()]


def _described(name: str, dataset: h5py.Dataset) -> dict[str, Any]:
    elsewhere = _elsewhere(dataset)
    shape = None if dataset.is_virtual else dataset.shape  # that of a virtual one may be in other files
    strings = h5py.check_string_dtype(dataset.dtype)
    place = dataset.id.get_offset() if not elsewhere and dataset.chunks is None else None
    return {
        "name": name,
        "shape": None if shape is None else [int(size) for size in shape],
        "dtype": dataset.dtype.str,
        "type_name": dataset.dtype.name if dataset.dtype.kind in "biufc" else str(dataset.dtype),
        "strings": "" if strings is None else "any" if strings.length is None else "fixed",
        "offset": None if place is None else int(place),
        "stored": int(dataset.id.get_storage_size()),
        "elsewhere": elsewhere,
        "note": _text(dataset, "dtype"),
        "layer": _text(dataset.parent, "name"),
    }


def _text(item: h5py.Dataset | h5py.Group, attribute: str) -> str | None:
    """An attribute that is one string; None: there is none, or it is something else, which is not read."""
    name = attribute.encode()
    if not h5py.h5a.exists(item.id, name):
        return None
    found = h5py.h5a.open(item.id, name)
    if found.shape != () or h5py.check_string_dtype(found.dtype) is None:
        return None
    value = item.attrs[attribute]
    return value if isinstance(value, str) else None


def _read(dataset: h5py.Dataset, rows: list[int] | None) -> tuple[Any, Any]:
    """Some rows of a dataset, or all of it: what they are, and their bytes."""
    if fault := _elsewhere(dataset) or _fault(dataset):
        raise ValueError(fault)
    values = np.asarray(dataset[() if rows is None else slice(*rows)])
    if values.dtype.kind in "OS":
        texts = [bytes(text) for text in values.reshape(-1).tolist()]
        return {"shape": values.shape, "lengths": [len(text) for text in texts]}, b"".join(texts)
    values = np.ascontiguousarray(values).reshape(values.shape)
    return {"shape": values.shape, "dtype": values.dtype.str}, values.reshape(-1).view(np.uint8).data


def main() -> None:
    """Answers until there is nobody who asks."""
    limit = min(_ADDRESS_SPACE, *(each for each in resource.getrlimit(resource.RLIMIT_AS) if each > 0), _ADDRESS_SPACE)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    processes.serve(_answer)


if __name__ == "__main__":
    main()
