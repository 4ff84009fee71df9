"""A TPU that is not there: said within seconds, with what is missing."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from embexp.errors import RunError
from embexp.specs.strategies import TPU
from embexp.strategies import build, tpu_system


@pytest.fixture(autouse=True)
def _no_tpu_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME", "TPU_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{_closed_port()}")
    monkeypatch.setattr(tpu_system, "_CHIPS", ("/nonexistent/accel*",))


def _closed_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


@contextlib.contextmanager
def listener() -> Iterator[str]:
    """Something that takes connections and says nothing."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        yield f"grpc://127.0.0.1:{server.getsockname()[1]}"


def check(address: str | None, **others: str) -> str:
    return tpu_system.check(address, others.get("zone"), others.get("project"), 2.0)


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
    with pytest.raises(RunError, match=rf"nothing answers at {address} \(strategy.address\) within 2 s"):
        check(address)


@pytest.mark.parametrize("address", ["grpc://127.0.0.1", "http://127.0.0.1:80", "grpc://a:port"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(RunError, match=r"an address looks like grpc://10\.0\.0\.2:8470"):
        check(address)


def test_the_environment_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TPU_NAME", f"grpc://127.0.0.1:{_closed_port()}")
    with pytest.raises(RunError, match=r"nothing answers at .* \(TPU_NAME\)"):
        check(None)


def test_a_name_means_something_to_google_only() -> None:
    with pytest.raises(RunError, match=r"TPU 'mine' .* no machine of Google's cloud .* are not both set either"):
        check("mine")
    with pytest.raises(RunError, match=r"does not answer\)\. Set strategy\.address"):
        check("mine", zone="z", project="p")


def test_what_listens_is_found() -> None:
    with listener() as address:
        assert check(address) == address


def test_what_says_nothing_is_given_up() -> None:
    with pytest.raises(TimeoutError):
        tpu_system.within(0.05, threading.Event().wait)


def test_what_fails_in_time_is_raised() -> None:
    def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        tpu_system.within(5.0, fail)
    assert tpu_system.within(5.0, lambda: 7) == 7


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            tf.errors.NotFoundError(None, None, "no device"),
            r"grpc://x:1 can't be used as a TPU \(NotFoundError: no device",
        ),
        (ValueError("Please provide a TPU Name\nto connect to."), r"\(ValueError: Please provide a TPU Name\)"),
    ],
)
def test_what_is_no_tpu(error: Exception, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def resolver(**_: object) -> None:
        raise error

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolver)
    with pytest.raises(RunError, match=words):
        tpu_system.connect("grpc://x:1", None, None, 5.0, 5.0)


@pytest.mark.parametrize(
    ("resolve", "words"),
    [
        (lambda **_: threading.Event().wait(), r"did not become a TPU within 0\.05 s \(strategy\.timeout_seconds\)"),
        (lambda **_: None, r"did not become a TPU within 0\.25 s \(strategy\.initialization_seconds\)"),
    ],
)
def test_a_tpu_that_does_not_come_up(resolve: Any, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", resolve)
    monkeypatch.setattr(tf.config, "experimental_connect_to_cluster", lambda _: None)
    monkeypatch.setattr(tf.tpu.experimental, "initialize_tpu_system", lambda _: threading.Event().wait())
    with pytest.raises(RunError, match=words):
        tpu_system.connect("grpc://x:1", None, None, 0.05, 0.25)


def test_the_strategy_asks_before_anything_else() -> None:
    with pytest.raises(RunError, match="strategy=tpu: this machine has no TPU chip"):
        build.build(TPU())
