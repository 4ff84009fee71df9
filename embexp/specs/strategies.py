"""Strategies: where tables are stored, where steps run, how many replicas share a batch, and the rules of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field, model_validator

from embexp.errors import CombinationFault, plural
from embexp.specs.base import (
    BY_KIND,
    BlockRows,
    Choice,
    Count,
    DeviceCount,
    Positive,
    Restarts,
    Threads,
    broken,
    for_each,
    known_or,
    where_known,
)
from embexp.specs.freezing import FreezeSchedule, FreezeTable, NoFreeze
from embexp.specs.inits import MemoryMap
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage
from embexp.specs.tasks import Compared

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec
    from embexp.specs.sparse_cores import Chips, Limits

_ELSEWHERE = "set strategy=cpu"


class OneDNN(StrEnum):
    """Whether TensorFlow uses oneDNN's kernels, and the memory that they keep."""

    AUTO = "auto"
    """Where `TF_ENABLE_ONEDNN_OPTS` says so, else on every x86 processor with AVX2."""
    ON = "on"
    OFF = "off"

    @property
    def wanted(self) -> bool | None:
        """Whether to use them; None: the machine decides."""
        return None if self is OneDNN.AUTO else self is OneDNN.ON


class Reproducible(StrEnum):
    """Where the same run has the same bits, with the same versions of packages."""

    MACHINE = "machine"
    """On this machine, and on others with the same kind of processor and no more cores than pieces."""
    PROCESSORS = "processors"
    """On x86 processors with AVX2: no kernel has wider vectors, and no operation is cut into pieces."""


class EmbeddingFeature(StrEnum):
    """The embedding hardware of a TPU, which decides on TensorFlow's API."""

    AUTO = "auto"
    """The one that the TPU reports; of a simulated TPU, V1."""
    V1 = "V1"
    """Tables behind `TPUEmbedding`."""
    V2 = "V2"
    """Tables on SparseCores, behind `TPUEmbeddingV2`."""


_PIECES_ANYWHERE = 1
"""oneDNN takes no more pieces of a product than its numbers fill second caches, which processors have of any size."""


def _written(value: object) -> object:
    """YAML reads `on` and `off` as truth values."""
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else value


class _Threads(Choice):
    """Base class of strategies; the implementation returns an `embexp.strategies.strategy.Strategy`.

    It is called with `traced`, whether steps are only traced.
    """

    simulated: ClassVar[bool] = False
    """Whether the devices are simulated."""
    own_memory: ClassVar[bool] = False
    """Whether tables are in device memory, with frozen rows separate from trainable ones."""
    fixed_batch: ClassVar[bool] = False
    """Whether all batches must have one size."""
    intra_op_threads: Threads = 0
    """Threads inside one operation; 0: as many as there are cores."""
    inter_op_threads: Threads = 0
    """Operations at once; 0: TensorFlow decides."""
    pieces: Threads = 0
    """Into how many pieces operations are cut, however many threads do them; 0: see `embexp.system.machine.pieces`."""
    onednn: Annotated[OneDNN, BeforeValidator(_written)] = OneDNN.AUTO
    """Whether to use oneDNN's kernels; it can't change in a process that has imported TensorFlow."""
    reproducible: Reproducible = Reproducible.MACHINE
    """Where the same run has the same bits; it can't change in a process that has imported TensorFlow."""
    kind: str

    @property
    def kernels(self) -> dict[str, Any]:
        """What TensorFlow is loaded with, see `embexp.system.environment.load_tensorflow`."""
        return {"onednn": True if self.portable else self.onednn.wanted, "portable": self.portable}

    @property
    def portable(self) -> bool:
        """Whether all kernels are those that every x86 processor with AVX2 has."""
        return self.reproducible is Reproducible.PROCESSORS

    @property
    def wanted_pieces(self) -> int:
        """Into how many pieces operations are cut; 0: the machine decides."""
        return self.pieces or (_PIECES_ANYWHERE if self.portable else 0)

    @property
    def replica_count(self) -> int | None:
        """Number of replicas that share a batch; None if it is unknown until the devices are connected."""
        return 1

    @property
    def sparse_cores_wanted(self) -> bool:
        """Whether tables must be on SparseCores."""
        return False

    @property
    def described(self) -> str:
        """A short description for people."""
        return self.kind


