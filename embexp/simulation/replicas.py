"""The replicas of a strategy, traced into one graph of the processor.

A TPU runs one program on all cores at once, traced once. Here each replica is traced by itself, in a thread of its own,
of which one runs at a time: replica 0 until it ends or comes to where replicas meet (a sum over all of them, the lookup
of embeddings), then replica 1 as far, and so on; when all have met they get their answers and go on. The order of all
operations is thereby fixed.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import attr_value_pb2
from tensorflow.python.distribute import tpu_util
from tensorflow.python.framework import ops
from tensorflow.python.tpu import tpu_replication
from tensorflow.python.util import nest

Serve = Callable[[list[Any]], Sequence[Any]]
"""Given what each replica brings, by replica, what each of them gets."""


class Stopped(BaseException):
    """Ends the trace of a replica because another one failed; nothing between is to catch it."""


class ReplicaScope(tpu_replication.TPUReplicateContext):  # type: ignore[misc]
    """Tells TensorFlow that it is inside a TPU computation, and leaves the operations as they are."""

    def __init__(self, replica: int) -> None:
        """Enters nothing yet."""
        super().__init__(name=f"simulated_replica_{replica}", num_replicas=1, pivot=None)
        self.replica = replica

    def IsXLAContext(self) -> bool:  # noqa: N802
        """False: nothing here is compiled."""
        return False

    def AddOp(self, op: Any) -> None:  # noqa: N802
        """Leaves an operation as it is."""
        if self.outer_context is not None:
            self.outer_context.AddInnerOp(op)

    def AddInnerOp(self, op: Any) -> None:  # noqa: N802
        """Leaves an operation as it is."""
        self.AddOp(op)

    def AddValue(self, val: Any) -> Any:  # noqa: N802
        """Leaves a value as it is."""
        return val if self.outer_context is None else self.outer_context.AddValue(val)

    def get_replicated_var_handle(
        self, name: str, handle_id: str, vars_: Sequence[Any], is_mirrored: bool = False, is_packed: bool = False
    ) -> Any:
        """This replica's own copy of a variable."""
        copy = vars_[self.replica]
        return copy.handle if hasattr(copy, "handle") else copy


class _Replica(threading.Thread):
    """One replica, and what it inherits from the thread that traces it."""

    def __init__(self, number: int, graph: Any, computation: Callable[[], Any]) -> None:
        super().__init__(name=f"replica {number}", daemon=True)
        self.number, self.graph, self.computation = number, graph, computation
        self.scope = ReplicaScope(number)
        self.may_run, self.has_paused = threading.Event(), threading.Event()
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = self.stop = False
        self.meeting: tuple[str, Serve, Any] | None = None
        self.answer: Any = None
        self.functions = 0
        self._creators = list(graph._variable_creator_stack)
        self._strategies = list(graph._distribution_strategy_stack)
        self._control_inputs = list(graph._current_control_dependencies())
        self._devices = graph._device_function_stack.copy()
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
            init = contextlib.nullcontext() if self._init_eager else self._init_graph.as_default()
            with init, self.graph.as_default():
                self.graph._variable_creator_stack = self._creators
                self.graph._distribution_strategy_stack = self._strategies
                self.graph._device_function_stack = self._devices
                with tf.control_dependencies(self._control_inputs), tf.name_scope(names):
                    self.result = self.computation()
            self.done = True
        except BaseException as error:  # it is raised again, by the thread that traces
            self.error = error
        finally:
            self.has_paused.set()

    def go_on(self) -> None:
        """Lets the replica run until it ends or meets the others. Called by the thread that traces."""
        outer = self.graph._get_control_flow_context()
        if self.scope.outer_context is not outer:
            self.scope._outer_context = outer
        self.graph._set_control_flow_context(self.scope)
        try:
            self.may_run.set()
            self.has_paused.wait()
            self.has_paused.clear()
        finally:
            self.graph._set_control_flow_context(outer)

    def meet(self, what: str, serve: Serve, brought: Any) -> Any:
        """Waits until all replicas have come here. Called by the replica itself."""
        if ops.get_default_graph() is not self.graph:
            raise RuntimeError(
                f"{what} stands inside control flow (a condition or a loop) of the function that strategy.run is "
                "given; the simulated TPU serves it only outside of that"
            )
        self.meeting, self.answer = (what, serve, brought), None
        self.has_paused.set()
        self.may_run.wait()
        self.may_run.clear()
        if self.stop:
            raise Stopped
        return self.answer


