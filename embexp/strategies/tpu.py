"""Replicas on the cores of a TPU, by `tf.distribute.TPUStrategy`: a real one, connected in time, or a simulated one.

The connection to a real TPU, or an error that says why there is none, within the time that the settings allow.
TensorFlow's own resolver retries for minutes before it gives up.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import tensorflow as tf

from embexp.errors import RunError
from embexp.initialization import filling
from embexp.initialization.filling import TablePlan
from embexp.specs.sparse_cores import Limits
from embexp.specs.strategies import TPU, EmbeddingFeature, TPUSimulator
from embexp.specs.tables import Feature
from embexp.strategies import tpu_address
from embexp.strategies.strategy import Embeddings, Replicated, Run
from embexp.strategies.tpu_address import LOCAL, REMEDY, within
from embexp.tables.inputs import without_autograph
from embexp.tables.tpu_backend import TPUBackend
from embexp.training.step import ReplicaBatch, relations_of

Connection = AbstractContextManager[Any]
"""A context that gives a `tf.distribute.TPUStrategy`."""
_UNLIMITED = Limits()
_NOTE = (
    "strategy tpu_simulator is a simulation: it computes on this machine's processor what a TPU would learn; "
    "throughput and step time are not those of a TPU"
)


class TPUStrategy(Replicated):
    """Rows in the TPU, the dense part mirrored over its cores; a `Strategy`.

    A batch is an element of a distributed dataset: each replica's part of a whole batch, on its host, from which a TPU
    takes ids. All parts have the same size, as a TPU needs fixed shapes.

    It works within `active` only.

    Attributes:
        devices: names of the TPU's cores, for people.
        pipelined: rows are looked up while the step before is computed.
    """

    def __init__(
        self,
        name: str,
        connect: Callable[[], Connection],
        devices: Sequence[str],
        *,
        wanted: EmbeddingFeature = EmbeddingFeature.AUTO,
        limits: Limits = _UNLIMITED,
        pipelined: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        """Prepares the strategy; `active` connects to the TPU.

        Args:
            name: the TPU's name in errors.
            connect: makes the context in which the TPU is connected.
            wanted: the embedding hardware that the TPU must have.
            limits: of a step's ids on SparseCores.
            pipelined: see above.
        """
        self._name, self._connect, self._wanted, self._limits = name, connect, wanted, limits
        self._strategy: Any = None
        self._backend: TPUBackend | None = None
        self.devices, self.notes, self.pipelined = tuple(devices), tuple(notes), pipelined

    @contextlib.contextmanager
    def active(self, run: Callable[[], Run] | None = None) -> Iterator[None]:
        """A context in which the TPU is connected.

        Raises:
            RunError: the TPU has no embedding hardware, or not the one that is wanted.
        """
        with self._connect() as strategy:
            check_feature(self._name, reported(strategy), self._wanted)
            self._strategy = strategy
            try:
                yield
            finally:
                self._strategy = self._backend = None

    @property
    def strategy(self) -> Any:
        """The `tf.distribute.TPUStrategy`.

        Raises:
            RuntimeError: the TPU is not connected.
        """
        if self._strategy is None:
            raise RuntimeError(f"{self._name}: the TPU is used outside `active`")
        return self._strategy

    def dataset(self, batches: Any) -> Any:
        """The batches as a distributed dataset of the replicas' parts.

        Raises:
            RunError: batches can't be divided into equal parts.
        """
        replicas = self.replicas
        self._check(batches.element_spec.labels.shape[0])

        def parts_of_host(context: Any) -> Any:
            parts = batches.flat_map(without_autograph(lambda batch: _parts(batch, replicas)))
            if context.num_input_pipelines == 1:
                return parts
            each, own = replicas // context.num_input_pipelines, context.input_pipeline_id
            numbered = parts.enumerate().filter(without_autograph(lambda number, _: number % replicas // each == own))
            return numbered.map(without_autograph(lambda _, part: part))

        # Ids must stay on the hosts, which send them to the TPU themselves.
        options = tf.distribute.InputOptions(experimental_fetch_to_device=False)
        return self.strategy.distribute_datasets_from_function(parts_of_host, options=options)

    @property
    def parts(self) -> int:
        """One for each core."""
        return self.replicas

    def part_spec(self, spec: Any) -> Any:
        """`tf.TypeSpec` of a replica's part of a tensor of whole batches.

        Args:
            spec: `tf.TypeSpec` of the whole tensor, whose first dimension is the batch, or 1 where replicas share it.
        """
        shape = spec.shape.as_list()
        if shape[0] != 1:
            self._check(shape[0])
            shape[0] //= self.replicas
        if isinstance(spec, tf.RaggedTensorSpec):
            return tf.RaggedTensorSpec(shape, spec.dtype, spec.ragged_rank, spec.row_splits_dtype)
        if isinstance(spec, tf.SparseTensorSpec):
            return tf.SparseTensorSpec(shape, spec.dtype)
        return tf.TensorSpec(shape, spec.dtype)

    def counter_scope(self) -> AbstractContextManager[Any]:
        """The scope of the model, as the TPU reads the counter."""
        return self.scope()

    def embeddings(
        self,
        plans: Mapping[str, TablePlan],
        features: Mapping[str, Feature],
        inputs: Mapping[str, Any],
        counter: Any,
        total_steps: int,
        most_ids: Mapping[str, int],
    ) -> Embeddings:
        """The tables in the TPU's memory, filled.

        Raises:
            RunError: an optimizer has settings that SparseCores do not have.
        """
        sparse_cores = reported(self.strategy) == EmbeddingFeature.V2
        if sparse_cores:
            check_optimizers(self._name, plans)
        tables = filling.make_on_tpu(plans, hosts=int(self.strategy.extended.num_hosts))
        backend = TPUBackend(
            self.strategy,
            tables,
            features,
            {name: self.part_spec(spec) for name, spec in inputs.items()},
            step=counter,
            total_steps=total_steps,
            pipelined=self.pipelined,
            sparse_cores=self._limits if sparse_cores else None,
            most_ids=most_ids,
        )
        self._backend = backend
        return Embeddings(tables, backend, backend.load, backend.embedding)

    def run(self, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """Calls `function` in every replica with its part of a batch."""
        share = 1.0 / self.replicas

        def replica(dense: Any, labels: Any, relations: Any) -> Any:
            return function(ReplicaBatch(dense, labels, share, relations=relations))

        if self._backend is None:
            raise RuntimeError(f"{self._name}: a step can't run before there are tables")
        return self._backend.run(without_autograph(replica), (batch.dense, batch.labels, relations_of(batch)))

    def total(self, results: Any) -> Any:
        """The sum of the replicas' results."""
        return self.strategy.reduce(tf.distribute.ReduceOp.SUM, results, axis=None)

    def labels(self, batch: Any) -> Any:
        """All labels of a batch, float32 [B]."""
        return self.joined(batch.labels)

    def _check(self, batch: int | None) -> None:
        replicas = self.replicas
        if batch is None:
            raise RunError(f"{self._name}: a TPU needs batches of one size, but their size is not known in advance")
        if batch % replicas:
            raise RunError(
                f"{self._name}: {replicas} cores share each batch equally, but train.batch_size = {batch} is "
                f"not divisible by {replicas}; set it to {max(1, round(batch / replicas)) * replicas}"
            )