class CPU(_Threads):
    """One device: this machine's processor."""

    kind: Literal["cpu"] = "cpu"
    implementation = "embexp.strategies.strategy:build_cpu"


class GPU(_Threads):
    """The dense part on one GPU, or mirrored over several; tables stay in host memory."""

    kind: Literal["gpu"] = "gpu"
    implementation = "embexp.strategies.mirrored:build_gpu"
    devices: DeviceCount = 1
    """Number of GPUs that share each batch: the first ones that TensorFlow finds."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """For several GPUs: a runtime for one device, and batches that they can't share."""
        if self.devices > 1:
            yield from where_known(_one_device(spec, f"gpu with {self.devices} devices"), _shared_batches(spec, self))

    @property
    def replica_count(self) -> int:
        """Number of GPUs."""
        return self.devices

    @property
    def described(self) -> str:
        """With the number of GPUs."""
        return f"gpu of {plural(self.devices, 'device')}"


class Mirrored(_Threads):
    """The dense part mirrored over GPUs, or over logical CPUs if there are too few GPUs; one copy of the rows."""

    kind: Literal["mirrored"] = "mirrored"
    implementation = "embexp.strategies.mirrored:build_mirrored"
    replicas: DeviceCount = 2
    """Number of devices that share each batch."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """A runtime for one device, and batches that the replicas can't share."""
        return where_known(_one_device(spec, "mirrored"), _shared_batches(spec, self))

    @property
    def replica_count(self) -> int:
        """Number of replicas."""
        return self.replicas

    @property
    def described(self) -> str:
        """With the number of replicas."""
        where = "GPUs, or logical processors of this machine where there are fewer"
        return f"mirrored over {plural(self.replicas, 'replica')} ({where})"


class _OwnMemory(_Threads):
    own_memory: ClassVar[bool] = True
    fixed_batch: ClassVar[bool] = True
    embedding_feature: EmbeddingFeature = EmbeddingFeature.AUTO
    """The TPU's embedding hardware: V1, V2 (SparseCores), or auto, whatever the TPU reports."""
    max_ids_per_table: Count | None = None
    """Ids that a SparseCore may send to another one for a stack of tables in a step; null: as many as fit."""
    max_unique_ids_per_table: Count | None = None
    """Distinct ones of these ids; null: as many as fit."""
    max_ids_per_chip_per_sample: Count | None = None
    """Places for ids in a chip's memory, for each vector of a stack; null: one for each id, 64 for each bag of ids,
    as many as the longest history has."""

    @property
    def sparse_cores_wanted(self) -> bool:
        """Whether tables must be on SparseCores."""
        return self.embedding_feature is EmbeddingFeature.V2

    @property
    def limits(self) -> Limits:
        """How many ids of a step SparseCores have room for."""
        from embexp.specs.sparse_cores import Limits

        return Limits(self.max_ids_per_table, self.max_unique_ids_per_table, self.max_ids_per_chip_per_sample)

    @property
    def chips(self) -> Chips | None:
        """The chips with SparseCores; None: there are none, or their number is unknown until the TPU is connected."""
        return None

    @property
    def shares(self) -> int | None:
        """Into how many equal parts a batch is divided; None: unknown until the TPU is connected."""
        return self.replica_count

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """A runtime for one device, and settings that no TPU supports."""
        return where_known(_one_device(spec, self.kind), _tpu_faults(spec, self))


class TPU(_OwnMemory):
    """A TPU, with tables in its memory."""

    kind: Literal["tpu"] = "tpu"
    implementation = "embexp.strategies.tpu:build_tpu"
    address: Annotated[str, Field(min_length=1)] | None = None
    """Name or address (grpc://…) of the TPU, or local; null: from the environment, or this machine's TPU."""
    zone: str | None = None
    """Zone of a TPU named in `address`; null: from the environment."""
    project: str | None = None
    """Project of a TPU named in `address`; null: from the environment."""
    timeout_seconds: Positive = 5.0
    """Seconds to wait for a response of the TPU before the run fails."""
    initialization_seconds: Positive = 300.0
    """Seconds to wait until a responding TPU is initialized."""
    pipeline_execution_with_tensor_core: bool = False
    """Look up the rows of a step during the previous step: faster, but rows are one step old."""

    @property
    def replica_count(self) -> None:
        """None: unknown until the TPU is connected."""
        return None


