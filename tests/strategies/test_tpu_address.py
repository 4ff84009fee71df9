"""A TPU that is not there: said within seconds, before TensorFlow is imported, with what is missing."""

from __future__ import annotations

import contextlib
import http.server
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest

from embexp.errors import RunError
from embexp.specs.strategies import TPU
from embexp.strategies import strategy as strategies
from embexp.strategies import tpu_address


@pytest.fixture(autouse=True)
def _no_tpu_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{_closed_port()}")
    monkeypatch.setattr(tpu_address, "_CHIPS", ("/nonexistent/accel*",))


def _closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


SETTINGS = b"\0\0\6\4\0\0\0\0\0" + b"\0\3\0\0\0\x64"
ACKNOWLEDGED = b"\0\0\0\4\1\0\0\0\0"


@contextlib.contextmanager
def listener(*says: bytes, closing: bool = False, pause: float = 0.0) -> Iterator[str]:
    """Something that takes connections and says the same to each, a pause before each piece, or nothing."""
    with socket.socket() as server, contextlib.ExitStack() as taken:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def answer(connection: socket.socket) -> None:
            with contextlib.suppress(OSError):
                for each in says:
                    connection.sendall(each)
                    time.sleep(pause)
                if closing:
                    connection.close()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = taken.enter_context(server.accept()[0])
                    threading.Thread(target=answer, args=[connection], daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield f"grpc://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def check(
    address: str | None, zone: str | None = None, project: str | None = None, timeout_seconds: float = 2.0
) -> str:
    return tpu_address.check(address, zone, project, timeout_seconds)


def test_nothing_named_and_nothing_here() -> None:
    with pytest.raises(RunError) as raised:
        check(None)
    words = str(raised.value)
    for missing in ("no TPU chip", "libtpu, is not installed", "no TPU is named: strategy.address is null", "TPU_NAME"):
        assert missing in words
    assert "strategy=tpu_simulator" in words


def test_local_asked_for() -> None:
    with pytest.raises(RunError, match="no TPU chip") as raised:
        check("local")
    assert "no TPU is named" not in str(raised.value)


def test_nobody_listens() -> None:
    address = f"grpc://127.0.0.1:{_closed_port()}"
    with pytest.raises(RunError, match=rf"nothing answered at {address} \(strategy.address\) within 2 s"):
        check(address)


@pytest.mark.parametrize("address", ["grpc://127.0.0.1", "http://127.0.0.1:80", "grpc://a:port"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(RunError, match=r"an address looks like grpc://10\.0\.0\.2:8470"):
        check(address)


def test_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_NAME", f"grpc://127.0.0.1:{_closed_port()}")
    with pytest.raises(RunError, match=r"nothing answered at .* \(TPU_NAME\)"):
        check(None)


def test_a_name_means_something_to_google_only() -> None:
    with pytest.raises(RunError, match=r"TPU 'mine' .* not in Google Cloud .* are not both set"):
        check("mine")
    with pytest.raises(RunError, match=r"does not answer\)\. Set strategy\.address"):
        check("mine", zone="z", project="p")


def test_a_grpc_server_is_found() -> None:
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        assert check(f"grpc://127.0.0.1:{port}", timeout_seconds=30.0) == f"grpc://127.0.0.1:{port}"
        assert check(f"127.0.0.1:{port},grpc://127.0.0.1:{port}", timeout_seconds=30.0)
        with pytest.raises(RunError, match="nothing answered at"):  # each of them is tried
            check(f"127.0.0.1:{port},127.0.0.1:{_closed_port()}")
    finally:
        server.stop(0).wait()


SERVER = """
import sys, tensorflow as tf
print(tf.distribute.Server.create_local_server().target, flush=True)
sys.stdin.read()
"""


@pytest.mark.slow
def test_a_worker_of_tensorflow_is_found(forked: Path) -> None:
    with subprocess.Popen(
        [forked / "python", "-c", SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as worker:
        assert worker.stdout is not None
        try:
            address = worker.stdout.readline().strip()
            assert re.fullmatch(r"grpc://localhost:\d+", address)
            assert check(address, timeout_seconds=30.0) == address
        finally:
            worker.kill()


@pytest.mark.parametrize(
    ("says", "closing"),
    [
        ((), False),
        ((), True),
        ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), False),
        ((b"SSH-2.0\r\n",), False),
        ((b"\0\0\0\6\0\0\0\0\0",), False),  # a frame of HTTP/2, and no preface
    ],
)
def test_what_listens_and_is_no_grpc_server(says: tuple[bytes, ...], closing: bool) -> None:
    with listener(*says, closing=closing) as address:
        start = rf"the server at {address} \(strategy\.address\) does not answer like a TPU, which speaks gRPC: it"
        with pytest.raises(
            RunError, match=start + " does not greet like a gRPC server within 0\\.. s; check that the TPU"
        ):
            check(address, timeout_seconds=0.9)


@pytest.mark.parametrize("status", [404, 503])
def test_http_2_is_not_yet_grpc(status: int) -> None:
    """As proxies answer; the block of headers is one of RFC 7541: the name of index 8, and the status spelt out."""
    headers = b"\0\0\5\1\5\0\0\0\1\x48\x03" + str(status).encode()
    words = rf"it speaks HTTP/2 without gRPC \(.*status: {status}\); check that the TPU"
    with listener(SETTINGS, ACKNOWLEDGED, headers, pause=0.3) as address, pytest.raises(RunError, match=words):
        check(address)


def test_an_answer_to_a_call_may_come_later() -> None:
    with listener(SETTINGS, ACKNOWLEDGED) as address:
        assert check(address) == address


def test_a_web_server_is_no_tpu() -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            with pytest.raises(RunError, match="does not answer like a TPU, which speaks gRPC: it does not greet"):
                check(f"grpc://127.0.0.1:{server.server_port}", timeout_seconds=0.5)
        finally:
            server.shutdown()
            thread.join()


def test_what_says_nothing_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        tpu_address.within(0.05, threading.Event().wait)


def test_what_fails_in_time_is_raised() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        tpu_address.within(5.0, fail)
    assert tpu_address.within(5.0, lambda: 7) == 7


def test_the_strategy_asks_before_anything_else() -> None:
    with pytest.raises(RunError, match="strategy=tpu: this machine has no TPU chip"):
        strategies.build(TPU())


def test_without_tensorflow(tmp_path: Path) -> None:
    """A run tells that there is no TPU before it imports TensorFlow, which takes seconds."""
    script = """
import sys
from embexp.cli import commands
status = commands.main(sys.argv[1:])
print(status, [name for name in ("tensorflow", "keras", "numpy") if name in sys.modules])
"""
    with listener() as address:
        words = ["strategy=tpu", f"strategy.address={address}", "strategy.timeout_seconds=0.5"]
        command = [sys.executable, "-c", script, "run", *words, f"hydra.run.dir={tmp_path / 'run'}"]
        result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert result.stdout.splitlines()[-1] == "1 []"
    assert "it does not greet like a gRPC server within 0." in result.stderr
    assert "it does not greet like a gRPC server within 0." in (tmp_path / "run" / "run.log").read_text()
