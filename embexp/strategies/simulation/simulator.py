"""`embexp.tpu_simulator`: TensorFlow's own TPU code, run on the CPU, from the usual beginning of a TPU program on.

Its devices are described well enough for the real `tf.distribute.TPUStrategy`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.compiler.tf2xla.python import xla as tf2xla
from tensorflow.core.protobuf.tpu import topology_pb2
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.client import session
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.distribute import device_util, tpu_strategy
from tensorflow.python.distribute.cluster_resolver.tpu import tpu_cluster_resolver
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import function_type_utils, polymorphic_function
from tensorflow.python.framework import ops
from tensorflow.python.ops import gen_tpu_partition_ops
from tensorflow.python.saved_model import save_context
from tensorflow.python.tpu import (
    functional,
    topology,
    tpu,
    tpu_embedding_v2,
    tpu_embedding_v2_utils,
    tpu_strategy_util,
    tpu_system_metadata,
)
from tensorflow.python.tpu.ops import tpu_ops
from tensorflow.python.util import nest, variable_utils

from embexp.specs.sparse_cores import MOST_CORES
from embexp.strategies.simulation import replicas
from embexp.strategies.simulation.engine import Engine
from embexp.strategies.simulation.sparse_cores import SparseCores
from embexp.tables import inputs
from embexp.tables.inputs import without_autograph

_TASK = "/job:localhost/replica:0/task:0"


class SimulatedDevices:
    """The hosts and cores of a simulated TPU.

    All hosts are this process. Host h is device CPU:h, and its cores are numbered on from those of host h - 1. A real
    host is a separate task that numbers its cores from 0, but operations on devices of other tasks can't run here,
    while those on CPU:1 run on CPU:0 by soft placement.

    Attributes:
        hosts: number of hosts.
        cores_per_host: cores of each.
        hardware: what the TPU reports of itself, `TPUHardwareFeature`.
        ended: whether they are no longer simulated.
    """

    def __init__(self, hosts: int, cores_per_host: int, hardware: Any = None) -> None:
        """Describes `hosts` hosts with `cores_per_host` cores each; no hardware is that of the first generation."""
        self.hosts, self.cores_per_host = hosts, cores_per_host
        self.hardware = _hardware("V1", 0) if hardware is None else hardware
        self.ended = False

    @property
    def cores(self) -> int:
        """Cores of all hosts."""
        return self.hosts * self.cores_per_host

    def metadata(self) -> Any:
        """The devices, as a TPU system reports them: `TPUSystemMetadata`."""
        kinds = (("CPU", self.hosts), ("TPU", self.cores))
        names = [(f"{_TASK}/device:{kind}:{number}", kind) for kind, count in kinds for number in range(count)]
        return tpu_system_metadata.TPUSystemMetadata(
            num_cores=self.cores,
            num_hosts=self.hosts,
            num_of_cores_per_host=self.cores_per_host,
            topology=None,
            devices=[session._DeviceAttributes(name, kind, 0, 0) for name, kind in names],
        )

    def logical(self) -> list[Any]:
        """The cores as `tf.config.LogicalDevice`."""
        return [context.LogicalDevice(_core(number), "TPU") for number in range(self.cores)]

    def topology(self) -> SimulatedTopology:
        """Two cores on each chip if each host has an even number of cores, and chips in one row, host after host.

        So a replica of two cores is `computation_shape=[1, 1, 1, 2]`, as in TensorFlow's examples. With SparseCores,
        each core has its own chip.
        """
        per_chip = 1 if self.cores_per_host % 2 or self.hardware.num_embedding_devices_per_chip else 2
        places = np.zeros([self.hosts, self.cores_per_host, 4], np.int32)
        numbers = np.arange(self.cores).reshape(self.hosts, self.cores_per_host)
        places[..., 0], places[..., 3] = numbers // per_chip, numbers % per_chip
        mesh = np.array([self.cores // per_chip, 1, 1, per_chip], np.int32)
        return SimulatedTopology(self.hardware, mesh_shape=mesh, device_coordinates=places)

    def host_of(self, real: Callable[..., str]) -> Callable[..., str]:
        """`device_util.get_host_for_device` for the simulated cores.

        Args:
            real: TensorFlow's own function, for all other devices.
        """

        def get_host_for_device(device: str, device_index: int = 0) -> str:
            spec = tf.DeviceSpec.from_string(device)
            if spec.device_type == "TPU" and spec.device_index is not None:
                return _host(spec.device_index // self.cores_per_host)
            return real(device, device_index)

        return get_host_for_device


class SimulatedTopology(topology.Topology):  # type: ignore[misc]
    """A topology whose devices have the names that `SimulatedDevices` gives them."""

    def __init__(self, hardware: Any, **places: Any) -> None:
        """With the hardware that the TPU reports, `TPUHardwareFeature`."""
        self._hardware = hardware
        super().__init__(**places)

    def tpu_device_ordinal_at_coordinates(self, device_coordinates: Any) -> int:
        """Number of the core."""
        task = int(self.task_ordinal_at_coordinates(device_coordinates))
        own = int(super().tpu_device_ordinal_at_coordinates(device_coordinates))
        return task * int(self.num_tpus_per_task) + own

    def tpu_device_name_at_coordinates(self, device_coordinates: Any, job: str | None = None) -> str:
        """Name of the core; there is one job."""
        return _core(self.tpu_device_ordinal_at_coordinates(device_coordinates))

    def cpu_device_name_at_coordinates(self, device_coordinates: Any, job: str | None = None) -> str:
        """Name of the core's host; there is one job."""
        return _host(int(self.task_ordinal_at_coordinates(device_coordinates)))

    def serialized(self) -> Any:
        """With the hardware, by which programs choose between `TPUEmbedding` and `TPUEmbeddingV2`."""
        proto = topology_pb2.TopologyProto.FromString(super().serialized())
        proto.tpu_hardware_feature.CopyFrom(self._hardware)
        return proto.SerializeToString()


