"""The usual beginning of a TPU program under the simulation: resolver, connection, initialisation, devices."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import tpu_strategy
from tensorflow.python.distribute.cluster_resolver.tpu import tpu_cluster_resolver
from tensorflow.python.eager import context
from tensorflow.python.tpu import tpu_strategy_util

from embexp.simulation.devices import SimulatedDevices

Replacement = tuple[Any, str, Any]
"""A module or class of TensorFlow, the name of one of its attributes, and the replacement."""

_LOCAL = "local"
"""The address with which a real resolver asks nobody, and `experimental_connect_to_cluster` does nothing."""


def replacements(devices: SimulatedDevices, reset: Callable[[], None]) -> list[Replacement]:
    """Replacements with which TensorFlow's own resolver and strategies find the simulated TPU, whatever its address.

    Args:
        devices: the simulated TPU's.
        reset: empties it, as initialising a TPU does.
    """

    def initialize(cluster_resolver: Any = None, _: Any = None) -> Any:
        if not tf.executing_eagerly():
            raise RuntimeError("initialize_tpu_system: call it outside of any tf.function, at the program's start")
        reset()
        topology = devices.topology()
        if cluster_resolver is not None:
            cluster_resolver.set_tpu_topology(topology.serialized())
        return topology

    def shutdown(*_: Any) -> None:
        reset()

    def made(self: Any, tpu: Any = None, zone: Any = None, project: Any = None, *rest: Any, **others: Any) -> None:
        real_made(self, _LOCAL)
        self._cloud_tpu_client = _Client()

    def listed(self: Any, device_type: str | None = None) -> list[Any]:
        found: list[Any] = real_listed(self, device_type)
        return found + devices.logical() if device_type in (None, "TPU") else found

    resolver = tpu_cluster_resolver.TPUClusterResolver
    real_made, real_listed = resolver.__init__, context.Context.list_logical_devices
    return [
        (resolver, "__init__", made),
        (resolver, "get_tpu_system_metadata", lambda self: devices.metadata()),
        (context.Context, "list_logical_devices", listed),
        (tpu_strategy_util, "initialize_tpu_system_impl", initialize),
        (tpu_strategy_util, "shutdown_tpu_system_impl", shutdown),
        *(
            (strategy, "__init__", _simulated(strategy.__init__, devices))
            for strategy in (tpu_strategy.TPUStrategyV2, tpu_strategy.TPUStrategy, tpu_strategy.TPUStrategyV1)
        ),
    ]


class _Client(tpu_cluster_resolver._LocalCloudTpuClient):  # type: ignore[misc]
    """What programs for TPUs in the cloud ask of their client: nothing to do for a TPU that is simulated."""

    def configure_tpu_version(self, version: str, restart_type: str = "always") -> None:
        """Does nothing: the version of TensorFlow is that of this process."""

    def wait_for_healthy(self, timeout_s: int = 1200, interval: int = 30) -> None:
        """Does not wait."""

    def recoverable(self) -> bool:
        """True."""
        return True


def strategy() -> Any:
    """A `tf.distribute.TPUStrategy` of all cores, made as a TPU program makes it."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


@contextlib.contextmanager
def kept_soft_placement() -> Iterator[None]:
    """Lets `tf.config.set_soft_device_placement` choose what a TPU's host computes, and nothing else, until the end.

    TensorFlow itself goes on with soft placement: by it, operations on simulated cores run on the CPU.
    """
    owner = context.Context
    real = owner.soft_device_placement
    current = context.context()
    chosen: bool | None = current._soft_device_placement
    hard_before = chosen is False

    def choose(self: Any, enable: bool) -> None:
        nonlocal chosen
        chosen = enable

    def read(self: Any) -> bool:
        return bool(self.executing_eagerly() if chosen is None else chosen)

    if hard_before:
        real.fset(current, True)
    owner.soft_device_placement = property(read, choose)
    try:
        yield
    finally:
        owner.soft_device_placement = real
        if hard_before:
            real.fset(current, False)


def _simulated(real: Callable[..., None], devices: SimulatedDevices) -> Callable[..., None]:
    """`__init__` of a strategy that packs no variables and refuses new steps when the simulation has ended.

    Packed copies of a variable differ by their devices, and here all are on one.
    """

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        self._enable_packed_variable_in_eager_mode = False
        run = self.extended.tpu_run

        def run_while_simulated(*args: Any, **kwargs: Any) -> Any:
            if devices.ended:
                raise RuntimeError(
                    "strategy.run: this strategy's TPU was simulated, and its `with embexp.tpu_simulator(...)` block"
                    " has ended; run steps inside the block (saving and loading work after it, too)"
                )
            return run(*args, **kwargs)

        self.extended.tpu_run = run_while_simulated

    return made
