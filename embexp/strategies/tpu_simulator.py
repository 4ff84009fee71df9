"""A TPU that isn't there: its code, down to the TPU's operations, which this machine's processor serves."""

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
        spec: how large the TPU is.
        serve: False: steps can only be traced, and the TPU's operations are found in their graphs.
    """
    from embexp import tpu_simulator  # the public one: what users' own scripts run on, and no other

    cores = spec.cores // spec.hosts
    devices = [f"simulated core {core} of host {host}" for host in range(spec.hosts) for core in range(cores)]
    simulated = partial(tpu_simulator, cores, hosts=spec.hosts, serve=serve)
    return TPUStrategy("strategy=tpu_simulator", simulated, devices, notes=(_NOTE,))
