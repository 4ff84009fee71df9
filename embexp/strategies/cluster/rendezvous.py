"""How the workers of a run find each other before TensorFlow does, and agree that they are to do the same.

TensorFlow waits for a worker that never starts, without an end. So worker 0 first listens itself at its address. Each
other worker connects there twice, once for commands and once to be heard of, and says who it is and what it is about
to do: versions, spec, data and code, each as a digest or a word. Worker 0 compares this with its own, and answers all
of them at once. A worker whose port is taken says so, and one whose number another process has is refused. Then
worker 0 stops to listen. TensorFlow listens at the same port, on all interfaces of the machine.

What workers say to each other beside TensorFlow is JSON with arrays after it, over TCP. A message is eight bytes,
`EMBX` and the length of its head, little-endian; the head, JSON in UTF-8; and the bytes of the arrays that the head
lists by type and shape. Nothing in it is executed.

Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import secrets
import select
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from embexp.errors import RunError

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
            raise HungUpError("it sends something that no embexp worker sends")
        try:
            head = json.loads(bytes(self._exactly(length)))
            listed = [(str(kind), tuple(int(size) for size in shape)) for kind, shape in head.pop("arrays")]
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise HungUpError("it sends something that no embexp worker sends") from error
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


_NONE: Mapping[str, str] = MappingProxyType({})
PURPOSES = ("commands", "beats")
"""What a worker connects to worker 0 for."""
_RETRY_SECONDS = 0.2
SPEC = "spec, data and files"
"""The fact that the settings of a worker describe."""
WORKERS = "strategy.workers"
"""The fact of how many workers there are."""
_SHOWN = 8
"""Settings that are named before the rest are counted."""
_HELLO_SECONDS = 10.0
"""How long a connection has to say who it is."""


@dataclass
class Member:
    """A worker other than 0, as worker 0 sees it.

    Attributes:
        address: where its TensorFlow will listen, `host:port`.
        facts: what it says of its run.
        settings: those of its spec, by config path, to name what differs.
        fault: why it can't take part.
        key: by which its connections are known from those of another process.
        process: which process it is, for people.
        twin: another process that has come with its number; "": none has.
        connections: by purpose.
    """

    address: str
    facts: Mapping[str, str]
    settings: Mapping[str, str] = field(default_factory=dict)
    fault: str | None = None
    key: str = ""
    process: str = ""
    twin: str = ""
    connections: dict[str, Connection] = field(default_factory=dict)


@dataclass(frozen=True)
class Joined:
    """A cluster that has agreed, as another worker than 0 sees it.

    Attributes:
        addresses: of all workers, in order.
        told: what worker 0 has to say.
        connections: to worker 0, by purpose.
    """

    addresses: list[str]
    told: Mapping[str, Any]
    connections: Mapping[str, Connection]


def listener(address: str) -> socket.socket:
    """A socket that listens at an address, `host:port`.

    Raises:
        RunError: it can't.
    """
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, port))
        found.listen(256)
    except (OSError, OverflowError) as error:
        found.close()
        raise RunError(_deaf(0, address, error)) from error
    return found


def _deaf(worker: int, address: str, error: Exception) -> str:
    remedy = "stop the program that listens there, choose another port, or start one process per worker number"
    return f"worker {worker} can't listen at {address}: {getattr(error, 'strerror', None) or error}: {remedy}"


def _fault_of(worker: int, address: str) -> str | None:
    """Why TensorFlow can't listen at a port of this machine, on all its interfaces; None: it can."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(("", split_address(address)[1]))
            found.listen(1)
        except (OSError, OverflowError) as error:
            return _deaf(worker, address, error)
    return None


