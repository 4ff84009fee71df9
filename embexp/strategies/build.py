"""The factory of places to run."""

from __future__ import annotations

from typing import assert_never

from embexp.errors import RunError
from embexp.specs.strategies import CPU, GPU, TPU, Mirrored, Strategy, TPUSimulator
from embexp.strategies import graphics, mirrored
from embexp.strategies.one_device import OneDevice
from embexp.strategies.placement import Placement


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
        case TPU() | TPUSimulator():
            raise RunError(f"strategy={strategy.kind} is not there yet")
        case _:
            assert_never(strategy)