class TPUSimulator(_OwnMemory):
    """A simulated TPU: TensorFlow's TPU code, with the TPU's operations executed on the CPU."""

    simulated: ClassVar[bool] = True
    kind: Literal["tpu_simulator"] = "tpu_simulator"
    implementation = "embexp.strategies.tpu:build_simulator"
    cores: DeviceCount = 2
    """Number of simulated cores; each is a replica."""
    hosts: DeviceCount = 1
    """Number of hosts that share the cores."""
    sparse_cores: DeviceCount = 4
    """SparseCores of each core's chip, 1, 2 or 4; only V2 has some."""
    pipeline_execution_with_tensor_core: bool = False
    """Look up rows one step late, as a TPU with this setting may; V2 does not simulate it."""

    @model_validator(mode="after")
    def _divides(self) -> TPUSimulator:
        if self.cores % self.hosts:
            rule = (
                f"every host has the same number of cores, but {self.hosts} hosts can't share {self.cores} "
                f"cores equally"
            )
            raise broken(rule, "cores", "hosts")
        from embexp.specs.sparse_cores import MOST_CORES

        if self.sparse_cores not in (1, 2, MOST_CORES):
            rule = f"TensorFlow supports 1, 2 or 4 SparseCores per chip, not {self.sparse_cores}"
            raise broken(rule, "sparse_cores")
        if self.sparse_cores_wanted and self.cores & (self.cores - 1):
            rule = (
                f"the total number of SparseCores must be a power of two, so with SparseCores cores can't be "
                f"{self.cores}"
            )
            raise broken(rule, "cores")
        return self

    @property
    def replica_count(self) -> int:
        """Number of cores."""
        return self.cores

    @property
    def chips(self) -> Chips | None:
        """A chip for each core, with V2."""
        from embexp.specs.sparse_cores import Chips

        return Chips(self.cores, self.sparse_cores) if self.sparse_cores_wanted else None

    @property
    def shares(self) -> int:
        """Number of SparseCores, or of cores without some."""
        return self.cores if self.chips is None else self.chips.partitions

    @property
    def described(self) -> str:
        """With its cores and hosts, and that it is a simulation."""
        hosts = f" on {self.hosts} hosts" if self.hosts > 1 else ""
        sparse = f" with {plural(self.sparse_cores, 'SparseCore')} each" if self.sparse_cores_wanted else ""
        return f"tpu_simulator of {plural(self.cores, 'core')}{sparse}{hosts} (a simulation)"


_ADDRESS = re.compile(r"(\[[0-9A-Fa-f:]+\]|[^\s:/\[\]]+):[0-9]{1,5}")


class MultiWorker(_Threads):
    """Processes on one machine or several, which share each batch and the rows of the tables."""

    kind: Literal["multi_worker"] = "multi_worker"
    implementation = "embexp.strategies.cluster.multi_worker:build"
    workers: DeviceCount = 2
    """Number of processes that share each batch and the rows."""
    block_rows: BlockRows = 16
    """Neighbouring rows that one worker has together at a table's beginning, a power of two; they double along it."""
    addresses: tuple[str, ...] | None = None
    """Address of each worker, host:port, in order; null: from the scheduler, or on this machine."""
    start_seconds: Positive = 300.0
    """Seconds until all workers must be there."""
    silence_seconds: Positive = 10.0
    """Seconds without a sign of life after which a worker counts as lost."""
    restarts: Restarts = 0
    """How often a run goes on from its last checkpoint after a worker was lost."""

    @model_validator(mode="after")
    def _consistent(self) -> MultiWorker:
        if self.block_rows & (self.block_rows - 1):
            raise broken(f"block_rows must be a power of two, and {self.block_rows} is not: set 16 or 32", "block_rows")
        for address in self.addresses or ():
            if not _ADDRESS.fullmatch(address):
                raise broken(f"an address is host:port, such as node1:2222, but this one is {address!r}", "addresses")
        if self.addresses is not None and len(self.addresses) != self.workers:
            rule = f"there are {len(self.addresses)} addresses for {self.workers} workers: give one address per worker"
            raise broken(rule, "workers", "addresses")
        return self

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """A runtime for one device, batches that workers can't share, and what needs a table whole."""
        if self.workers > 1:
            yield from where_known(
                _one_device(spec, "multi_worker"),
                _shared_batches(spec, self),
                _every_candidate(spec),
                _one_run(spec),
            )

    @property
    def replica_count(self) -> int:
        """Number of workers."""
        return self.workers

    @property
    def described(self) -> str:
        """With the number of workers."""
        return f"multi_worker of {plural(self.workers, 'worker')}"


