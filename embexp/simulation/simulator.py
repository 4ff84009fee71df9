"""`embexp.tpu_simulator`: TensorFlow's own TPU code, trained on a processor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tensorflow as tf
from tensorflow.python.distribute import device_util
from tensorflow.python.eager.polymorphic_function import polymorphic_function
from tensorflow.python.tpu import tpu, tpu_embedding_v2, tpu_embedding_v2_utils, tpu_replication, tpu_strategy_util
from tensorflow.python.tpu.ops import tpu_ops

from embexp.simulation import collectives, inlining
from embexp.simulation.devices import MadeUpCluster
from embexp.simulation.engine import Engine
from embexp.tables import bounds

_inside = False


@contextlib.contextmanager
def tpu_simulator(cores: int = 2, *, hosts: int = 1) -> Iterator[Any]:
    """Makes a `tf.distribute.TPUStrategy` over a TPU that isn't there."""
    global _inside
    if cores < 1 or hosts < 1:
        raise ValueError(f"a TPU has at least 1 core and 1 host, got cores={cores}, hosts={hosts}")
    if _inside:
        raise RuntimeError("there is one TPU per process: this is inside another tpu_simulator")
    cluster = MadeUpCluster(hosts, cores)
    engine = Engine(hosts * cores)
    _inside = True
    try:
        with contextlib.ExitStack() as stack:
            for module, name, served in _served(cluster, engine):
                stack.enter_context(_replaced(module, name, served))
            with bounds.readable():
                yield tf.distribute.TPUStrategy(cluster)
    finally:
        _inside = False


def _served(cluster: MadeUpCluster, engine: Engine) -> list[tuple[Any, str, Any]]:
    """What of TensorFlow needs a TPU, and what stands in for it: module or class, name, replacement."""

    def initialize(*_: Any, **__: Any) -> Any:
        engine.reset()
        return cluster.topology()

    def describe_optimizer(self: Any, parameters: Any) -> None:
        # A bool where the protocol buffer has a number: deprecated, and an error from protobuf 7 on.
        self.low_dimensional_packing_status = int(self.low_dimensional_packing_status)
        set_parameters(self, parameters)

    set_parameters = tpu_embedding_v2_utils._Optimizer._set_optimization_parameters
    function = polymorphic_function.Function
    return [
        (device_util, "get_host_for_device", cluster.host_of(device_util.get_host_for_device)),
        (tpu_strategy_util, "initialize_tpu_system_impl", initialize),
        (tpu_strategy_util, "shutdown_tpu_system_impl", lambda *_, **__: engine.reset()),
        (tpu_embedding_v2_utils._Optimizer, "_set_optimization_parameters", describe_optimizer),
        (tpu_ops, "is_tpu_embedding_initialized", engine.is_configured),
        (tpu, "initialize_system_for_tpu_embedding", engine.configure),
        (tpu_embedding_v2, "_load_variables_impl", engine.load),
        (tpu_embedding_v2, "_retrieve_variables_impl", engine.retrieve),
        (tpu_ops, "enqueue_tpu_embedding_arbitrary_tensor_batch", engine.enqueue),
        (tpu_ops, "recv_tpu_embedding_activations", engine.receive),
        (tpu_ops, "send_tpu_embedding_gradients", engine.send),
        (tpu, "replicate", engine.replicate),
        (tpu_ops, "cross_replica_sum", collectives.cross_replica_sum),
        (tpu_ops, "all_to_all", collectives.all_to_all),
        (
            tpu_replication,
            "outside_compilation_impl",
            lambda _, computation, *args, **kwargs: computation(*args, **kwargs),
        ),
        (function, "__call__", inlining.inlined(function.__call__)),
    ]


@contextlib.contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)