def free_address(host: str = "127.0.0.1") -> str:
    """An address of this machine at which nobody listens."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((host, 0))
        return f"{host}:{found.getsockname()[1]}"


def split_address(address: str) -> tuple[str, int]:
    """Host and port."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def gather(
    listening: socket.socket,
    address: str,
    *,
    workers: int,
    facts: Mapping[str, str],
    told: Mapping[str, Any],
    seconds: float,
    settings: Mapping[str, str] = _NONE,
    stage: str = "",
    failed: Callable[[], str | None] = lambda: None,
) -> dict[int, Member]:
    """As worker 0, waits for all others, and answers them; closes the socket.

    Args:
        listening: at `address`.
        facts: what all must agree on.
        told: told to all.
        seconds: until all must be there.
        settings: see `Member`.
        stage: what the workers come together for, if they do so several times.
        failed: says why a worker can't come any more, as one that this process has started and that has ended.

    Returns:
        The other workers by their number, in order.

    Raises:
        RunError: workers are missing, or some would do something else; the message names them.
    """
    deadline = time.monotonic() + seconds
    members: dict[int, Member] = {}
    complete, fault = False, None
    with listening, selectors.DefaultSelector() as ready:
        listening.setblocking(False)
        ready.register(listening, selectors.EVENT_READ)
        try:
            while (missing := _missing(members, workers)) and time.monotonic() < deadline:
                if (reason := failed()) is not None:
                    raise RunError(reason)
                for _ in ready.select(_RETRY_SECONDS):
                    _greet(listening, members, workers, stage)
                if fault is None and (fault := next((e.fault for e in members.values() if e.fault), None)) is not None:
                    deadline = min(deadline, time.monotonic() + _HELLO_SECONDS)  # for the others, who are told, too
            if fault is not None:
                raise RunError(fault)
            if missing:
                raise RunError(_absent(missing, workers, seconds, address, members))
            if different := _differences(facts, settings, members):
                raise RunError(different)
            addresses = [address, *(members[worker].address for worker in sorted(members))]
            _answer(members, {"told": dict(told), "addresses": addresses})
            complete = True
        except RunError as error:
            with contextlib.suppress(RunError):
                _answer(members, {"refused": str(error)})
            raise
        finally:
            if not complete:
                for member in members.values():
                    for connection in member.connections.values():
                        connection.close()
    return dict(sorted(members.items()))


def refuse(address: str, reason: str, *, workers: int, seconds: float) -> None:
    """As worker 0 that fails before the cluster is there, tells the others why, so that they do not wait for it.

    Args:
        address: where they look for worker 0; if something listens there, nothing is done.
        seconds: for which those are waited for that have not come.
    """
    deadline, told = time.monotonic() + seconds, set[int]()
    members: dict[int, Member] = {}
    try:
        listening = listener(address)
    except RunError:
        return
    with listening, selectors.DefaultSelector() as ready:
        listening.setblocking(False)
        ready.register(listening, selectors.EVENT_READ)
        while len(told) < workers - 1 and time.monotonic() < deadline:
            for _ in ready.select(_RETRY_SECONDS):
                _greet(listening, members, workers, None)
            for worker in members.keys() - told - set(_missing(members, workers)):
                told.add(worker)
                with contextlib.suppress(RunError):
                    _answer({worker: members[worker]}, {"refused": reason})
    for member in members.values():
        _close(member.connections)


def join(
    address: str,
    own: str | None,
    *,
    worker: int,
    workers: int,
    facts: Mapping[str, str],
    seconds: float,
    settings: Mapping[str, str] = _NONE,
    stage: str = "",
) -> Joined:
    """As another worker, connects to worker 0, and waits for its answer.

    Args:
        address: of worker 0.
        own: where this worker's TensorFlow will listen; None: at a free port of this machine.
        seconds: until worker 0 must have answered.
        settings, stage: see `gather`.

    Raises:
        RunError: there is no worker 0, or it says that the cluster can't start.
    """
    deadline = time.monotonic() + seconds
    own = free_address() if own is None else own
    hello = {
        "worker": worker,
        "workers": workers,
        "address": own,
        "facts": dict(facts),
        "settings": dict(settings),
        "stage": stage,
        "fault": _fault_of(worker, own),
        "key": secrets.token_hex(8),
        "process": f"process {os.getpid()} on {socket.gethostname()}",
    }
    connections: dict[str, Connection] = {}
    try:
        for purpose in PURPOSES:
            connections[purpose] = _connected(address, deadline, seconds)
            connections[purpose].send(hello | {"purpose": purpose})
        answer: dict[str, Any] = {}
        for connection in connections.values():
            connection.patience(max(0.1, deadline - time.monotonic()))
            answer, _ = connection.receive()
            connection.patience(None)
        if "refused" in answer:
            raise RunError(str(answer["refused"]))
        return Joined(list(answer["addresses"]), answer["told"], connections)
    except (HungUpError, KeyError) as error:
        _close(connections)
        raise RunError(
            f"worker {worker} has no answer from worker 0 at {address}: {error}: see the output of worker 0; "
            f"check whether another process is also worker {worker}, or another program listens there"
        ) from error
    except RunError:
        _close(connections)
        raise


def _close(connections: Mapping[str, Connection]) -> None:
    for connection in connections.values():
        connection.close()


