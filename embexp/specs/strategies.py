"""Strategies: where the rows of tables live, where the steps run, and how many replicas share a batch."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, assert_never

from pydantic import Field, model_validator

from embexp.specs.base import Count, Positive, Spec, WholeNumber


class _Threads(Spec):
    simulated: ClassVar[bool] = False
    """Whether devices are simulated that this machine does not have."""
    own_memory: ClassVar[bool] = False
    """Whether tables are in the devices' own memory, with frozen rows apart from those that train."""
    fixed_batch: ClassVar[bool] = False
    """Whether all batches must have one size."""
    intra_op_threads: WholeNumber = 0
    """Threads inside one operation; 0: TensorFlow decides."""
    inter_op_threads: WholeNumber = 0
    """Operations at once; 0: TensorFlow decides."""


class CPU(_Threads):
    """One device: this machine's processor."""

    kind: Literal["cpu"] = "cpu"


class GPU(_Threads):
    """The dense part on one GPU, or mirrored over several; rows stay in the machine's own memory."""

    kind: Literal["gpu"] = "gpu"
    devices: Count = 1
    """GPUs that share each batch: the first ones that TensorFlow sees."""


class Mirrored(_Threads):
    """The dense part mirrored over GPUs, or over logical processors where there are none; one copy of the rows."""

    kind: Literal["mirrored"] = "mirrored"
    replicas: Count = 2
    """Devices that share each batch."""


class TPU(_Threads):
    """A TPU, its tables in its own memory."""

    own_memory: ClassVar[bool] = True
    fixed_batch: ClassVar[bool] = True
    kind: Literal["tpu"] = "tpu"
    address: Annotated[str, Field(min_length=1)] | None = None
    """Name of the TPU, where it listens (grpc://…), or local; null: what the environment names, or this machine's."""
    zone: str | None = None
    """Zone of a TPU that is given by name; null: that of the environment."""
    project: str | None = None
    """Project of a TPU that is given by name; null: that of the environment."""
    timeout_seconds: Positive = 5.0
    """Seconds to wait for an answer of the TPU before the run fails."""
    initialization_seconds: Positive = 300.0
    """Seconds that a TPU which answers may take to be ready."""
    pipeline_execution_with_tensor_core: bool = False
    """Look a step's rows up while the step before is computed: faster, on rows as they were one step earlier."""


class TPUSimulator(_Threads):
    """What a TPU would do, by its own code down to the TPU's operations, which this machine's processor serves."""

    simulated: ClassVar[bool] = True
    own_memory: ClassVar[bool] = True
    fixed_batch: ClassVar[bool] = True
    kind: Literal["tpu_simulator"] = "tpu_simulator"
    cores: Count = 2
    """Cores of the simulated TPU; each is a replica."""
    hosts: Count = 1
    """Hosts that share the cores."""

    @model_validator(mode="after")
    def _divides(self) -> TPUSimulator:
        if self.cores % self.hosts:
            raise ValueError(f"hosts have equally many cores, and {self.hosts} hosts can't share {self.cores} cores so")
        return self


Strategy = Annotated[CPU | GPU | Mirrored | TPU | TPUSimulator, Field(discriminator="kind")]


def described(strategy: Strategy) -> str:
    """A strategy in a few words for people."""
    match strategy:
        case CPU() | TPU():
            return strategy.kind
        case GPU():
            return f"{strategy.kind} of {_counted(strategy.devices, 'device')}"
        case Mirrored():
            where = "GPUs, or logical processors of this machine where there are fewer"
            return f"{strategy.kind} over {_counted(strategy.replicas, 'replica')} ({where})"
        case TPUSimulator():
            hosts = f" on {strategy.hosts} hosts" if strategy.hosts > 1 else ""
            return f"{strategy.kind} of {_counted(strategy.cores, 'core')}{hosts} (a simulation)"
        case _:
            assert_never(strategy)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count > 1 else ''}"


def replicas_of(strategy: Strategy) -> int | None:
    """How many replicas share a batch; None where only the place itself tells."""
    match strategy:
        case CPU():
            return 1
        case GPU():
            return strategy.devices
        case Mirrored():
            return strategy.replicas
        case TPU():
            return None
        case TPUSimulator():
            return strategy.cores
        case _:
            assert_never(strategy)
