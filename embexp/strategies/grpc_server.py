"""Whether what listens somewhere is a gRPC server, as every worker of TensorFlow is; asked without gRPC or TensorFlow.

gRPC speaks HTTP/2, where each side begins with a preface: the client's are fixed words and a SETTINGS frame, the
server's is a SETTINGS frame (RFC 9113, 3.4), before which it can't send anything else. A proxy may speak HTTP/2 too.
But a gRPC server answers every call with status 200, whatever comes of it (gRPC over HTTP/2, "Responses").
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time

_DATA, _HEADERS, _SETTINGS, _GOAWAY = 0, 1, 4, 7
_END_STREAM, _END_HEADERS, _PADDED, _PRIORITY = 0x1, 0x4, 0x8, 0x20
_WORDS = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_CALL = "/tensorflow.WorkerService/GetStatus"
"""TensorFlow's own first call of a worker; it changes nothing there."""
_EMPTY_MESSAGE = bytes(5)
_SILENCE_SECONDS = 2.0
"""For the preface: a server that is awake sends it at once."""
_CALL_SECONDS = 1.0
"""For the answer to a call. It may be late: TensorFlow asks again, and takes its own time."""
_STATUSES = {0x89: 204, 0x8A: 206, 0x8B: 304, 0x8C: 400, 0x8D: 404, 0x8E: 500}
"""First byte of a block of headers, for statuses that have one of their own (RFC 7541, A); 0x88 is 200."""
_SPELT = (0x08, 0x18, 0x48)
"""The same for a status that is spelt out, which 200 never is."""


def fault(host: str, port: int, until: float) -> str | None:
    """Greets what listens as a client of gRPC does, and says what is wrong with its answer; None: nothing.

    Args:
        host: name or address of the machine.
        port: on which it listens.
        until: when to give up, by `time.monotonic`.

    Returns:
        Words that go on after "it".

    Raises:
        OSError: nothing takes connections there.
    """
    with socket.create_connection((host, port), timeout=_left(until)) as connection:
        began = time.monotonic()
        silent = min(until, began + _SILENCE_SECONDS)
        with contextlib.suppress(OSError):  # it may close the connection whenever it likes
            connection.sendall(_WORDS + _frame(_SETTINGS, 0, 0, b""))
        found = _read(connection, 9, silent)
        if not found:
            return f"says nothing within {silent - began:.1f} s"
        if not _is_preface(found):
            return f"says {found!r}"
        size, until = int.from_bytes(found[:3], "big"), min(until, time.monotonic() + _CALL_SECONDS)
        status = _status(connection, f"{host}:{port}", size, until)
        if status is not None:
            return f"speaks HTTP/2, and answers a call with status {status}"
    return None


def _is_preface(found: bytes) -> bool:
    """Whether bytes are the header of the SETTINGS frame with which an HTTP/2 server begins."""
    if len(found) != 9:
        return False
    size, kind, flags, stream = _header(found)
    return kind == _SETTINGS and not flags and not stream and size % 6 == 0


def _status(connection: socket.socket, authority: str, settings: int, until: float) -> int | str | None:
    """The status with which something that is no gRPC server answers a call, or None.

    Args:
        connection: of which the header of the first frame has been read.
        authority: host and port.
        settings: bytes of that frame that are still to come.
        until: when to give up.
    """
    head = b"\x83\x86" + b"".join(  # POST, http
        name + _string(value.encode())
        for name, value in (
            (b"\x04", _CALL),
            (b"\x01", authority),
            (b"\x00" + _string(b"te"), "trailers"),
            (b"\x0f\x10", "application/grpc"),  # content-type
        )
    )
    with contextlib.suppress(OSError):
        connection.sendall(
            _frame(_SETTINGS, 0x1, 0, b"")  # theirs are acknowledged
            + _frame(_HEADERS, _END_HEADERS, 1, head)
            + _frame(_DATA, _END_STREAM, 1, _EMPTY_MESSAGE)
        )
        _read(connection, settings, until)
        while len(header := _read(connection, 9, until)) == 9:
            size, kind, flags, stream = _header(header)
            block = _read(connection, size, until)
            if kind == _HEADERS and stream == 1:
                connection.sendall(_frame(_GOAWAY, 0, 0, bytes(8)))
                return _refused(block, flags)
    return None


def _refused(block: bytes, flags: int) -> int | str | None:
    """The status other than 200 that a block of headers begins with, or None."""
    start = (1 if flags & _PADDED else 0) + (5 if flags & _PRIORITY else 0)
    first = block[start : start + 1]
    if not first:
        return None
    return "other than 200" if first[0] in _SPELT else _STATUSES.get(first[0])


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return len(payload).to_bytes(3, "big") + struct.pack(">BBI", kind, flags, stream) + payload


def _header(frame: bytes) -> tuple[int, int, int, int]:
    """Size, type, flags and stream of a frame."""
    return int.from_bytes(frame[:3], "big"), *struct.unpack(">BBI", frame[3:9])


def _string(value: bytes) -> bytes:
    """A string as headers have them (RFC 7541, 5.2), not compressed."""
    if len(value) < 127:
        return bytes([len(value)]) + value
    length, rest = b"\x7f", len(value) - 127
    while rest >= 128:
        length, rest = length + bytes([rest % 128 + 128]), rest // 128
    return length + bytes([rest]) + value


def _read(connection: socket.socket, size: int, until: float) -> bytes:
    """As many bytes, or fewer if no more come in time."""
    found = b""
    with contextlib.suppress(OSError):
        while len(found) < size and time.monotonic() < until:
            connection.settimeout(_left(until))
            more = connection.recv(size - len(found))
            if not more:
                break
            found += more
    return found


def _left(until: float) -> float:
    return max(0.1, until - time.monotonic())
