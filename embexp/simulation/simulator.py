"""`embexp.tpu_simulator`: TensorFlow's own TPU code, run on the CPU."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.autograph.core import ag_ctx
from tensorflow.python.autograph.impl import api as autograph
from tensorflow.python.data.ops import multi_device_iterator_ops
from tensorflow.python.distribute import device_util
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.tpu import tpu, tpu_embedding_v2, tpu_embedding_v2_utils, tpu_replication, tpu_strategy_util
from tensorflow.python.tpu.ops import tpu_ops

from embexp.simulation import collectives, replicas
from embexp.simulation.devices import SimulatedCluster, get_next_on_cores
from embexp.simulation.engine import Engine
from embexp.tables import bounds
from embexp.tables.autograph import without_autograph

_inside = False
"""TensorFlow's modules are changed for the whole process."""


@contextlib.contextmanager
def tpu_simulator(cores: int = 2, *, hosts: int = 1, serve: bool = True) -> Iterator[Any]:
    """Simulates a TPU: `tf.distribute.TPUStrategy` and `TPUEmbedding` code runs unmodified on the CPU.

        with embexp.tpu_simulator(cores=2) as strategy:
            with strategy.scope():
                embedding = tf.tpu.experimental.embedding.TPUEmbedding(features, optimizer)
            ...                                        # datasets, enqueue, strategy.run, checkpoints: as on a TPU

    The strategy and everything above the TPU's operations are TensorFlow's own code. The operations run in this process
    with a TPU's results: the ids of all features of a table, over all replicas, are looked up together, their gradients
    summed per row, and each touched row is updated once. Replicas are traced one after the other into one graph; times
    are not simulated. Inside the block, the following holds beyond TensorFlow's documentation:

    - The variables of a `TPUEmbedding` are the TPU's memory. They are never stale, and checkpoints hold trained values.
      Save and restore checkpoints inside the block.
    - An id outside its table is an error that names it; a TPU silently computes something.
    - `pipeline_execution_with_tensor_core=True` is allowed, but steps run one after the other: no lookup misses the
      update of the step before, as it may on a TPU.
    - `dequeue`, `apply_gradients` and sums over replicas can't be in a condition or loop inside the function that
      `strategy.run` is given; tf.functions inside it are traced into it.
    - A batch that was enqueued with `training=True` and dequeued without `apply_gradients` in the same `strategy.run`,
      or the reverse, is an error while tracing; a TPU waits forever. So is a step that dequeues when nothing was
      enqueued, when it runs.
    - Not simulated, and an error: more than one core per replica, optimizers other than SGD, Adagrad, AdagradMomentum,
      Adam and FTRL, `use_gradient_accumulation=False` (except for plain SGD, where it changes nothing), quantization,
      custom combiners.
    - With several hosts, each host holds one block of rows of each table, initializers that take `shard_info` get that
      of their block, and each host has an input pipeline. The hosts' devices are `CPU:0`, `CPU:1`, … of one task; real
      hosts are separate tasks.

    `tf.tpu.experimental.initialize_tpu_system(strategy.cluster_resolver)` empties the TPU, after which another
    `TPUEmbedding` may be built; without it, building a second one is TensorFlow's own RuntimeError.

    Args:
        cores: of each host, one replica on each.
        hosts: number of hosts.
        serve: False: traced graphs keep the TPU's operations, for `simulation.trace`; such graphs can't run.

    Yields:
        The strategy.

    Raises:
        ValueError: `cores` or `hosts` is below 1.
        RuntimeError: inside another `tpu_simulator`.
        VocabularyError: an id is outside its table.
    """
    global _inside
    if cores < 1 or hosts < 1:
        raise ValueError(f"a TPU has at least 1 core and 1 host, got cores={cores}, hosts={hosts}")
    if _inside:
        raise RuntimeError("this is inside another tpu_simulator; a process has one TPU")
    cluster = SimulatedCluster(hosts, cores)
    engine = Engine(hosts * cores)
    _inside = True
    try:
        with contextlib.ExitStack() as stack:
            for owner, name, value in [*_stubbed(cluster, engine), *(_served(engine) if serve else [])]:
                stack.enter_context(_replaced(owner, name, value))
            with bounds.translated_errors():
                strategy = tf.distribute.TPUStrategy(cluster)
                # A packed variable distinguishes its copies by device, and here all are on one.
                strategy._enable_packed_variable_in_eager_mode = False
                yield strategy
    finally:
        _inside = False


Replacement = tuple[Any, str, Any]
"""A module or class of TensorFlow, the name of one of its attributes, and the replacement."""


def _stubbed(cluster: SimulatedCluster, engine: Engine) -> list[Replacement]:
    """Replacements that tracing needs too: devices, set-up, loading and retrieval."""

    def initialize(*_: Any, **__: Any) -> Any:
        engine.reset()
        return cluster.topology()

    def describe(self: Any, parameters: Any) -> None:
        # A bool where the protocol buffer has a number: deprecated, and an error from protobuf 7 on.
        self.low_dimensional_packing_status = int(self.low_dimensional_packing_status)
        real_describe(self, parameters)

    iterator = multi_device_iterator_ops.OwnedMultiDeviceIterator
    optimizer = tpu_embedding_v2_utils._Optimizer
    real_describe = optimizer._set_optimization_parameters
    return [
        (device_util, "get_host_for_device", cluster.host_of(device_util.get_host_for_device)),
        (iterator, "get_next", get_next_on_cores(iterator.get_next)),
        (tpu_strategy_util, "initialize_tpu_system_impl", initialize),
        (tpu_strategy_util, "shutdown_tpu_system_impl", lambda *_, **__: engine.reset()),
        (optimizer, "_set_optimization_parameters", describe),
        (tpu_ops, "is_tpu_embedding_initialized", engine.is_configured),
        (tpu, "initialize_system_for_tpu_embedding", engine.configure),
        (tpu_embedding_v2, "_load_variables_impl", engine.load),
        (tpu_embedding_v2, "_retrieve_variables_impl", engine.retrieve),
    ]


def _served(engine: Engine) -> list[Replacement]:
    """Replacements of the TPU's operations."""

    def outside(is_map: bool, computation: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return computation(*args, **kwargs)

    function = polymorphic_function.Function
    return [
        (tpu_ops, "enqueue_tpu_embedding_arbitrary_tensor_batch", engine.enqueue),
        (tpu_ops, "recv_tpu_embedding_activations", engine.receive),
        (tpu_ops, "send_tpu_embedding_gradients", engine.send),
        (tpu_ops, "cross_replica_sum", collectives.cross_replica_sum),
        (tpu_ops, "all_to_all", collectives.all_to_all),
        (tpu, "replicate", engine.replicate),
        (tpu_replication, "outside_compilation_impl", outside),
        (function, "__call__", _inlined(function.__call__)),
    ]


def _inlined(call: Callable[..., Any]) -> Callable[..., Any]:
    """`Function.__call__` that traces a tf.function inside a replica's step into that step's graph.

    Replicas exchange values in that graph, so no other may lie between. A TPU too compiles everything into one program.

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
        with replicas.function():
            return function(*args, **kwargs)

    return called


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
