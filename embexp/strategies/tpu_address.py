"""The address of a TPU, or an error that says why there is none, found without TensorFlow.

TensorFlow takes seconds to import, and its own resolver minutes to give up.
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
from embexp.system import environment

_Result = TypeVar("_Result")
_NAMES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
"""Environment variables in which `TPUClusterResolver` looks for the TPU's name or address, in its order."""
_CHIPS = ("/dev/accel*", "/dev/vfio/[0-9]*")
REMEDY = "or set strategy=tpu_simulator, which runs the same code on this machine's processor"
LOCAL = "local"
_METADATA_SECONDS = 3.0
"""Time limit for the metadata server, which is near if there is one."""
_GRACE = 0.25
"""Seconds to hand over an answer that came just in time; looking up a name knows no time limit."""
_CALL = "/tensorflow.WorkerService/GetStatus"
"""TensorFlow's first call of a worker; it changes nothing there."""
_SILENCE_SECONDS = 2.0
"""Time limit for the greeting of a gRPC server, which comes at once."""
_CALL_SECONDS = 1.0
"""Time limit for the answer to a call. A late answer does no harm: TensorFlow retries."""


def check_strategy(strategy: Strategy) -> None:
    """Checks the address of the TPU, for strategy=tpu.

    Raises:
        RunError: no TPU was found.
    """
    if isinstance(strategy, TPU):
        check(strategy.address, strategy.zone, strategy.project, strategy.timeout_seconds)


def check(address: str | None, zone: str | None, project: str | None, timeout_seconds: float) -> str:
    """Finds a TPU's address, and checks it as far as possible without TensorFlow.

    Args:
        address: the TPU's name or address, or `local`; None: from the environment, or this machine's TPU.
        zone: zone of a TPU that has a name.
        project: project of a TPU that has a name.

    Returns:
        The address for `TPUClusterResolver`.

    Raises:
        RunError: no TPU was found; the message says what is missing.
    """
    found, origin = address, "strategy.address"
    if found is None:
        origin = next((name for name in _NAMES if os.environ.get(name)), LOCAL)
        found = os.environ.get(origin, LOCAL)
    if found == LOCAL:
        fault = _local(unnamed=address is None)
    elif ":" in found:
        faults = (_reachable(part, origin, timeout_seconds) for part in found.split(","))
        fault = next(filter(None, faults), "")
    else:
        fault = _named(found, origin, min(timeout_seconds, _METADATA_SECONDS), zone is not None and project is not None)
    if fault:
        raise RunError(f"strategy=tpu: {fault}")
    return found


def within(seconds: float, function: Callable[[], _Result]) -> _Result:
    """Calls a function in a new thread and returns its result, or raises its exception.

    Raises:
        TimeoutError: it takes longer; the thread is abandoned.
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
    """Why this machine's TPU can't be used, "" if it can; `unnamed`: no other TPU is named either."""
    driver = importlib.util.find_spec("libtpu") is not None
    chips = any(path for pattern in _CHIPS for path in Path("/").glob(pattern.lstrip("/")))
    if chips and driver:
        return ""
    lacking = {
        "this machine has no TPU chip (no /dev/accel*, no /dev/vfio/*)": not chips,
        "the TPU's driver, package libtpu, is not installed (it comes with tensorflow-tpu)": not driver,
        f"no TPU is named: strategy.address is null, and so are {' and '.join(_NAMES)} in the environment": unnamed,
    }
    reasons = "; ".join(each for each, holds in lacking.items() if holds)
    return f"{reasons}. Set strategy.address to the TPU's name or grpc://…, {REMEDY}"


def _reachable(address: str, origin: str, timeout_seconds: float) -> str:
    """Why the TPU at an address can't be used, "" if it can."""
    parts = urlsplit(address if "://" in address else f"grpc://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme != "grpc" or not host or port is None:
        return f"{origin} is {address!r}; an address looks like grpc://10.0.0.2:8470"
    until = time.monotonic() + timeout_seconds
    try:
        fault = within(timeout_seconds + _GRACE, lambda: _grpc_fault(host, port, until))
    except (OSError, TimeoutError) as error:
        return (
            f"nothing answered at {address} ({origin}) within {timeout_seconds:g} s (strategy.timeout_seconds):"
            f" {error or 'no answer'}; check that the TPU is up and reachable from here, {REMEDY}"
        )
    if fault is None:
        return ""
    return (
        f"the server at {address} ({origin}) does not answer like a TPU, which speaks gRPC: it {fault}; check "
        f"that the TPU is up and that this is its port, {REMEDY}"
    )


def _grpc_fault(host: str, port: int, until: float) -> str | None:
    """Why a server is no gRPC server, as TensorFlow's workers are: words that follow "it"; None: it is one.

    Gives up at `until`, by `time.monotonic`.

    Raises:
        OSError: nothing accepts connections there.
    """
    socket.create_connection((host, port), timeout=max(0.1, until - time.monotonic())).close()
    environment.quiet()
    import grpc

    silent = min(max(0.1, until - time.monotonic()), _SILENCE_SECONDS)
    target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    with grpc.insecure_channel(target, options=(("grpc.enable_http_proxy", 0),)) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=silent)
        except grpc.FutureTimeoutError:
            return f"does not greet like a gRPC server within {silent:.1f} s"
        try:
            channel.unary_unary(_CALL)(b"", timeout=_CALL_SECONDS)
        except grpc.RpcError as error:
            # Something that speaks HTTP/2, as proxies do, can greet as well; but a gRPC server answers every call with
            # status 200 of HTTP, even if the call fails (gRPC over HTTP/2, "Responses").
            if "http2 header with status" in (details := error.details() or ""):
                return f"speaks HTTP/2 without gRPC ({details})"
    return None


def _named(name: str, origin: str, timeout_seconds: float, placed: bool) -> str:
    """Why a TPU's name can't be looked up, "" if it can: Google's services answer only within their cloud."""
    names = "GCE_METADATA_IP", "GCE_METADATA_HOST"
    server = next(filter(None, map(os.environ.get, names)), "metadata.google.internal")
    host, _, port = server.partition(":")
    try:  # looking up the host's name may take longer than the connection's time limit
        within(timeout_seconds, lambda: socket.create_connection((host, int(port or 80)), timeout_seconds).close())
    except (OSError, TimeoutError, ValueError):
        lacking = "" if placed else ", and strategy.zone and strategy.project are not both set"
        return (
            f"TPU {name!r} ({origin}) is looked up by name, but this machine is not in Google Cloud (the "
            f"metadata server {server} does not answer){lacking}. Set strategy.address=grpc://… to where the "
            f"TPU listens, {REMEDY}"
        )
    return ""
