"""What workers say to each other beside TensorFlow: JSON with arrays after it, over TCP. Imports no TensorFlow.

A message is eight bytes, `EMBX` and the length of its head, little-endian; the head, JSON in UTF-8; and the bytes of
the arrays that the head lists by type and shape. Nothing in it is executed.
"""

from __future__ import annotations

import contextlib
import json
import math
import select
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

_MAGIC = b"EMBX"
_LARGEST_HEAD = 1 << 24
_TYPES = (
    "float32",
    "float64",
    "float16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
)


"""The reason of one that was silent for as long as its patience."""


class HungUpError(Exception):
    """The other side has closed the connection, or says what no worker says."""


class SilentError(HungUpError):
    """The other side does not answer."""

    def __init__(self) -> None:
        super().__init__("it does not answer")


class Connection:
    """One TCP connection between two workers; any thread may send, one thread receives."""

    def __init__(self, connected: socket.socket) -> None:
        """Takes a connected socket."""
        if connected.family in (socket.AF_INET, socket.AF_INET6):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket, self._sending = connected, threading.Lock()

    def fileno(self) -> int:
        """The socket's, to wait for several."""
        return self._socket.fileno()

    def patience(self, seconds: float | None) -> None:
        """How long sending or receiving may stall until it is a `HungUpError`; None: for ever."""
        self._socket.settimeout(seconds)

    def comes(self, seconds: float) -> bool:
        """Whether something comes within so many seconds, if only the end."""
        try:
            return bool(select.select([self._socket], [], [], seconds)[0])
        except (OSError, ValueError):  # it is closed
            return True

    def send(self, head: dict[str, Any], arrays: Sequence[np.ndarray] = ()) -> None:
        """Sends a message.

        Raises:
            HungUpError: the other side is gone.
        """
        arrays = [np.ascontiguousarray(array).reshape(np.shape(array)) for array in arrays]
        listed = [[array.dtype.name, list(array.shape)] for array in arrays]
        text = json.dumps({**head, "arrays": listed}).encode()
        try:
            with self._sending:
                self._socket.sendall(_MAGIC + struct.pack("<I", len(text)) + text)
                for array in arrays:
                    self._socket.sendall(array.reshape(-1).view(np.uint8).data)
        except (OSError, ValueError) as error:
            raise _hung_up(error) from error

    def receive(self) -> tuple[dict[str, Any], list[np.ndarray]]:
        """The next message.

        Raises:
            HungUpError: the other side is gone, or sends something else.
        """
        start = self._exactly(8)
        (length,) = struct.unpack("<I", bytes(start[4:]))
        if bytes(start[:4]) != _MAGIC or length > _LARGEST_HEAD:
            raise HungUpError("it sends what no worker of embexp sends")
        try:
            head = json.loads(bytes(self._exactly(length)))
            listed = [(str(kind), tuple(int(size) for size in shape)) for kind, shape in head.pop("arrays")]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise HungUpError("it sends what no worker of embexp sends") from error
        arrays = []
        for kind, shape in listed:
            if kind not in _TYPES or any(size < 0 for size in shape):
                raise HungUpError(f"it sends an array of {kind}")
            dtype = np.dtype(kind)
            arrays.append(np.frombuffer(self._exactly(math.prod(shape) * dtype.itemsize), dtype).reshape(shape))
        return head, arrays

    def close(self) -> None:
        """Closes the connection, so that a thread that waits for it gets a `HungUpError`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _exactly(self, count: int) -> bytearray:
        found = bytearray(count)
        view, done = memoryview(found), 0
        try:
            while done < count:
                got = self._socket.recv_into(view[done:])
                if not got:
                    raise HungUpError("it has closed the connection")
                done += got
        except (OSError, ValueError) as error:
            raise _hung_up(error) from error
        return found


def _hung_up(error: Exception) -> HungUpError:
    if isinstance(error, TimeoutError):
        return SilentError()
    return HungUpError(getattr(error, "strerror", None) or str(error) or type(error).__name__)