def _hardware(embedding_feature: str, sparse_cores: int) -> Any:
    """`TPUHardwareFeature` with the name of a generation, and SparseCores of each chip if it has some."""
    feature = topology_pb2.TPUHardwareFeature
    cores = sparse_cores if embedding_feature == "V2" else 0
    return feature(
        embedding_feature=feature.EmbeddingFeature.Value(embedding_feature), num_embedding_devices_per_chip=cores
    )


def get_next_on_cores(real: Callable[..., Any]) -> Callable[..., Any]:
    """`OwnedMultiDeviceIterator.get_next` that puts each traced batch on its core.

    TensorFlow refuses to enqueue batches that were fetched to the cores. It recognises them by their device, which
    would otherwise be the CPU here.

    Args:
        real: TensorFlow's own function.
    """

    def get_next(self: Any, device: str | None = None) -> Any:
        batches = real(self, device)
        if tf.executing_eagerly():
            return batches
        if device is not None:
            return _on(device, batches)
        return [_on(one, batch) for one, batch in zip(self._devices, batches, strict=True)]

    return get_next


def without_autotune(real: Callable[..., Any]) -> Callable[..., Any]:
    """`_create_device_dataset` without tf.data's autotuning of each core's queue, which has nothing to tune.

    TensorFlow destroys an iterator only after its tuning thread wakes up: in a long training, after up to a minute.

    Args:
        real: TensorFlow's own function.
    """

    def create_device_dataset(*args: Any) -> Any:
        options = tf.data.Options()
        options.autotune.enabled = False
        return real(*args).with_options(options)

    return create_device_dataset


def _core(number: int) -> str:
    return f"{_TASK}/device:TPU:{number}"


def _host(number: int) -> str:
    return f"{_TASK}/device:CPU:{number}"


def _on(device: str, batch: Any) -> Any:
    with tf.device(device):
        return tf.nest.map_structure(tf.identity, batch, expand_composites=True)


_inside = False
"""TensorFlow's modules are changed for the whole process."""
Replacement = tuple[Any, str, Any]
"""A module or class of TensorFlow, the name of one of its attributes, and the replacement."""

