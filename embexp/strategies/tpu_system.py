"""A real TPU: found and connected to, or missed within seconds and in words that help.

TensorFlow's own resolver asks for minutes, again and again, before it gives up. So what it would need is looked for
first, and the rest is left no more time than the settings say.
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

import tensorflow as tf

from embexp.errors import RunError

_NAMES = ("KUBE_GOOGLE_CLOUD_TPU_ENDPOINTS", "TPU_NAME")
"""Environment variables in which `TPUClusterResolver` looks for the TPU's name or address, in its order."""
_METADATA = ("GCE_METADATA_IP", "metadata.google.internal")
"""Variable that names the metadata server of Google's machines, and its name without."""
_CHIPS = ("/dev/accel*", "/dev/vfio/[0-9]*")
_REMEDY = "or set strategy=tpu_simulator, which executes the same code on this machine's processor"
LOCAL = "local"


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


def connect(
    address: str, zone: str | None, project: str | None, timeout_seconds: float, initialization_seconds: float
) -> Any:
    """Connects to the TPU and initialises it.

    Args:
        address: see `check`.
        zone: of a TPU that is given by name.
        project: of a TPU that is given by name.
        timeout_seconds: to wait for an answer.
        initialization_seconds: to wait for the TPU to be ready after that.

    Returns:
        A `tf.distribute.TPUStrategy`.

    Raises:
        RunError: it does not answer in time, or there is no TPU behind the address.
    """

    def resolved() -> Any:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address, zone=zone, project=project)
        if address != LOCAL:
            tf.config.experimental_connect_to_cluster(resolver)
        return resolver

    waited, setting = timeout_seconds, "timeout_seconds"
    try:
        resolver = within(timeout_seconds, resolved)
        waited, setting = initialization_seconds, "initialization_seconds"
        within(initialization_seconds, lambda: tf.tpu.experimental.initialize_tpu_system(resolver))
        return tf.distribute.TPUStrategy(resolver)
    except TimeoutError:
        raise RunError(
            f"strategy=tpu: {address} was found, but did not become a TPU within {waited:g} s (strategy.{setting});"
            f" see that it is up and free, {_REMEDY}"
        ) from None
    except (ValueError, RuntimeError, ImportError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()
        raise RunError(
            f"strategy=tpu: {address} can't be used as a TPU ({type(error).__name__}: {reason[0] if reason else ''});"
            f" see that it is up and free, {_REMEDY}"
        ) from error


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
    raise RunError(f"strategy=tpu: {'; '.join(lacking)}. Set strategy.address to the TPU's name or grpc://…, {_REMEDY}")


def _check_reachable(address: str, origin: str, timeout_seconds: float) -> None:
    parts = urlsplit(address if "://" in address else f"grpc://{address}")
    try:
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if parts.scheme != "grpc" or not host or port is None:
        raise RunError(f"strategy=tpu: {origin} is {address!r}; an address looks like grpc://10.0.0.2:8470")
    try:
        _answered(host, port, timeout_seconds)
    except (OSError, TimeoutError) as error:
        raise RunError(
            f"strategy=tpu: nothing answers at {address} ({origin}) within {timeout_seconds:g} s"
            f" (strategy.timeout_seconds): {error or 'no answer'}; see that the TPU is up and can be reached from here,"
            f" {_REMEDY}"
        ) from None


def _check_named(name: str, origin: str, zone: str | None, project: str | None, timeout_seconds: float) -> None:
    """A TPU that Google's services know by name; where it is they tell only machines of theirs."""
    variable, default = _METADATA
    server = os.environ.get(variable) or os.environ.get("GCE_METADATA_HOST") or default
    try:
        host, _, port = server.partition(":")
        _answered(host, int(port or 80), min(timeout_seconds, 3.0))
    except (OSError, TimeoutError, ValueError):
        given = zone is not None and project is not None
        raise RunError(
            f"strategy=tpu: TPU {name!r} ({origin}) is looked up by name, and this is no machine of Google's cloud (its"
            f" metadata server {server} does not answer)"
            + ("" if given else "; strategy.zone and strategy.project are not both set either")
            + f". Set strategy.address=grpc://…, where the TPU listens, {_REMEDY}"
        ) from None


def _answered(host: str, port: int, timeout_seconds: float) -> None:
    """Opens a connection and closes it again, all within the time, also what looking up the name takes.

    Raises:
        OSError: there is none.
        TimeoutError: it takes longer.
    """
    until = time.monotonic() + timeout_seconds

    def open_and_close() -> None:
        socket.create_connection((host, port), timeout=max(0.1, until - time.monotonic())).close()

    within(timeout_seconds, open_and_close)
