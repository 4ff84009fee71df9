"""A simulated TPU: this machine's processor executes the code of a TPU, down to the TPU's operations."""

from __future__ import annotations

from functools import partial

from embexp.specs.strategies import TPUSimulator
from embexp.strategies.tpu import TPUStrategy

_NOTE = (
    "strategy tpu_simulator is a simulation: this is what a TPU learns, computed by this machine's processor;"
    " throughput and step time are not those of a TPU"
)


def build(spec: TPUSimulator, *, serve: bool) -> TPUStrategy:
    """Makes the strategy.

    Args:
        spec: the size of the TPU.
        serve: False: steps can only be traced; their graphs contain the TPU's operations.
    """
    from embexp import tpu_simulator  # the public one, which users' scripts run on

    cores = spec.cores // spec.hosts
    devices = [f"simulated core {core} of host {host}" for host in range(spec.hosts) for core in range(cores)]
    simulated = partial(tpu_simulator, cores, hosts=spec.hosts, serve=serve)
    return TPUStrategy(
        "strategy=tpu_simulator",
        simulated,
        devices,
        pipelined=spec.pipeline_execution_with_tensor_core,
        notes=(_NOTE,),
    )
