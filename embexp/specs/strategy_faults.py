"""What a strategy can't honour, found before anything starts. No TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator

from embexp.errors import CombinationFault
from embexp.specs import tpu_faults
from embexp.specs.partial import of_each
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.strategies import CPU, GPU, TPU, Mirrored, TPUSimulator, replicas_of

_ON_ONE_DEVICE = (RuntimeKind.SESSION, RuntimeKind.ESTIMATOR)
"""Runtimes that know nothing of replicas."""


def faults(spec: RunSpec) -> Iterator[CombinationFault]:
    """Settings that the spec's strategy can't honour, whatever the runtime."""
    match spec.strategy:
        case CPU():
            pass
        case GPU() | Mirrored():
            yield from _shared_batches(spec)
        case TPU() | TPUSimulator():
            yield from tpu_faults.faults(spec, spec.strategy)


def of_runtime(spec: RunSpec, runtime: RuntimeKind) -> Iterator[CombinationFault]:
    """A runtime that the spec's strategy can't honour.

    Args:
        spec: what the user asked for.
        runtime: that would execute it; `auto` where the tables' ways in share none.
    """
    strategy = spec.strategy
    if runtime not in _ON_ONE_DEVICE or isinstance(strategy, CPU) or (isinstance(strategy, GPU) and _alone(spec)):
        return
    yield CombinationFault(
        "runtime",
        runtime.value,
        f"it works with strategy cpu or one gpu, and the strategy is {strategy.kind}"
        + (f" with {strategy.devices} devices" if isinstance(strategy, GPU) else ""),
        "set strategy=cpu, or runtime=function with a way in that works there (init=assign)",
    )


def _shared_batches(spec: RunSpec) -> Iterator[CombinationFault]:
    """Batches that can't be cut into parts, one for each replica."""
    replicas = replicas_of(spec.strategy)
    if replicas is None or replicas == 1:
        return
    words = f"the {replicas} replicas of strategy {spec.strategy.kind} share each batch"
    if spec.train.batch_size < replicas:
        yield CombinationFault(
            "train.batch_size",
            str(spec.train.batch_size),
            f"{words}, and each needs an example",
            f"set it to {replicas} or more",
        )

    def of_feature(name: str) -> Iterator[CombinationFault]:
        shape = spec.features[name].output_shape
        if shape is not None and shape[0] != spec.train.batch_size:
            yield CombinationFault(
                f"features.{name}.output_shape",
                str(list(shape)),
                f"{words} by examples, so the first number must be train.batch_size ({spec.train.batch_size})",
                "set strategy=cpu, or reshape in the model",
            )

    yield from of_each(lambda: spec.features, of_feature)


def _alone(spec: RunSpec) -> bool:
    return replicas_of(spec.strategy) == 1