Strategy = Annotated[CPU | GPU | Mirrored | MultiWorker | TPU | TPUSimulator, BY_KIND]


def _one_device(spec: RunSpec, strategy: str) -> Iterator[CombinationFault]:
    runtime = spec.executing_runtime
    if runtime in (RuntimeKind.SESSION, RuntimeKind.ESTIMATOR):
        rule = f"it works only with strategy cpu or a single GPU, but the strategy is {strategy}"
        remedy = "set strategy=cpu, or set runtime=function and an init method that works there (init=assign)"
        yield CombinationFault("runtime", runtime.value, rule, remedy)


def _every_candidate(spec: RunSpec) -> Iterator[CombinationFault]:
    """Losses over all rows of a table, of which each worker has only some."""
    by_setting: dict[Compared, list[str]] = {}
    for feature, compared in spec.task.compared(spec).items():
        if compared.every:
            by_setting.setdefault(compared, []).append(feature)
    for compared, features in by_setting.items():
        if lacking := _not_mirrored(spec, features):
            rule = f"a step would compare all {compared.every}, but each worker has only some of their rows"
            remedy = f"set {lacking}, or {compared.remedy}"
            yield CombinationFault(compared.path, compared.value, rule, remedy)


def _not_mirrored(spec: RunSpec, features: Iterable[str]) -> str:
    """The settings that mirror the tables of some features, of those that are not mirrored."""
    tables = dict.fromkeys(spec.features[name].table for name in features if name in spec.features)
    lacking = [name for name in tables if name in spec.tables and spec.tables[name].storage is not Storage.MIRRORED]
    return " ".join(f"tables.{name}.storage=mirrored" for name in lacking)


def _one_run(spec: RunSpec) -> Iterator[CombinationFault]:
    if spec.study.kind != "none":
        rule = "workers share a single run, but a study makes several runs in one process"
        yield CombinationFault("study", spec.study.kind, rule, f"set study=none, or {_ELSEWHERE}")


def _shared_batches(spec: RunSpec, strategy: GPU | Mirrored | MultiWorker) -> Iterator[CombinationFault]:
    replicas, batch = strategy.replica_count, spec.train.batch_size
    if replicas == 1:
        return
    rule = f"the {replicas} replicas of strategy {strategy.kind} share each batch"
    if batch < replicas:
        each = f"{rule}, and each needs at least one example"
        yield CombinationFault("train.batch_size", str(batch), each, f"set it to {replicas} or more")

    def of_feature(name: str) -> Iterator[CombinationFault]:
        shape = spec.features[name].output_shape
        if shape is not None and shape[0] != batch:
            path, by = f"features.{name}.output_shape", f"{rule} by examples, so the first number must be"
            remedy = "set strategy=cpu, or reshape in the model"
            yield CombinationFault(path, str(list(shape)), f"{by} train.batch_size ({batch})", remedy)

    yield from for_each(lambda: spec.features, of_feature)


def _tpu_faults(spec: RunSpec, strategy: _OwnMemory) -> Iterator[CombinationFault]:
    yield from where_known(
        _batches(spec, strategy),
        _limits(spec, strategy),
        for_each(lambda: spec.tables, lambda name: _layout(spec, strategy, name)),
        _mapped(spec, strategy),
        _schedules(spec, strategy),
        _candidates(spec, strategy),
    )


def _candidates(spec: RunSpec, strategy: _OwnMemory) -> Iterator[CombinationFault]:
    for compared in spec.task.compared(spec).values():
        if compared.made and not compared.every:
            requires = f"strategy {strategy.kind} requires batches of the same shape as in training"
            rule = f"an evaluation compares all rows, but {requires}"
            remedy = f"set {compared.path}=null to train with all of them, or {_ELSEWHERE}"
            yield CombinationFault(compared.path, compared.value, rule, remedy)