def inside() -> bool:
    """Whether a replica is being traced, and its graph or one inside of it is current."""
    return _traced() is not None and tpu_util.enclosing_tpu_context() is not None


@contextlib.contextmanager
def function() -> Iterator[None]:
    """While a tf.function inside a replica is traced into it."""
    replica = _own("a tf.function")
    replica.functions += 1
    try:
        yield
    finally:
        replica.functions -= 1


def in_function() -> bool:
    """Whether a tf.function inside a replica is being traced into it."""
    return _own("a tf.function").functions > 0


def number() -> int:
    """Number of the replica that is being traced.

    Raises:
        RuntimeError: outside of a replica.
    """
    return _own("the number of a replica").number


def meet(what: str, serve: Serve, brought: Any) -> Any:
    """Brings something to where all replicas meet, and returns this one's answer.

    Args:
        what: what they meet for, in words.
        serve: makes the answers, in the graph that all replicas are traced into; the first replica's is used.
        brought: what this replica brings.

    Raises:
        RuntimeError: outside of a replica, or inside its control flow, or replicas do not all come here.
    """
    return _own(what).meet(what, serve, brought)


def replicate(computation: Callable[..., Any], inputs: Sequence[Sequence[Any]]) -> list[Any]:
    """Traces `computation` once per replica into the current graph, as `tpu.replicate` does for a TPU.

    Args:
        computation: of one replica.
        inputs: its arguments, by replica; the first is the replica's number.

    Returns:
        What it returned, by replica, as tensors.
    """
    graph = ops.get_default_graph()
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
            _answer(replicas)
    finally:
        for replica in replicas:
            if not replica.done and replica.error is None:
                replica.stop = True
                replica.go_on()
            replica.join()
    return [replica.result for replica in replicas]


def _answer(replicas: list[_Replica]) -> None:
    meetings = [replica.meeting for replica in replicas]
    for replica in replicas:
        replica.meeting = None
    there = [meeting for meeting in meetings if meeting is not None]
    if not there:
        return
    if len(there) < len(replicas) or len({what for what, _, _ in there}) > 1:
        found = ", ".join(f"replica {n}: {m[0] if m else 'at its end'}" for n, m in enumerate(meetings))
        raise RuntimeError(f"replicas must do the same, but they wait for each other at different places: {found}")
    answers = there[0][1]([brought for _, _, brought in there])
    for replica, answer in zip(replicas, answers, strict=True):
        replica.answer = answer


def _as_replica(computation: Callable[..., Any], arguments: Sequence[Any]) -> Callable[[], Any]:
    number, *rest = arguments

    def traced() -> Any:
        result = computation(number, *nest.map_structure(_input, rest, expand_composites=True))
        return nest.map_structure(_output, result, expand_composites=True)

    return traced


def _input(value: Any) -> Any:
    """An input as TensorFlow marks one of a TPU computation, which `TPUEmbedding.enqueue` looks for."""
    if value is None:
        return None
    with tf.device(value.device if isinstance(value, tf.Tensor) else None):  # it looks at the device, too
        tensor = tf.identity(value)
    tensor.op._set_attr("_tpu_input_identity", attr_value_pb2.AttrValue(b=True))
    return tensor


def _output(value: Any) -> Any:
    return value if value is None or isinstance(value, tf.Operation) else tf.convert_to_tensor(value)


def _own(what: str) -> _Replica:
    replica = _traced()
    if replica is None:
        raise RuntimeError(f"{what}: only inside of a function that strategy.run is given")
    return replica


def _traced() -> _Replica | None:
    thread = threading.current_thread()
    return thread if isinstance(thread, _Replica) else None
