"""HDF5 files, read in a process of their own, `python -m embexp.system.hdf5`, which may crash.

HDF5's own library (1.14) ends the process, or never returns, on some damaged files: of the first 2,000 mutated ones,
one crashed and one hung. And what a dataset claims is compared here with what the file holds, before memory is taken
for it: a dataset of 10^16 numbers fits into a file of a kilobyte, as rows that were never written read as a fill
value. Its values may also be in other files (external storage, virtual datasets); those are never read, nor are links
followed. Nothing that the process answers is trusted with more than that; in particular it is no pickle.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import json
import math
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embexp.system import files, machine

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import h5py

_BLOCK_BYTES = 1 << 24
_SECONDS, _BYTES_PER_SECOND = 1.0, 2e7
"""Processor time that an answer may take: a second, and one more for so many bytes of the file and of the answer."""
_ADDRESS_SPACE = 4 << 30
_MOST_PACKED = 1_100
"""Bytes that one stored byte can become: deflate reaches 1,032 (https://zlib.net/zlib_tech.html)."""
_LARGEST_CHUNK = 1 << 28


class IsolatedError(Exception):
    """The process could not answer: it raised something, crashed, or took too long."""


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


class Isolated:
    """A process that answers questions, one at a time. It is started by the first, and again after a crash."""

    _lock: threading.Lock
    _process: subprocess.Popen[bytes] | None
    _pipe: Connection | None

    def __init__(self, module: str) -> None:
        """Nothing is started yet.

        Args:
            module: that calls `serve`.
        """
        self._module = module
        self._forget()
        os.register_at_fork(after_in_child=self._forget)
        atexit.register(self._end)

    def ask(self, question: dict[str, Any], *, seconds: float) -> tuple[Any, bytes]:
        """Asks, and waits for the answer.

        Args:
            seconds: of processor time that the answer may take, rounded up.

        Raises:
            IsolatedError: see there.
        """
        with self._lock:
            for _ in range(2):  # where it has ended, perhaps by somebody else's doing, so once more
                process, pipe = self._started()
                try:
                    pipe.send_bytes(json.dumps([question, seconds]).encode())
                    answer, data = json.loads(pipe.recv_bytes()), pipe.recv_bytes()
                except (EOFError, OSError):
                    process.wait()
                    self._end()
                    if process.returncode == -signal.SIGXCPU:
                        raise IsolatedError(f"reading it took more than {seconds:.0f} s: the file is damaged") from None
                    continue
                except BaseException:  # such as a signal: the answer may still come
                    self._end()
                    raise
                if "error" in answer:
                    raise IsolatedError(answer["error"])
                return answer["answer"], data
        raise IsolatedError("the library that reads it crashed: the file is damaged")

    def _started(self) -> tuple[subprocess.Popen[bytes], Connection]:
        if self._process is None or self._process.poll() is not None or self._pipe is None:
            from multiprocessing import Pipe  # which takes a while, and few runs read such files

            self._end()
            self._pipe, theirs = Pipe()
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-m", self._module, str(theirs.fileno()), str(os.getpid())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # a Ctrl-C is for us
                )
        return self._process, self._pipe

    def _forget(self) -> None:
        """In a process forked from that which asks: it has none of its own yet."""
        self._lock, self._process, self._pipe = threading.Lock(), None, None

    def _end(self) -> None:
        if self._process is not None and self._pipe is not None:
            self._process.kill()
            self._process.wait()
            self._pipe.close()
        self._process = self._pipe = None


def serve(answer: Callable[[dict[str, Any]], tuple[Any, Any]]) -> None:
    """Answers the questions of an `Isolated` until there is nobody who asks.

    Args:
        answer: gives JSON and bytes; what it raises is reported as an error.
    """
    from multiprocessing.connection import Connection

    pipe, parent = map(int, sys.argv[1:])
    machine.die_with_parent(parent)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with Connection(pipe) as asking, contextlib.suppress(EOFError):
        while True:
            question, seconds = json.loads(asking.recv_bytes())
            # The system ends the process, by SIGXCPU, when it has taken more; it counts whole seconds.
            soft, hard = math.ceil(sum(os.times()[:2]) + seconds), resource.getrlimit(resource.RLIMIT_CPU)[1]
            resource.setrlimit(resource.RLIMIT_CPU, (soft if hard < 0 else min(soft, hard), hard))
            data: Any = b""
            try:
                content, data = answer(question)
                said = json.dumps({"answer": content})
            except Exception as error:
                said = json.dumps({"error": " ".join(str(error).split()) or type(error).__name__})
            asking.send_bytes(said.encode())
            asking.send_bytes(data)


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
    import h5py  # in no other process

    path, section = question["path"], question["section"]
    with h5py.File(path if section is None else _Section(path, *section), "r") as file:
        if "key" in question:
            return _read(file[question["key"]], question["rows"])
        found: dict[str, h5py.Dataset] = {}
        file.visititems(lambda name, item: found.update({name: item} if isinstance(item, h5py.Dataset) else {}))
        return [_described(name, dataset) for name, dataset in found.items()], b""


def _described(name: str, dataset: h5py.Dataset) -> dict[str, Any]:
    """The attributes of a `Dataset`."""
    import h5py

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
    import h5py

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


def _elsewhere(dataset: h5py.Dataset) -> str:
    """Why the values of a dataset are not in its file, such as `it is virtual: …`; "" where they are."""
    import h5py

    settings = dataset.id.get_create_plist()
    if settings.get_layout() == h5py.h5d.VIRTUAL:  # before its shape is asked for, which may open its sources
        return "it is virtual: its values are in other datasets"
    if settings.get_layout() == h5py.h5d.CONTIGUOUS and settings.get_external_count():
        return "its values are in other files (external storage)"
    return ""


def _fault(dataset: h5py.Dataset) -> str:
    """Why a dataset, which is not elsewhere, lacks values that it claims; "" where its sizes fit."""
    import h5py

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


_PROCESS = Isolated("embexp.system.hdf5")

if __name__ == "__main__":
    limits = [limit for limit in resource.getrlimit(resource.RLIMIT_AS) if limit > 0]
    resource.setrlimit(resource.RLIMIT_AS, (min(_ADDRESS_SPACE, *limits, _ADDRESS_SPACE),) * 2)
    serve(_answer)
