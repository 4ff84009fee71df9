"""The factory of strategies, with GPUs, or the error that says why TensorFlow finds none."""

from __future__ import annotations

from typing import assert_never

import tensorflow as tf

from embexp.errors import RunError
from embexp.specs import strategies as specs
from embexp.strategies import mirrored, tpu
from embexp.strategies.one_device import OneDevice
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
            return build_gpu(spec.devices)
        case specs.Mirrored():
            return mirrored.build_mirrored(spec.replicas)
        case specs.TPU():
            return tpu.build_tpu(spec)
        case specs.TPUSimulator():
            return tpu.build_simulator(spec, serve=not traced)
        case _:
            assert_never(spec)


def build_gpu(count: int) -> Strategy:
    """A strategy for one GPU, or for several that mirror the dense part; rows stay in the machine's memory.

    Raises:
        RunError: there are fewer GPUs; the message says what is missing.
    """
    found = len(tf.config.list_physical_devices("GPU"))
    if found < count:
        raise RunError(_missing(count, found, cuda=bool(tf.test.is_built_with_gpu_support())))
    # Operations without a GPU kernel, such as counters of some types, go to the processor; sessions need this setting.
    tf.config.set_soft_device_placement(True)
    if count == 1:
        return OneDevice("/GPU:0")
    return mirrored.MirroredStrategy([f"GPU:{number}" for number in range(count)])


def _missing(count: int, found: int, *, cuda: bool) -> str:
    if found:
        return (
            f"strategy=gpu with strategy.devices={count}: TensorFlow sees {found} GPU{'s' if found > 1 else ''};"
            f" set strategy.devices={found}, or see what CUDA_VISIBLE_DEVICES leaves visible"
        )
    if not cuda:
        return (
            "strategy=gpu: this TensorFlow was built without support for GPUs; install one that has it"
            " (pip install 'embexp[gpu]'), or set strategy=cpu"
        )
    return (
        "strategy=gpu: TensorFlow sees no GPU. It needs a GPU that CUDA supports, its driver (nvidia-smi lists it), the"
        " CUDA libraries (pip install 'embexp[gpu]') and no CUDA_VISIBLE_DEVICES that hides it; or set strategy=cpu"
    )
