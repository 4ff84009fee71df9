"""The replicas of a strategy, traced into one graph of the CPU, each in a thread; and their collective operations.

A TPU runs one program on all cores at once, traced once. Here each replica is traced separately, in its own thread.
One thread runs at a time: replica 0 until it ends or reaches an exchange between replicas (a sum over all of them, the
lookup of embeddings), then replica 1 to the same point, and so on. When all have reached it, each gets its result and
continues. This fixes the order of all operations.

What a replica's thread takes over from the thread that traces: state that TensorFlow and Keras keep by thread. On a TPU
one thread traces one program for all replicas.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.distribute import tpu_util
from tensorflow.python.framework import ops
from tensorflow.python.ops import summary_ops_v2
from tensorflow.python.tpu import embedding_context_utils, tpu_replication
from tensorflow.python.util import nest

from embexp.strategies.simulation import compilation
from embexp.tables.inputs import without_autograph

Exchange = Callable[[list[Any]], Sequence[Any]]
"""From the values of all replicas to their results, both by replica."""


_ONLY_INSIDE = "only inside a function passed to strategy.run"


class Stopped(BaseException):
    """Ends the trace of a replica because another one failed; not an `Exception`, so that no code catches it."""


class _Replica(threading.Thread):
    """One replica, with the state of the tracing thread."""

    def __init__(self, number: int, graph: Any, computation: Callable[[], Any]) -> None:
        super().__init__(name=f"replica {number}", daemon=True)
        self.number, self.graph, self.computation = number, graph, computation
        self.may_run, self.has_paused = threading.Event(), threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = self.stop = False
        self.waiting: tuple[str, Exchange, Any] | None = None
        self.result_of_exchange: Any = None
        self.functions = 0
        self._take_over = inherited_state(first=number == 0)
        self._creators = list(graph._variable_creator_stack)
        self._strategies = list(graph._distribution_strategy_stack)
        self._control_inputs = list(graph._current_control_dependencies())
        self._devices = graph._device_function_stack.copy()
        self.scope = ReplicaScope(number, self._devices.copy())
        self._context: Any = self.scope
        self._names = graph.get_name_scope()
        with ops.init_scope():
            self._init_graph = ops.get_default_graph()
            self._init_eager = tf.executing_eagerly()

    def run(self) -> None:
        self.may_run.wait()
        self.may_run.clear()
        names = f"{self._names}/" if self._names else ""
        names += f"replica_{self.number}/" if self.number else ""
        try:
            if self.stop:
                raise Stopped
            self._take_over()
            init = contextlib.nullcontext() if self._init_eager else self._init_graph.as_default()
            with init, self.graph.as_default():
                self.graph._variable_creator_stack = self._creators
                self.graph._distribution_strategy_stack = self._strategies
                self.graph._device_function_stack = self._devices
                with tf.control_dependencies(self._control_inputs), tf.name_scope(names):
                    self.result = self.computation()
            self.done = True
        except BaseException as error:  # the tracing thread raises it again
            self.error = error
        finally:
            self.has_paused.set()

    def go_on(self) -> None:
        """Lets the replica run until it ends or reaches an exchange. Called by the tracing thread."""
        outer = self.graph._get_control_flow_context()
        if self.scope.outer_context is not outer:
            self.scope._outer_context = outer
        self.graph._set_control_flow_context(self._context)
        try:
            self.may_run.set()
            self.has_paused.wait()
            self.has_paused.clear()
        finally:
            self._context = self.graph._get_control_flow_context()
            self.graph._set_control_flow_context(outer)

    def exchange(self, what: str, compute: Exchange, value: Any) -> Any:
        """Waits until all replicas are here. Called by the replica's thread."""
        if ops.get_default_graph() is not self.graph:
            raise RuntimeError(
                f"{what} is inside control flow (a condition or a loop) of the function passed to strategy.run; "
                f"the simulated TPU supports it only outside control flow"
            )
        self.waiting, self.result_of_exchange = (what, compute, value), None
        self.has_paused.set()
        self.may_run.wait()
        self.may_run.clear()
        if self.stop:
            raise Stopped
        return self.result_of_exchange


def inside() -> bool:
    """Whether a replica is being traced, and the current graph is its graph or inside it."""
    return _traced() is not None and tpu_util.enclosing_tpu_context() is not None


