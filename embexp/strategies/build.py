"""The factory of strategies."""

from __future__ import annotations

from typing import assert_never

from embexp.specs import strategies as specs
from embexp.strategies import gpu, mirrored, tpu, tpu_simulator
from embexp.strategies.one_device import OneDevice, Serving
from embexp.strategies.strategy import Strategy


def build(spec: specs.Strategy, *, traced: bool = False) -> Strategy:
    """Makes a strategy, before anything else that a run does with TensorFlow, as devices can't change after that.

    Args:
        spec: the strategy's settings.
        traced: steps are only traced: a simulated TPU leaves a TPU's operations in their graphs.

    Raises:
        RunError: devices that the strategy needs are missing, or TensorFlow is already running without them.
    """
    match spec:
        case specs.CPU():
            return OneDevice()
        case specs.GPU():
            return gpu.build(spec.devices)
        case specs.Mirrored():
            return mirrored.build(spec.replicas)
        case specs.TPU():
            return tpu.build(spec)
        case specs.TPUSimulator():
            return tpu_simulator.build(spec, serve=not traced)
        case _:
            assert_never(spec)


def build_for_finished(spec: specs.Strategy) -> Strategy:
    """The strategy for a finished run, on this machine's processor: it looks up and predicts, and does not train."""
    return Serving() if spec.own_memory else OneDevice()