_QUEUE = "_create_device_dataset"
"""The function of TensorFlow that makes the dataset of a core from that of its host."""
_FEATURES = ("V1", "V2", "UNSUPPORTED")
_LOCAL = "local"
"""The address with which a real resolver asks nobody, and `experimental_connect_to_cluster` does nothing."""


@contextlib.contextmanager
def tpu_simulator(
    cores: int = 2, *, hosts: int = 1, serve: bool = True, embedding_feature: str = "V1", sparse_cores: int = 4
) -> Iterator[Any]:
    """Simulates a TPU: `tf.distribute.TPUStrategy` and `TPUEmbedding` code runs unmodified on the CPU.

        with embexp.tpu_simulator(cores=2) as strategy:
            with strategy.scope():
                embedding = tf.tpu.experimental.embedding.TPUEmbedding(features, optimizer)
            ...  # datasets, enqueue, strategy.run, checkpoints: as on a TPU

    The usual start of a TPU program also works inside the block, with any TPU address:

        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu="")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        strategy = tf.distribute.TPUStrategy(resolver)

    The strategy and everything above the TPU's operations are TensorFlow's own code. The operations run in this process
    with a TPU's results. The ids of all features of a table, over all replicas, are looked up together. Their gradients
    are summed per row, and each touched row is updated once. Replicas are traced one after the other into one graph;
    timing is not simulated. Inside the block, these rules apply in addition to TensorFlow's documentation:

    - The variables of a `TPUEmbedding` are the TPU's memory. They are never stale, and checkpoints hold trained values.
      Checkpoints and models can also be saved after the block, but a new `strategy.run` there is an error.
    - An id outside its table is an error that names it; a TPU silently returns undefined values.
    - An operation in a step that a TPU can't compile, or whose result has a shape that depends on values, is an error
      while tracing. So are `tf.print` and `tf.summary`. Those of `tf.compat.v1.tpu.outside_compilation` run on the
      host, and after `tf.config.set_soft_device_placement(True)` all that a TPU can't compile. That setting is the
      TPU's, and lasts until the end of the block. `jit_compile` has no effect.
    - `pipeline_execution_with_tensor_core=True`: a training step's lookup always misses the update of the previous
      training step; on a TPU it may. Evaluations, and a step after one, or after saving or loading, see all updates.
    - `dequeue`, `apply_gradients` and sums over replicas can't be in a condition or loop inside the function passed to
      `strategy.run`; tf.functions inside it are traced into it.
    - A batch that was enqueued with `training=True` and dequeued without `apply_gradients` in the same `strategy.run`,
      or the reverse, is an error while tracing; a TPU waits forever. So is a step that dequeues when nothing was
      enqueued, when it runs, or when a batch for training was left and the step evaluates, or the reverse: batches
      leave a TPU in their order.
    - Arguments of `strategy.run`, including constants, have no known value while it is traced.
    - Replicas of several cores (`experimental_device_assignment`): each core looks up its part of its replica's batch;
      everything else is computed once, whatever core it is assigned to.
    - Not simulated, and an error: optimizers other than SGD, Adagrad, AdagradMomentum, Adam and FTRL,
      `use_gradient_accumulation=False` (except for plain SGD, where it changes nothing), quantization, custom
      combiners.
    - With `embedding_feature="V2"`, the TPU has SparseCores: TensorFlow's own `TPUEmbeddingV2` runs on them, and
      `TPUEmbedding` is an error. Each replica has one core and one chip. A row that several replicas look up is updated
      once. Ids beyond `max_ids_per_table`, `max_unique_ids_per_table` or `max_ids_per_chip_per_sample` are an error
      that names a sufficient setting; `allow_id_dropping=True` drops those beyond the last one, with a warning.
      `pipeline_execution_with_tensor_core=True` has no effect: lookups see all updates. Not simulated: custom
      combiners. None of this has been compared with a real SparseCore.
    - With several hosts, each host has one block of rows of each table, and an input pipeline. Initializers that take
      `shard_info` get the one of their block. The hosts' devices are `CPU:0`, `CPU:1`, … of one task; real hosts are
      separate tasks.

    `tf.tpu.experimental.initialize_tpu_system(strategy.cluster_resolver)` empties the TPU, after which another
    `TPUEmbedding` may be built; without it, building a second one is TensorFlow's own RuntimeError.

    Args:
        cores: number of cores of each host, with one replica on each.
        hosts: number of hosts.
        serve: False: traced graphs keep the TPU's operations, for inspection; such graphs can't run.
        embedding_feature: the embedding hardware that the TPU reports: "V1" for `TPUEmbedding`, "V2" for
            `TPUEmbeddingV2` on SparseCores, "UNSUPPORTED" for none.
        sparse_cores: SparseCores of each chip, a power of two; with "V2", each core has its own chip.

    Yields:
        The strategy.

    Raises:
        ValueError: `cores` or `hosts` is below 1, `sparse_cores` is not a power of two, or `embedding_feature` is
            unknown.
        RuntimeError: it is inside another `tpu_simulator`.
        VocabularyError: an id is outside its table.
        RunError: a TPU could not compile a step; inside the block it is TensorFlow's InvalidArgumentError, as on a TPU.
    """
    global _inside
    if cores < 1 or hosts < 1:
        raise ValueError(f"a TPU has at least 1 core and 1 host, got cores={cores}, hosts={hosts}")
    if embedding_feature not in _FEATURES:
        raise ValueError(f"embedding_feature is one of {', '.join(_FEATURES)}, got {embedding_feature!r}")
    if sparse_cores not in (1, 2, MOST_CORES):
        raise ValueError(f"TensorFlow supports 1, 2 or 4 SparseCores per chip, got sparse_cores={sparse_cores}")
    if _inside:
        raise RuntimeError("this is inside another tpu_simulator, but a process can have only one TPU")
    devices = SimulatedDevices(hosts, cores, _hardware(embedding_feature, sparse_cores))
    engine = Engine(devices.cores, embedding_feature)
    _inside = True
    try:
        with contextlib.ExitStack() as stack:
            served = _served(engine, sparse_cores if embedding_feature == "V2" else None) if serve else []
            for owner, name, value in [*_stubbed(devices, engine), *served]:
                stack.enter_context(_replaced(owner, name, value))
            with _kept_soft_placement(), inputs.translated_errors():
                yield _simulated_strategy()
    finally:
        _inside = False
        devices.ended = True


