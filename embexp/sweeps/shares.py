"""How the jobs that run at once share this machine: numbers of threads, and GPUs."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from embexp.specs.run import RunSpec
from embexp.specs.strategies import GPU
from embexp.specs.sweeping import Launching


def jobs_at_once(launching: Launching, specs: Sequence[RunSpec], gpus: Sequence[str]) -> int:
    """The number of jobs to run at once; for `auto`, one for each core, or for each GPU that the jobs use."""
    if launching.jobs != "auto":
        return launching.jobs
    devices = max((gpus_of(spec) for spec in specs), default=0)
    return max(1, len(gpus) // devices) if devices and gpus else cores()


def with_threads(spec: RunSpec, jobs: int) -> RunSpec:
    """A spec with its share of the cores, where it leaves the numbers of threads to TensorFlow.

    They are part of the spec because they decide the last bits of large products: so they are recorded, and a resumed
    job has them again.

    Args:
        spec: what the user asked for.
        jobs: number of jobs that share the cores; 1 leaves the spec as it is.
    """
    share = max(1, cores() // jobs)
    unset = [key for key in ("intra_op_threads", "inter_op_threads") if not getattr(spec.strategy, key)]
    if jobs == 1 or not unset:
        return spec
    return spec.model_copy(update={"strategy": spec.strategy.model_copy(update=dict.fromkeys(unset, share))})


def gpus_of(spec: RunSpec) -> int:
    """Number of GPUs that a job uses."""
    return spec.strategy.devices if isinstance(spec.strategy, GPU) else 0


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def visible_gpus() -> tuple[str, ...]:
    """The GPUs that `CUDA_VISIBLE_DEVICES` leaves visible, or else those that the driver knows, by their numbers."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return tuple(each.strip() for each in named.split(",") if each.strip() not in ("", "-1"))
    return tuple(str(number) for number, _ in enumerate(Path("/proc/driver/nvidia/gpus").glob("*")))