def _connected(address: str, deadline: float, seconds: float) -> Connection:
    host, port = split_address(address)
    while True:
        try:
            return Connection(socket.create_connection((host, port), timeout=_HELLO_SECONDS))
        except OSError as error:
            if time.monotonic() >= deadline:
                why = error.strerror or str(error)
                raise RunError(
                    f"worker 0 has not been listening at {address} for {seconds:g} seconds ({why}): check that "
                    f"it runs, or increase strategy.start_seconds"
                ) from error
            time.sleep(_RETRY_SECONDS)


def _greet(listening: socket.socket, members: dict[int, Member], workers: int, stage: str | None) -> None:
    """Accepts a connection, and notes whose it is; strangers are dropped, and a second process of a number is refused.

    Args:
        stage: at which the others are; None: any.
    """
    try:
        accepted, _ = listening.accept()
    except OSError:
        return
    accepted.setblocking(True)
    connection = Connection(accepted)
    connection.patience(_HELLO_SECONDS)
    try:
        hello, _ = connection.receive()
        worker, purpose = int(hello["worker"]), str(hello["purpose"])
        facts = {str(name): str(value) for name, value in hello["facts"].items()}
        facts[WORKERS] = str(hello["workers"])
        settings = {str(name): str(value) for name, value in hello["settings"].items()}
        key, process = str(hello["key"]), str(hello["process"])
        comes = Member(str(hello["address"]), facts, settings, hello["fault"], key, process)
        is_late = stage not in (None, hello["stage"])
        known = None if is_late else members.get(worker)
    except (HungUpError, KeyError, TypeError, ValueError, AttributeError):
        connection.close()
        return
    if not 0 < worker < workers or purpose not in PURPOSES:
        _refuse(connection, f"worker 0 waits for workers 1 to {workers - 1}, but this is {worker}")
    elif is_late or (known is not None and known.key != key):
        if known is not None:
            known.twin = process
        other = "another process" if known is None else known.process
        _refuse(connection, f"worker {worker} is already {other}: give {process} a different number")
    else:
        connection.patience(None)
        members.setdefault(worker, comes).connections[purpose] = connection


def _refuse(connection: Connection, reason: str) -> None:
    with contextlib.suppress(HungUpError):
        connection.send({"refused": reason})
    connection.close()


def _missing(members: Mapping[int, Member], workers: int) -> list[int]:
    whole = {worker for worker, member in members.items() if len(member.connections) == len(PURPOSES)}
    return [worker for worker in range(1, workers) if worker not in whole]


def _absent(missing: Sequence[int], workers: int, seconds: float, address: str, members: Mapping[int, Member]) -> str:
    names = ", ".join(map(str, missing))
    noun = "worker" if len(missing) == 1 else "workers"
    verb = "has" if len(missing) == 1 else "have"
    absent = f"{noun} {names} of {workers} {verb} not come to {address} within {seconds:g} seconds"
    twice = [f"{each.process} and {each.twin} are both worker {n}" for n, each in sorted(members.items()) if each.twin]
    return "; ".join([f"{absent}: see their output, or increase strategy.start_seconds", *twice])


def _differences(facts: Mapping[str, str], settings: Mapping[str, str], members: Mapping[int, Member]) -> str | None:
    """Every fact in which a worker differs from worker 0, as one message; of two specs, the settings that differ."""

    def lines(own: Mapping[str, str], others: Mapping[str, str], worker: int) -> list[str]:
        return [
            f"  {name}: worker {worker} has {others.get(name, 'none')}, worker 0 has {own.get(name, 'none')}"
            for name in sorted(own.keys() | others.keys())
            if own.get(name, "none") != others.get(name, "none")
        ]

    found = []
    for worker, member in sorted(members.items()):
        of_spec = lines(settings, member.settings, worker) if facts.get(SPEC) != member.facts.get(SPEC) else []
        left_out = {SPEC} if of_spec else set()
        own, others = ({k: v for k, v in each.items() if k not in left_out} for each in (facts, member.facts))
        found += [*of_spec[:_SHOWN], *([f"  and {len(of_spec) - _SHOWN} more settings"] if of_spec[_SHOWN:] else [])]
        found += lines(own, others, worker)
    if not found:
        return None
    return "\n".join(
        ["the workers would not run the same run; give all of them the same config, data and versions", *found]
    )


def _answer(members: Mapping[int, Member], answer: dict[str, Any]) -> None:
    for worker, member in members.items():
        for connection in member.connections.values():
            try:
                connection.send(answer)
            except HungUpError as error:
                raise RunError(f"worker {worker} at {member.address} was lost before the start: {error}") from error
