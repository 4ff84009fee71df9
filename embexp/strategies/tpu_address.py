"""Where a TPU is, as far as that can be told before TensorFlow is there: found, or missed in words that help.

It takes seconds to import TensorFlow, and minutes until its own resolver gives up.
"""

from __future__ import annotations

import importlib.util
import os
import queue
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from embexp.errors import RunError
from embexp.strategies import grpc_server

_NAMES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
"""Environment variables in which `TPUClusterResolver` looks for the TPU's name or address, in its order."""
_METADATA = ("GCE_METADATA_IP", "metadata.google.internal")
"""Variable that names the metadata server of Google's machines, and its name without."""
_CHIPS = ("/dev/accel*", "/dev/vfio/[0-9]*")
REMEDY = "or set strategy=tpu_simulator, which executes the same code on this machine's processor"
LOCAL = "local"
_GRACE = 0.25
"""Seconds in which an answer that just came in time is handed over; looking up a name knows no time limit."""


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
        _check_local(address)
    elif "://" in found or ":" in found:
        for each in found.split(","):
            _check_reachable(each, origin, timeout_seconds)
    else:
        _check_named(found, origin, zone, project, timeout_seconds)
    return found


def within(seconds: float, function: Callable[[], Any]) -> Any:
    """What a function returns, or raises, if it does so in time.

    It goes on in a thread of its own, which nobody waits for after that.

    Raises:
        TimeoutError: it takes longer.
    """
    outcome: queue.Queue[tuple[Any, BaseException | None]] = queue.Queue(1)

    def call() -> None:
        try:
            outcome.put((function(), None))
        except BaseException as error:  # handed over to whoever waits
            outcome.put((None, error))

    threading.Thread(target=call, name="embexp-tpu", daemon=True).start()
    try:
        result, error = outcome.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError from None
    if error is not None:
        raise error
    return result


def _check_local(asked: str | None) -> None:
    chips = [path for pattern in _CHIPS for path in Path("/").glob(pattern.lstrip("/"))]
    if chips and importlib.util.find_spec("libtpu") is not None:
        return
    lacking = []
    if not chips:
        lacking.append("this machine has no TPU chip (no /dev/accel*, no /dev/vfio/*)")
    if importlib.util.find_spec("libtpu") is None:
        lacking.append("the TPU's driver, package libtpu, is not installed (it comes with tensorflow-tpu)")
    if asked is None:
        lacking.append(
            f"no TPU is named: strategy.address is null, and so are {' and '.join(_NAMES)} in the environment"
        )
    raise RunError(f"strategy=tpu: {'; '.join(lacking)}. Set strategy.address to the TPU's name or grpc://…, {REMEDY}")


def _check_reachable(address: str, origin: str, timeout_seconds: float) -> None:
    parts = urlsplit(address if "://" in address else f"grpc://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme != "grpc" or not host or port is None:
        raise RunError(f"strategy=tpu: {origin} is {address!r}; an address looks like grpc://10.0.0.2:8470")
    until = time.monotonic() + timeout_seconds
    try:
        fault = within(timeout_seconds + _GRACE, lambda: grpc_server.fault(host, port, until))
    except (OSError, TimeoutError) as error:
        raise RunError(
            f"strategy=tpu: nothing answers at {address} ({origin}) within {timeout_seconds:g} s"
            f" (strategy.timeout_seconds): {error or 'no answer'}; see that the TPU is up and can be reached from here,"
            f" {REMEDY}"
        ) from None
    if fault is not None:
        raise RunError(
            f"strategy=tpu: what listens at {address} ({origin}) does not answer as a TPU does, which speaks gRPC: it"
            f" {fault}; see that the TPU is up and that this is its port, {REMEDY}"
        )


def _check_named(name: str, origin: str, zone: str | None, project: str | None, timeout_seconds: float) -> None:
    """A TPU that Google's services know by name; where it is they tell only machines of theirs."""
    variable, default = _METADATA
    server = os.environ.get(variable) or os.environ.get("GCE_METADATA_HOST") or default
    try:
        host, _, port = server.partition(":")
        _connected(host, int(port or 80), min(timeout_seconds, 3.0))
    except (OSError, TimeoutError, ValueError):
        given = zone is not None and project is not None
        raise RunError(
            f"strategy=tpu: TPU {name!r} ({origin}) is looked up by name, and this is no machine of Google's cloud (its"
            f" metadata server {server} does not answer)"
            + ("" if given else "; strategy.zone and strategy.project are not both set either")
            + f". Set strategy.address=grpc://…, where the TPU listens, {REMEDY}"
        ) from None


def _connected(host: str, port: int, timeout_seconds: float) -> None:
    """Opens a connection and closes it again, all within the time, also what looking up the name takes.

    Raises:
        OSError: there is none.
        TimeoutError: it takes longer.
    """
    within(timeout_seconds, lambda: socket.create_connection((host, port), timeout=timeout_seconds).close())