def reported(strategy: Any) -> str:
    """The embedding hardware that the TPU of a `tf.distribute.TPUStrategy` reports: V1, V2 or UNSUPPORTED."""
    return str(strategy.extended.tpu_hardware_feature.embedding_feature.value)


def check_feature(name: str, feature: str, wanted: EmbeddingFeature) -> None:
    """Raises RunError unless a TPU has embedding hardware, and the one that is wanted."""
    if feature not in (EmbeddingFeature.V1, EmbeddingFeature.V2):
        raise RunError(
            f"{name}: this TPU reports {feature} as its embedding hardware, so it can't keep tables in its memory; set"
            " strategy=cpu, or choose another TPU"
        )
    if wanted not in (EmbeddingFeature.AUTO, feature):
        raise RunError(
            f"{name}: strategy.embedding_feature = {wanted.value}, but this TPU reports {feature}; set it to "
            f"{feature} or auto"
        )


def check_optimizers(name: str, plans: Mapping[str, TablePlan]) -> None:
    """Raises RunError if an optimizer has settings that SparseCores can't honour."""
    for table, plan in plans.items():
        for fault in () if plan.optimizer is None else plan.optimizer.beyond_sparse_cores("optimizer"):
            raise RunError(
                f"{name}: this TPU has SparseCores, and table {table!r} has {fault.path} = {fault.value}, but"
                f" {fault.rule}; {fault.remedy}"
            )


