"""Where a TPU is, as far as that can be told before TensorFlow is there: found, or missed in words that help.

It takes seconds to import TensorFlow, and minutes until its own resolver gives up.
"""

from __future__ import annotations

import importlib.util
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from embexp.errors import RunError
from embexp.specs.strategies import TPU, Strategy
from embexp.strategies import grpc_server

_Result = TypeVar("_Result")
_NAMES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
"""Environment variables in which `TPUClusterResolver` looks for the TPU's name or address, in its order."""
_CHIPS = ("/dev/accel*", "/dev/vfio/[0-9]*")
REMEDY = "or set strategy=tpu_simulator, which executes the same code on this machine's processor"
LOCAL = "local"
_METADATA_SECONDS = 3.0
"""For an answer of the metadata server, which is near where there is one."""
_GRACE = 0.25
"""Seconds in which an answer that just came in time is handed over; looking up a name knows no time limit."""


def check_strategy(strategy: Strategy) -> None:
    """Finds the TPU of a strategy that needs one, as `check` does.

    Raises:
        RunError: there is none.
    """
    if isinstance(strategy, TPU):
        check(strategy.address, strategy.zone, strategy.project, strategy.timeout_seconds)


def check(address: str | None, zone: str | None, project: str | None, timeout_seconds: float) -> str:
    """Finds the TPU, as far as that can be told without TensorFlow.

    Args:
        address: name of the TPU, where it listens, or `local`; None: what the environment or this machine has.
        zone: of a TPU that is given by name.
        project: of a TPU that is given by name.
        timeout_seconds: to wait for an answer.

    Returns:
        The address for `TPUClusterResolver`.

    Raises:
        RunError: there is none; it says what is missing.
    """
    found, origin = address, "strategy.address"
    if found is None:
        origin = next((name for name in _NAMES if os.environ.get(name)), LOCAL)
        found = os.environ.get(origin, LOCAL)
    if found == LOCAL:
        fault = _local(unnamed=address is None)
    elif ":" in found:
        faults = (_reachable(each, origin, timeout_seconds) for each in found.split(","))
        fault = next(filter(None, faults), "")
    else:
        fault = _named(found, origin, min(timeout_seconds, _METADATA_SECONDS), zone is not None and project is not None)
    if fault:
        raise RunError(f"strategy=tpu: {fault}")
    return found


def within(seconds: float, function: Callable[[], _Result]) -> _Result:
    """What a function returns, or raises, if it does so in time.

    It goes on in a thread of its own, which nobody waits for after that.

    Raises:
        TimeoutError: it takes longer.
    """
    outcome: Future[_Result] = Future()

    def call() -> None:
        try:
            outcome.set_result(function())
        except BaseException as error:  # handed over to whoever waits
            outcome.set_exception(error)

    threading.Thread(target=call, name="embexp-tpu", daemon=True).start()
    return outcome.result(timeout=seconds)


def _local(*, unnamed: bool) -> str:
    """What this machine lacks to be a TPU's; `unnamed`: and nobody has named another TPU. Likewise the next two."""
    driver = importlib.util.find_spec("libtpu") is not None
    chips = any(path for pattern in _CHIPS for path in Path("/").glob(pattern.lstrip("/")))
    if chips and driver:
        return ""
    lacking = {
        "this machine has no TPU chip (no /dev/accel*, no /dev/vfio/*)": not chips,
        "the TPU's driver, package libtpu, is not installed (it comes with tensorflow-tpu)": not driver,
        f"no TPU is named: strategy.address is null, and so are {' and '.join(_NAMES)} in the environment": unnamed,
    }
    words = "; ".join(each for each, holds in lacking.items() if holds)
    return f"{words}. Set strategy.address to the TPU's name or grpc://…, {REMEDY}"


def _reachable(address: str, origin: str, timeout_seconds: float) -> str:
    parts = urlsplit(address if "://" in address else f"grpc://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme != "grpc" or not host or port is None:
        return f"{origin} is {address!r}; an address looks like grpc://10.0.0.2:8470"
    until = time.monotonic() + timeout_seconds
    try:
        fault = within(timeout_seconds + _GRACE, lambda: grpc_server.fault(host, port, until))
    except (OSError, TimeoutError) as error:
        return (
            f"nothing answers at {address} ({origin}) within {timeout_seconds:g} s (strategy.timeout_seconds):"
            f" {error or 'no answer'}; see that the TPU is up and can be reached from here, {REMEDY}"
        )
    if fault is None:
        return ""
    return (
        f"what listens at {address} ({origin}) does not answer as a TPU does, which speaks gRPC: it {fault}; see that"
        f" the TPU is up and that this is its port, {REMEDY}"
    )


def _named(name: str, origin: str, timeout_seconds: float, placed: bool) -> str:
    """A TPU that Google's services know by name: where it is they tell only machines of theirs."""
    names = "GCE_METADATA_IP", "GCE_METADATA_HOST"
    server = next(filter(None, map(os.environ.get, names)), "metadata.google.internal")
    host, _, port = server.partition(":")
    try:  # looking up the host's name may take longer than the connection is given
        within(timeout_seconds, lambda: socket.create_connection((host, int(port or 80)), timeout_seconds).close())
    except (OSError, TimeoutError, ValueError):
        lacking = "" if placed else "; strategy.zone and strategy.project are not both set either"
        return (
            f"TPU {name!r} ({origin}) is looked up by name, and this is no machine of Google's cloud (its metadata"
            f" server {server} does not answer){lacking}."
            f" Set strategy.address=grpc://…, where the TPU listens, {REMEDY}"
        )
    return ""