def _stubbed(devices: SimulatedDevices, engine: Engine) -> list[Replacement]:
    """Replacements that tracing needs too: devices, set-up, loading and retrieval."""

    def describe(self: Any, parameters: Any) -> None:
        # A bool where the protocol buffer has a number: deprecated, and an error from protobuf 7 on.
        self.low_dimensional_packing_status = int(self.low_dimensional_packing_status)
        real_describe(self, parameters)

    iterator = multi_device_iterator_ops.OwnedMultiDeviceIterator
    optimizer, embedding = tpu_embedding_v2_utils._Optimizer, tpu_embedding_v2.TPUEmbedding
    real_describe = optimizer._set_optimization_parameters
    return [
        *program_replacements(devices, engine.reset),
        (device_util, "get_host_for_device", devices.host_of(device_util.get_host_for_device)),
        (iterator, "get_next", get_next_on_cores(iterator.get_next)),
        (multi_device_iterator_ops, _QUEUE, without_autotune(getattr(multi_device_iterator_ops, _QUEUE))),
        (optimizer, "_set_optimization_parameters", describe),
        (tpu_ops, "is_tpu_embedding_initialized", engine.is_configured),
        (tpu, "initialize_system_for_tpu_embedding", engine.configure),
        (tpu_embedding_v2, "_load_variables_impl", lambda config, hosts, *tables: engine.load(*tables)),
        (tpu_embedding_v2, "_retrieve_variables_impl", lambda config, hosts, *tables: engine.retrieve(*tables)),
        (embedding, "build", _kept(embedding.build, engine)),
    ]