def build_tpu(spec: TPU, *, traced: bool) -> TPUStrategy:
    """Connects to a TPU.

    Raises:
        RunError: there is none.
    """
    settings = spec.zone, spec.project, spec.timeout_seconds
    address = tpu_address.check(spec.address, *settings)
    strategy = connect(address, *settings, spec.initialization_seconds)
    return TPUStrategy(
        "strategy=tpu",
        lambda: contextlib.nullcontext(strategy),
        strategy.extended.worker_devices,
        wanted=spec.embedding_feature,
        limits=spec.limits,
        pipelined=spec.pipeline_execution_with_tensor_core,
    )


def _parts(batch: Any, replicas: int) -> Any:
    """A batch as a dataset of the replicas' parts."""

    def part(whole: Any) -> Any:
        count = whole.shape[0]
        if count == 1 != replicas:  # what all examples share
            return tf.repeat(whole[None], replicas, 0)
        if isinstance(whole, tf.RaggedTensor):
            return tf.RaggedTensor.from_uniform_row_length(whole, count // replicas)
        if isinstance(whole, tf.SparseTensor):
            inner = whole.dense_shape[1:]
            return tf.sparse.reshape(whole, tf.concat([[replicas, count // replicas], inner], 0))
        return tf.reshape(whole, [replicas, count // replicas, *whole.shape[1:]])

    return tf.data.Dataset.from_tensor_slices(tf.nest.map_structure(part, batch))


def connect(
    address: str, zone: str | None, project: str | None, timeout_seconds: float, initialization_seconds: float
) -> Any:
    """Connects to the TPU and initialises it.

    Args:
        address: the address that `tpu_address.check` returns.
        zone: zone of a TPU that has a name.
        project: project of a TPU that has a name.
        initialization_seconds: time limit for the initialisation after that.

    Returns:
        A `tf.distribute.TPUStrategy`.

    Raises:
        RunError: nothing answers in time, or what answers is no TPU.
    """

    def resolve() -> Any:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=address, zone=zone, project=project)
        if address != LOCAL:
            tf.config.experimental_connect_to_cluster(resolver)
        return resolver

    waited, setting = timeout_seconds, "timeout_seconds"
    try:
        resolver = within(timeout_seconds, resolve)
        waited, setting = initialization_seconds, "initialization_seconds"
        within(initialization_seconds, lambda: tf.tpu.experimental.initialize_tpu_system(resolver))
        return tf.distribute.TPUStrategy(resolver)
    except TimeoutError:
        raise RunError(
            f"strategy=tpu: {address} was found, but was not ready as a TPU within {waited:g} s "
            f"(strategy.{setting}); check that it is up and free, {REMEDY}"
        ) from None
    except (ValueError, RuntimeError, ImportError, tf.errors.OpError) as error:
        reason = str(error).strip().splitlines()
        raise RunError(
            f"strategy=tpu: {address} can't be used as a TPU ({type(error).__name__}: "
            f"{reason[0] if reason else ''}); check that it is up and free, {REMEDY}"
        ) from error


def build_simulator(spec: TPUSimulator, *, traced: bool) -> TPUStrategy:
    """A simulated TPU; of steps that are only traced, graphs contain the TPU's operations."""
    from embexp import tpu_simulator  # the public one, which users' scripts run on

    cores = spec.cores // spec.hosts
    devices = [f"simulated core {core} of host {host}" for host in range(spec.hosts) for core in range(cores)]
    feature = EmbeddingFeature.V2 if spec.sparse_cores_wanted else EmbeddingFeature.V1
    simulated = partial(
        tpu_simulator,
        cores,
        hosts=spec.hosts,
        serve=not traced,
        embedding_feature=feature.value,
        sparse_cores=spec.sparse_cores,
    )
    return TPUStrategy(
        "strategy=tpu_simulator",
        simulated,
        devices,
        limits=spec.limits,
        pipelined=spec.pipeline_execution_with_tensor_core,
        notes=(_NOTE,),
    )