@contextlib.contextmanager
def function() -> Iterator[None]:
    """Marks that a tf.function is traced into a replica."""
    replica = _own("a tf.function")
    replica.functions += 1
    try:
        yield
    finally:
        replica.functions -= 1


def in_function() -> bool:
    """Whether a tf.function is being traced into a replica."""
    return _own("a tf.function").functions > 0


def number() -> int:
    """Number of the replica that is being traced.

    Raises:
        RuntimeError: outside a replica.
    """
    return _own("the number of a replica").number


def exchange(what: str, compute: Exchange, value: Any, outside: Callable[[], Any] | None = None) -> Any:
    """Exchanges values between all replicas, and returns this one's result.

    Args:
        compute: computes the results, in the graph that all replicas are traced into; the first replica's is used.
        value: this replica's value.
        outside: makes results of the same shapes for a graph outside of replicas, such as the one in which Keras finds
            out about shapes. It is an error to run that graph.

    Raises:
        RuntimeError: outside a replica, or inside its control flow, or not all replicas reach this exchange.
    """
    if outside is not None and _traced() is None and not tf.executing_eagerly():
        message = f"{what}: {_ONLY_INSIDE}"
        with tf.control_dependencies([tf.raw_ops.Assert(condition=False, data=[message])]):
            return outside()
    return _own(what).exchange(what, compute, value)


def replicate(computation: Callable[..., Any], inputs: Sequence[Sequence[Any]]) -> list[Any]:
    """Traces `computation` once per replica into the current graph, as `tpu.replicate` does for a TPU.

    Returns:
        Its results by replica, as tensors.
    """
    graph, soft_placement = ops.get_default_graph(), tf.config.get_soft_device_placement()
    graph.switch_to_thread_local()
    replicas = [_Replica(number, graph, _as_replica(computation, arguments)) for number, arguments in enumerate(inputs)]
    for replica in replicas:
        replica.start()
    try:
        while not all(replica.done for replica in replicas):
            for replica in replicas:
                if not replica.done:
                    replica.go_on()
                    if replica.error is not None:
                        raise replica.error
            _complete_exchange(replicas)
    finally:
        for replica in replicas:
            if not replica.done and replica.error is None:
                replica.stop = True
                replica.go_on()
            replica.join()
    compilation.check(replicas[0].scope.operations, replicas[0].result, soft_placement=soft_placement)
    return [replica.result for replica in replicas]


def _complete_exchange(replicas: list[_Replica]) -> None:
    exchanges = [replica.waiting for replica in replicas]
    for replica in replicas:
        replica.waiting = None
    reached = [each for each in exchanges if each is not None]
    if not reached:
        return
    if len(reached) < len(replicas) or len({what for what, _, _ in reached}) > 1:
        where = ", ".join(f"replica {n}: {each[0] if each else 'at its end'}" for n, each in enumerate(exchanges))
        raise RuntimeError(f"replicas must do the same, but they wait for each other at different places: {where}")
    results = reached[0][1]([value for _, _, value in reached])
    for replica, result in zip(replicas, results, strict=True):
        replica.result_of_exchange = result


def _as_replica(computation: Callable[..., Any], arguments: Sequence[Any]) -> Callable[[], Any]:
    def traced() -> Any:
        result = computation(*nest.map_structure(_input, list(arguments), expand_composites=True))
        return nest.map_structure(as_tensor, result, expand_composites=True)

    return traced


def _input(value: Any) -> Any:
    """An input of a TPU computation, marked as TensorFlow does; `TPUEmbedding.enqueue` checks for the mark.

    Its value is known only when the computation runs, also that of a constant: a TPU compiles for any value.
    """
    if value is None:
        return None
    with tf.device(value.device if isinstance(value, tf.Tensor) else None):  # it checks the device, too
        given = tf.convert_to_tensor(value)
        tensor = tf.raw_ops.PlaceholderWithDefault(input=given, shape=given.shape)
    tensor.op._set_attr("_tpu_input_identity", attr_value_pb2.AttrValue(b=True))
    return tensor


def as_tensor(value: Any) -> Any:
    """A result as a tensor; operations and None as they are."""
    return value if value is None or isinstance(value, tf.Operation) else tf.convert_to_tensor(value)


def _own(what: str) -> _Replica:
    replica = _traced()
    if replica is None:
        raise RuntimeError(f"{what}: {_ONLY_INSIDE}")
    return replica


def _traced() -> _Replica | None:
    thread = threading.current_thread()
    return thread if isinstance(thread, _Replica) else None