def _served(engine: Engine, sparse_cores: int | None) -> list[Replacement]:
    """Replacements of the TPU's operations, and of those of its SparseCores if each chip has some."""

    @without_autograph
    def partitioned_call(args: Any, device_ordinal: Any, Tout: Any, f: Any, **_: Any) -> Any:
        return tf.raw_ops.StatefulPartitionedCall(args=args, Tout=Tout, f=f)

    @without_autograph
    def first_core(name: str | None = None) -> Any:
        return tf.constant([0])

    def first(inputs: Any, *_: Any, **__: Any) -> Any:
        return ops.get_default_graph().capture(inputs[0])

    def unchanged(value: Any, *_: Any, **__: Any) -> Any:
        return tf.identity(value)

    function = polymorphic_function.Function
    # It reads as None now, and what is set is kept for later.
    ignored = property(lambda self: None, lambda self, value: vars(self).update(_jit_compile=value))
    return [
        *(SparseCores(sparse_cores).replacements() if sparse_cores else []),
        (tpu_ops, "enqueue_tpu_embedding_arbitrary_tensor_batch", engine.enqueue),
        (tpu_ops, "recv_tpu_embedding_activations", engine.receive),
        (tpu_ops, "send_tpu_embedding_gradients", engine.send),
        (tpu_ops, "cross_replica_sum", replicas.cross_replica_sum),
        (tpu_ops, "all_to_all", replicas.all_to_all),
        (tpu_ops, "tpu_ordinal_selector", first_core),
        (functional, "TPUPartitionedCall", partitioned_call),
        (tpu, "split_compile_and_replicate", engine.replicate),
        (gen_tpu_partition_ops, "tpu_partitioned_input_v2", first),  # the copies of a variable on a replica's cores
        (tf2xla, "sharding", unchanged),
        (function, "__call__", _inlined(function.__call__)),
        (function, "_jit_compile", ignored),
    ]


def _kept(build: Callable[..., Any], engine: Engine) -> Callable[..., Any]:
    """`TPUEmbedding.build` of one that finds the simulated TPU after the block, too, as checkpoints load and retrieve.

    Args:
        build: TensorFlow's own method.
        engine: the simulated TPU's.
    """

    def built(self: Any, *args: Any, **kwargs: Any) -> None:
        build(self, *args, **kwargs)
        if self._using_tpu:
            vars(self)["_load_variables"] = _served_for(self, engine.load)
            vars(self)["_retrieve_variables"] = _served_for(self, engine.retrieve)

    return built


def _served_for(embedding: Any, serve: Callable[..., None]) -> Callable[[], None]:
    """Loading or retrieving, under TensorFlow's own condition: not into a graph that is saved."""

    def served() -> None:
        if tf.executing_eagerly() or not save_context.in_save_context():
            serve(embedding._variables, embedding._table_config)

    return served


def _inlined(call: Callable[..., Any]) -> Callable[..., Any]:
    """`Function.__call__` that traces a tf.function inside a replica's step into that step's graph.

    Replicas exchange values in that graph, so no other may lie between. A TPU too compiles everything into one program.
    Arguments and results become tensors, as those of any tf.function.

    Args:
        call: TensorFlow's own method.
    """

    @without_autograph
    def called(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not replicas.inside():
            return call(self, *args, **kwargs)
        function = self.python_function
        if self._autograph:
            function = autograph.tf_convert(function, ag_ctx.ControlStatusCtx(ag_ctx.Status.ENABLED))
        bound = function_type_utils.canonicalize_function_inputs(
            args, kwargs, self._function_type, self._default_values
        )
        with replicas.function():
            result = variable_utils.convert_variables_to_tensors(function(*bound.args, **bound.kwargs))
        return nest.map_structure(replicas.as_tensor, result, expand_composites=True)

    return called


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = vars(owner).get(name, _ABSENT)
    setattr(owner, name, value)
    try:
        yield
    finally:
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)


_ABSENT = object()


