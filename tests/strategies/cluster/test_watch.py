"""What ends a worker whose main thread holds Python's lock, as TensorFlow does while it forms its cluster."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

_WAITS = """
import ctypes, socket, sys
from embexp.strategies.cluster import watch

connected = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
with watch.watched({"worker 2": connected.fileno()}, seconds=float(sys.argv[2])):
    connected.sendall(b"waiting")
    ctypes.PyDLL(None).usleep(int(float(sys.argv[3]) * 1e6))  # without giving up the lock
"""
LIMIT = 30


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LIMIT)
        yield server


def waiting(listening: socket.socket, seconds: float, takes: float) -> tuple[subprocess.Popen[str], socket.socket]:
    """A process that waits in the block, and the other end of its connection."""
    words = [str(listening.getsockname()[1]), str(seconds), str(takes)]
    process = subprocess.Popen([sys.executable, "-c", _WAITS, *words], stderr=subprocess.PIPE, text=True)
    connected, _ = listening.accept()
    assert connected.recv(7) == b"waiting"
    return process, connected


def test_a_lost_worker_ends_it(listening: socket.socket) -> None:
    process, connected = waiting(listening, 60, 60)
    connected.close()
    assert "embexp: worker 2 was lost while TensorFlow formed the cluster" in process.communicate(timeout=LIMIT)[1]
    assert process.returncode == -signal.SIGKILL


def test_a_deadline_ends_it(listening: socket.socket) -> None:
    process, connected = waiting(listening, 0.5, 60)
    with connected:
        assert "it took more than 0.5 seconds" in process.communicate(timeout=LIMIT)[1]
    assert process.returncode == -signal.SIGKILL


def test_nothing_ends_it_when_all_are_there(listening: socket.socket) -> None:
    process, connected = waiting(listening, 60, 0.2)
    with connected:
        assert process.communicate(timeout=LIMIT)[1] == ""
    assert process.returncode == 0
