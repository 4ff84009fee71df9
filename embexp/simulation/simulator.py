"""`embexp.tpu_simulator`: TensorFlow's own TPU code, trained on a processor."""

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
from embexp.simulation.devices import MadeUpCluster, fetched
from embexp.simulation.engine import Engine
from embexp.tables import bounds
from embexp.tables.autograph import without_autograph

_inside = False
"""TensorFlow's modules are changed for the whole process."""


@contextlib.contextmanager
def tpu_simulator(cores: int = 2, *, hosts: int = 1, serve: bool = True) -> Iterator[Any]:
    """A TPU that isn't there: `tf.distribute.TPUStrategy` and `TPUEmbedding` code, unmodified, runs on the processor.

        with embexp.tpu_simulator(cores=2) as strategy:
            with strategy.scope():
                embedding = tf.tpu.experimental.embedding.TPUEmbedding(features, optimizer)
            ...                                        # datasets, enqueue, strategy.run, checkpoints: as on a TPU

    The strategy and everything above the TPU's operations are TensorFlow's own code. Those operations are served in
    this process, and what they compute is what a TPU computes: the ids of all features of a table, over all replicas,
    are looked up together, their gradients summed per row, and each touched row is updated once. Replicas are traced
    one after the other into one graph: what a TPU computes is simulated, not how long it takes. Inside the block the
    following holds, beyond what TensorFlow documents:

    - The variables of a `TPUEmbedding` are the TPU's memory. They are never stale, and checkpoints hold what was
      trained. Checkpoints are to be saved and restored inside the block.
    - An id outside its table is an error, which names it; a TPU computes something without a word.
    - `pipeline_execution_with_tensor_core=True` is taken, and runs one step after the other: no lookup misses the
      update of the step before it, as it may on a TPU.
    - `dequeue`, `apply_gradients` and sums over replicas can't stand in a condition or loop inside of the function that
      `strategy.run` is given; tf.functions inside of it are traced into it.
    - A batch that was enqueued with `training=True` and dequeued without `apply_gradients` in the same `strategy.run`,
      or the reverse, is an error while tracing, where a TPU waits for ever. So is a step, when it runs, that dequeues
      what was never enqueued.
    - Not simulated, and an error: more than one core per replica, optimizers beyond SGD, Adagrad, AdagradMomentum, Adam
      and FTRL, `use_gradient_accumulation=False` (but for a plain SGD, where it changes nothing), quantization,
      custom combiners.
    - With several hosts, tables lie in blocks of rows, one block per host, and initializers that take `shard_info` are
      told theirs; each host has an input pipeline. The hosts' names are `CPU:0`, `CPU:1`, … of one task, where those of
      real hosts are tasks of their own.

    `tf.tpu.experimental.initialize_tpu_system(strategy.cluster_resolver)` empties the TPU, after which another
    `TPUEmbedding` may be built; without it, building a second one is TensorFlow's own RuntimeError.

    Args:
        cores: of each host, one replica on each.
        hosts: number of hosts.
        serve: False: the TPU's operations are left in the graphs that are traced, where `simulation.trace` finds them,
            and nothing that contains one can run.

    Yields:
        The strategy.

    Raises:
        ValueError: `cores` or `hosts` is below 1.
        RuntimeError: inside another `tpu_simulator`.
        VocabularyError: an error about an id outside its table left the block.
    """
    global _inside
    if cores < 1 or hosts < 1:
        raise ValueError(f"a TPU has at least 1 core and 1 host, got cores={cores}, hosts={hosts}")
    if _inside:
        raise RuntimeError("this is inside another tpu_simulator; a process has one TPU")
    cluster = MadeUpCluster(hosts, cores)
    engine = Engine(hosts * cores)
    _inside = True
    try:
        with contextlib.ExitStack() as stack:
            for owner, name, value in [*_stubbed(cluster, engine), *(_served(engine) if serve else [])]:
                stack.enter_context(_replaced(owner, name, value))
            with bounds.translated_errors():
                strategy = tf.distribute.TPUStrategy(cluster)
                # A packed variable tells its copies apart by their devices, and here all are on one.
                strategy._enable_packed_variable_in_eager_mode = False
                yield strategy
    finally:
        _inside = False


Replacement = tuple[Any, str, Any]
"""A module or class of TensorFlow, the name of something in it, and what stands in for that."""


def _stubbed(cluster: MadeUpCluster, engine: Engine) -> list[Replacement]:
    """What runs, or asks about devices, while functions are only traced."""

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
        (iterator, "get_next", fetched(iterator.get_next)),
        (tpu_strategy_util, "initialize_tpu_system_impl", initialize),
        (tpu_strategy_util, "shutdown_tpu_system_impl", lambda *_, **__: engine.reset()),
        (optimizer, "_set_optimization_parameters", describe),
        (tpu_ops, "is_tpu_embedding_initialized", engine.is_configured),
        (tpu, "initialize_system_for_tpu_embedding", engine.configure),
        (tpu_embedding_v2, "_load_variables_impl", engine.load),
        (tpu_embedding_v2, "_retrieve_variables_impl", engine.retrieve),
    ]


def _served(engine: Engine) -> list[Replacement]:
    """The operations of a TPU."""

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

    Replicas meet in that graph, so a graph between would be in the way. A TPU too compiles all into one program.

    Args:
        call: TensorFlow's own.
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