def _batches(spec: RunSpec, strategy: _OwnMemory) -> Iterator[CombinationFault]:
    parts, batch = strategy.shares, spec.train.batch_size
    if parts is not None and batch % parts:
        near = max(1, round(batch / parts)) * parts
        cores = f"the {parts} {'SparseCores' if strategy.sparse_cores_wanted else 'cores'} of strategy {strategy.kind}"
        rule = f"{cores} share each batch equally, but it is not divisible by {parts}"
        setting = "strategy.sparse_cores" if strategy.sparse_cores_wanted else "strategy.cores"
        remedy = f"set it to {near}, or {setting} to a divisor of it"
        yield CombinationFault("train.batch_size", str(batch), rule, remedy)


def _limits(spec: RunSpec, strategy: _OwnMemory) -> Iterator[CombinationFault]:
    simulated_first = strategy.simulated and strategy.embedding_feature is EmbeddingFeature.AUTO
    if simulated_first or strategy.embedding_feature is EmbeddingFeature.V1:
        for name, limit in asdict(strategy.limits).items():
            if limit is not None:
                of = strategy.embedding_feature.value
                rule = f"only SparseCores (V2) limit the number of ids, but strategy.embedding_feature is {of}"
                remedy = "set it to null, or set strategy.embedding_feature=V2"
                yield CombinationFault(f"strategy.{name}", str(limit), rule, remedy)


def _layout(spec: RunSpec, strategy: _OwnMemory, name: str) -> Iterator[CombinationFault]:
    table = spec.tables[name]
    if table.storage is Storage.MEMORY_MAP and not isinstance(spec.init_of(name), MemoryMap):
        rule = f"{_where(strategy)}, not in a file"
        yield CombinationFault(f"tables.{name}.storage", repr(table.storage.value), rule, "leave it auto")
    if table.storage is Storage.VARIABLE and not isinstance(spec.freeze_of(name), NoFreeze | FreezeTable):
        rule = f"strategy {strategy.kind} stores frozen rows separately, because a TPU updates all rows of its tables"
        yield CombinationFault(f"tables.{name}.storage", repr(table.storage.value), rule, "leave it auto")


def _mapped(spec: RunSpec, strategy: _OwnMemory) -> Iterator[CombinationFault]:
    for scope, init in spec.settings_of("init"):
        taken = any(known_or(None, partial(spec.init_of, name)) is init for name in scope.tables)
        if isinstance(init, MemoryMap) and taken:
            rule = f"{_where(strategy)}, so no row can stay in its file"
            remedy = f"choose {scope.choosing('init', 'assign')}, or {_ELSEWHERE}"
            yield CombinationFault(scope.path, "memory_map", rule, remedy)


def _where(strategy: _OwnMemory) -> str:
    return f"strategy {strategy.kind} keeps tables in the memory of the TPU"


def _schedules(spec: RunSpec, strategy: _OwnMemory) -> Iterator[CombinationFault]:
    """Schedules, as a TPU updates all rows of a table with the same learning rate throughout."""
    for scope, freeze in spec.settings_of("freeze"):
        if isinstance(freeze, FreezeSchedule) and scope.tables:
            yield from where_known(_schedule(freeze, scope.path, strategy))


def _schedule(freeze: FreezeSchedule, path: str, strategy: _OwnMemory) -> Iterator[CombinationFault]:
    if len(freeze.phases) > 1:
        why, value = (
            f"with strategy {strategy.kind}, a row is either trainable or frozen for the whole run",
            len(freeze.phases),
        )
        yield CombinationFault(f"{path}.phases", f"{value} phases", why, f"keep one phase only, or {_ELSEWHERE}")
    for number, rule in enumerate(freeze.phases[0].rules):
        if rule.multiplier not in (0.0, 1.0):
            why = f"with strategy {strategy.kind}, all trainable rows of a table have the same learning rate"
            remedy = f"set it to 0 to freeze the rows, set it to 1, or {_ELSEWHERE}"
            place = f"{path}.phases.0.rules.{number}.multiplier"
            yield CombinationFault(place, f"{rule.multiplier:g}", why, remedy)