class ReplicaScope(tpu_replication.TPUReplicateContext):  # type: ignore[misc]
    """Tells TensorFlow that it is inside a TPU computation, and only marks the operations of the host.

    Attributes:
        replica: number of the replica.
        operations: all that the replica makes.
    """

    def __init__(self, replica: int, devices: Any) -> None:
        """Does not enter the scope.

        Args:
            replica: number of the replica.
            devices: the device functions around it, under which TensorFlow makes the host's operations.
        """
        super().__init__(name=f"simulated_replica_{replica}", num_replicas=1, pivot=None)
        self._outer_device_function_stack = devices
        self.replica = replica
        self.operations: list[Any] = []

    def IsXLAContext(self) -> bool:  # noqa: N802
        """False: nothing here is compiled."""
        return False

    def AddOp(self, op: Any) -> None:  # noqa: N802
        """Notes the operation, and marks it if it is the gradient of one that the host computes."""
        self.operations.append(op)
        if self._outside_compilation_cluster:
            cluster = attr_value_pb2.AttrValue(s=self._outside_compilation_cluster.encode())
            op._set_attr(tpu_replication._OUTSIDE_COMPILATION_ATTR, cluster)
        if self.outer_context is not None:
            self.outer_context.AddInnerOp(op)

    def AddInnerOp(self, op: Any) -> None:  # noqa: N802
        """As `AddOp`."""
        self.AddOp(op)

    def AddValue(self, val: Any) -> Any:  # noqa: N802
        """Changes no value."""
        return val if self.outer_context is None else self.outer_context.AddValue(val)

    def get_replicated_var_handle(
        self, name: str, handle_id: str, vars_: Sequence[Any], is_mirrored: bool = False, is_packed: bool = False
    ) -> Any:
        """The handle of this replica's copy of a variable."""
        copy = vars_[self.replica]
        return copy.handle if hasattr(copy, "handle") else copy


def inherited_state(*, first: bool) -> Callable[[], None]:
    """Takes a copy of the calling thread's state, and returns the function that gives it to another thread.

    - `tf.summary`: writer, step and `record_if`. Only the first replica writes, as under TensorFlow's strategies.
    - `TPUEmbeddingV2`: whether its operations may be pipelined.
    - Keras: the dtype policy, the numbers in names, and whatever else its global state holds.

    Args:
        first: whether that thread is the first replica's.
    """
    summary = dict(vars(summary_ops_v2._summary_state))
    if not first:
        summary["is_recording_distribution_strategy"] = False
    embedding = dict(vars(embedding_context_utils.embedding_pipelining_state))
    module = sys.modules.get("keras.src.backend.common.global_state")
    keras = None if module is None else module.GLOBAL_STATE_TRACKER  # a `threading.local`
    state = {} if keras is None else dict(vars(keras))

    def take_over() -> None:
        vars(summary_ops_v2._summary_state).update(summary)
        vars(embedding_context_utils.embedding_pipelining_state).update(embedding)
        if keras is not None:
            vars(keras).update(state)

    return take_over


@without_autograph
def cross_replica_sum(x: Any, group_assignment: Any = None, name: str | None = None) -> Any:
    """Serves `CrossReplicaSum`: the sum of x over all replicas, in their order.

    Its gradient is the sum of the gradients over all replicas, as on a TPU.
    """
    _one_group(group_assignment)

    def summed(x: Any) -> Any:
        total = exchange("a sum over replicas", lambda values: [tf.add_n(values)] * len(values), x)
        return tf.identity(total), cross_replica_sum

    return tf.custom_gradient(summed)(tf.convert_to_tensor(x))


@without_autograph
def all_to_all(
    x: Any,
    concat_dimension: int,
    split_dimension: int,
    split_count: int,
    group_assignment: Any = None,
    name: str | None = None,
) -> Any:
    """Serves `AllToAll`: replica r gets part r of each replica's x, in their order. It has no gradient."""
    _one_group(group_assignment)

    def exchanged(values: list[Any]) -> Sequence[Any]:
        parts = [tf.split(one, split_count, axis=split_dimension) for one in values]
        return [tf.concat(mine, axis=concat_dimension) for mine in zip(*parts, strict=True)]

    return exchange("an exchange between replicas", exchanged, x)


def _one_group(group_assignment: Any) -> None:
    if group_assignment is not None and len(group_assignment) > 1:
        raise NotImplementedError("the simulated TPU does not support groups of replicas")
