"""The factory of places to run."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, assert_never

from embexp.specs.strategies import CPU, GPU, TPU, Mirrored, Strategy, TPUSimulator
from embexp.strategies import gpu, mirrored, tpu_address, tpu_system
from embexp.strategies.one_device import OneDevice
from embexp.strategies.strategy import Placement
from embexp.strategies.tpu import TPUPlacement


def build(strategy: Strategy) -> Placement:
    """Makes a place ready; the first thing that a run does with TensorFlow, as devices can't change after it.

    Raises:
        RunError: what the strategy needs is not there, or TensorFlow is already running without it.
    """
    match strategy:
        case CPU():
            return OneDevice()
        case GPU():
            return gpu.placement(strategy.devices)
        case Mirrored():
            return mirrored.placement(strategy.replicas)
        case TPU():
            return _tpu(strategy)
        case TPUSimulator():
            return simulated_tpu(strategy)
        case _:
            assert_never(strategy)


def opened(placement: Placement) -> AbstractContextManager[Any]:
    """The time in which a place is there: of a TPU all that is made on it, and every step, must be inside."""
    return placement.opened() if isinstance(placement, TPUPlacement) else contextlib.nullcontext()


def _tpu(strategy: TPU) -> TPUPlacement:
    where = strategy.zone, strategy.project, strategy.timeout_seconds
    address = tpu_address.check(strategy.address, *where)
    there = tpu_system.connect(address, *where, strategy.initialization_seconds)
    return TPUPlacement(
        "strategy=tpu",
        lambda: contextlib.nullcontext(there),
        there.extended.worker_devices,
        pipelined=strategy.pipeline_execution_with_tensor_core,
    )


def simulated_tpu(strategy: TPUSimulator, *, serve: bool = True) -> TPUPlacement:
    """A TPU that isn't there.

    Args:
        strategy: how large it is.
        serve: False: steps can only be traced, and the TPU's operations are found in their graphs.
    """
    from embexp import tpu_simulator  # the public one: what users' own scripts run on, and no other

    cores = strategy.cores // strategy.hosts
    devices = [f"simulated core {core} of host {host}" for host in range(strategy.hosts) for core in range(cores)]
    simulated = partial(tpu_simulator, cores, hosts=strategy.hosts, serve=serve)
    return TPUPlacement("strategy=tpu_simulator", simulated, devices)
