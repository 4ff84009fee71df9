"""The factory of places to run."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, assert_never

from embexp.specs.strategies import CPU, GPU, TPU, Mirrored, Strategy, TPUSimulator
from embexp.strategies import graphics, mirrored, tpu_system
from embexp.strategies.one_device import OneDevice
from embexp.strategies.placement import Placement
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
            return graphics.placement(strategy.devices)
        case Mirrored():
            return mirrored.placement(strategy.replicas)
        case TPU():
            return _tpu(strategy)
        case TPUSimulator():
            return _tpu_simulator(strategy)
        case _:
            assert_never(strategy)


def opened(placement: Placement) -> AbstractContextManager[Any]:
    """The time in which a place is there: of a TPU all that is made on it, and every step, must be inside."""
    return placement.opened() if isinstance(placement, TPUPlacement) else contextlib.nullcontext()


def _tpu(strategy: TPU) -> TPUPlacement:
    where = strategy.zone, strategy.project, strategy.timeout_seconds
    there = tpu_system.connect(tpu_system.check(strategy.address, *where), *where)
    return TPUPlacement(
        "strategy=tpu",
        lambda: contextlib.nullcontext(there),
        simulated=False,
        pipelined=strategy.pipeline_execution_with_tensor_core,
    )


def _tpu_simulator(strategy: TPUSimulator) -> TPUPlacement:
    from embexp import tpu_simulator  # the public one: what users' own scripts run on, and no other

    hosts = strategy.hosts
    simulated = partial(tpu_simulator, strategy.cores // hosts, hosts=hosts)
    return TPUPlacement("strategy=tpu_simulator", simulated, simulated=True)