def program_replacements(devices: SimulatedDevices, reset: Callable[[], None]) -> list[Replacement]:
    """Replacements with which TensorFlow's own resolver and strategies find the simulated TPU, whatever its address.

    Args:
        devices: the simulated TPU's.
        reset: empties it, as initialising a TPU does.
    """

    def initialize(cluster_resolver: Any = None, _: Any = None) -> Any:
        if not tf.executing_eagerly():
            raise RuntimeError("initialize_tpu_system: call it at program start, outside any tf.function")
        reset()
        topology = devices.topology()
        if cluster_resolver is not None:
            cluster_resolver.set_tpu_topology(topology.serialized())
        return topology

    def shutdown(*_: Any) -> None:
        reset()

    def made(self: Any, tpu: Any = None, zone: Any = None, project: Any = None, *rest: Any, **others: Any) -> None:
        real_made(self, _LOCAL)
        self._cloud_tpu_client = _Client()

    def listed(self: Any, device_type: str | None = None) -> list[Any]:
        found: list[Any] = real_listed(self, device_type)
        return found + devices.logical() if device_type in (None, "TPU") else found

    resolver = tpu_cluster_resolver.TPUClusterResolver
    real_made, real_listed = resolver.__init__, context.Context.list_logical_devices
    return [
        (resolver, "__init__", made),
        (resolver, "get_tpu_system_metadata", lambda self: devices.metadata()),
        (context.Context, "list_logical_devices", listed),
        (tpu_strategy_util, "initialize_tpu_system_impl", initialize),
        (tpu_strategy_util, "shutdown_tpu_system_impl", shutdown),
        *(
            (strategy, "__init__", _simulated(strategy.__init__, devices))
            for strategy in (tpu_strategy.TPUStrategyV2, tpu_strategy.TPUStrategy, tpu_strategy.TPUStrategyV1)
        ),
    ]


class _Client(tpu_cluster_resolver._LocalCloudTpuClient):  # type: ignore[misc]
    """What programs for TPUs in the cloud ask of their client: nothing to do for a TPU that is simulated."""

    def configure_tpu_version(self, version: str, restart_type: str = "always") -> None:
        """Does nothing: the version of TensorFlow is that of this process."""

    def wait_for_healthy(self, timeout_s: int = 1200, interval: int = 30) -> None:
        """Does not wait."""

    def recoverable(self) -> bool:
        """True."""
        return True


def _simulated_strategy() -> Any:
    """A `tf.distribute.TPUStrategy` of all cores, made as a TPU program makes it."""
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver()
    tf.tpu.experimental.initialize_tpu_system(resolver)
    return tf.distribute.TPUStrategy(resolver)


@contextlib.contextmanager
def _kept_soft_placement() -> Iterator[None]:
    """Lets `tf.config.set_soft_device_placement` choose what a TPU's host computes, and nothing else, until the end.

    TensorFlow itself goes on with soft placement: by it, operations on simulated cores run on the CPU. A context that
    was first used inside a graph begins without.
    """
    owner = context.Context
    real = owner.soft_device_placement
    current = context.context()
    before = chosen = current._soft_device_placement

    def choose(self: Any, enable: bool) -> None:
        nonlocal chosen
        chosen = enable

    def read(self: Any) -> bool:
        return bool(self.executing_eagerly() if chosen is None else chosen)

    real.fset(current, True)
    owner.soft_device_placement = property(read, choose)
    try:
        yield
    finally:
        owner.soft_device_placement = real
        if before is False:
            real.fset(current, False)
        current._soft_device_placement = before


def _simulated(real: Callable[..., None], devices: SimulatedDevices) -> Callable[..., None]:
    """`__init__` of a strategy that packs no variables and refuses new steps when the simulation has ended.

    Packed copies of a variable differ by their devices, and here all are on one.
    """

    def made(self: Any, *args: Any, **kwargs: Any) -> None:
        real(self, *args, **kwargs)
        self._enable_packed_variable_in_eager_mode = False
        run = self.extended.tpu_run

        def run_while_simulated(*args: Any, **kwargs: Any) -> Any:
            if devices.ended:
                raise RuntimeError(
                    "strategy.run: this strategy's TPU was simulated, and its `with embexp.tpu_simulator(...)` block"
                    " has ended; run steps inside the block (saving and loading also work after it)"
                )
            return run(*args, **kwargs)

        self.extended.tpu_run = run_while_simulated

    return made
