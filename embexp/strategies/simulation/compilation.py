"""Refuses steps that a TPU could not compile, while they are traced; lists the TPU's operations of those that it can.

A TPU compiles a step with XLA, for fixed shapes. What TensorFlow can't compile with XLA for a CPU, by its own list of
kernels, it can't compile for a TPU either; and a shape that is computed from values can't be compiled at all.

The host computes what `outside_compilation` marks, and under `tf.config.set_soft_device_placement(True)` also what has
no kernel, as a TPU's program does then.
"""

from __future__ import annotations

import collections
import functools
import importlib.util
import linecache
import os
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels
from tensorflow.python.tpu import tpu_replication

from embexp.tables import inputs

_XLA = "XLA_CPU_JIT"
_LEFT_OUT = frozenset({"Assert", "AssertNextDataset"})
"""Those that a TPU does not compute, nor whatever is computed for them alone."""
_ARGUMENTS = frozenset({"Placeholder", "PlaceholderWithDefault", "_Arg", "_Retval", "NoOp"})
_DYNAMIC = frozenset(
    {"Where", "Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2", "ListDiff", "DynamicPartition"}
)
"""Operations that have results as long as values say, even if XLA has kernels with an upper bound for some."""
_KNOWN = frozenset({"Const", "Shape", "ShapeN", "Size", "Rank", "VariableShape", "BroadcastGradientArgs"})
"""Operations whose results depend on shapes alone."""
_DATA_FIRST = frozenset({"Reshape", "StridedSlice", "Slice", "Tile", "BroadcastTo", "OneHot"})
"""Operations whose first input does not decide on a shape."""
_NO_NUMBERS = (tf.resource, tf.variant)
_REASONS = (
    (("PyFunc",), "it calls Python, which runs on the host"),
    (("LookupTable", "HashTable", "Anonymous"), "it needs a table in the host's memory"),
    (("Dataset", "Iterator"), "it reads data, which the host does"),
    (("Summary",), "it writes a summary, which the host does"),
    (("Print",), "it prints, which the host does"),
)
_UNKNOWN = "its result comes from the host, but a TPU must know its shape: call tf.ensure_shape in that function"
_MANY = 5
_OWN = tuple(
    f"{folder}{os.sep}"
    for folder in (
        sysconfig.get_paths()["stdlib"],
        Path(__file__).parents[1],
        *(
            Path(spec.origin).parent
            for spec in map(importlib.util.find_spec, ("tensorflow", "keras", "tensorboard"))
            if spec and spec.origin
        ),
    )
)
"""Folders of code that is not the user's."""


@dataclass(frozen=True)
class _Graph:
    """The operations of one graph of a step.

    Attributes:
        compiled: those of a core, but for those computed only for the host or for nothing.
    """

    compiled: list[Any]
    on_host: set[Any]


def check(operations: Sequence[Any], results: Any, *, soft_placement: bool) -> None:
    """Checks the operations of one replica's step.

    Args:
        soft_placement: whether the host computes what can't be compiled.

    Raises:
        tf.errors.InvalidArgumentError: a TPU could not compile some; names them, the line that made each, the reason
            and the remedy. `inputs.translated_errors` turns this into a RunError.
    """
    returned = {one.op for one in tf.nest.flatten(results, expand_composites=True) if isinstance(one, tf.Tensor)}
    found = [fault for graph in _graphs(operations, returned, soft_placement) for fault in _faults(graph)]
    if found:
        one_of_each = {why: operation for operation, why in reversed(found)}
        first = [(operation, why) for operation, why in found if one_of_each[why] is operation]
        unique = list(dict.fromkeys(_described(operation, why) for operation, why in [*first, *found]))
        more = [f"and {len(unique) - _MANY} more"] if len(unique) > _MANY else []
        message = (
            f"{inputs.UNCOMPILED}\n"
            + "".join(f"  {one}\n" for one in [*unique[:_MANY], *more])
            + "  Compute it in the input pipeline (Dataset.map) or before strategy.run, or let the step's host compute"
            " it: tf.compat.v1.tpu.outside_compilation(function, …), whose result must have a known shape, or"
            " tf.config.set_soft_device_placement(True) before the step is traced. Shapes can be fixed by padding and"
            " masks: tf.where(condition, x, 0.0) keeps the shape."
        )
        raise tf.errors.InvalidArgumentError(None, None, message)


def _graphs(operations: Sequence[Any], returned: set[Any], soft_placement: bool) -> Iterator[_Graph]:
    """The step's graph, and those of the functions that a core calls."""
    seen: set[str] = set()
    waiting = collections.deque([(operations, returned)])
    while waiting:
        divided = _divided(*waiting.popleft(), soft_placement)
        yield divided
        for operation in filter(lambda one: _calls(one.type), divided.compiled):
            for name in functions_of(operation):
                graph = getattr(operation.graph._get_function(name), "graph", None)
                if name not in seen and graph is not None:
                    waiting.append((graph.get_operations(), {tensor.op for tensor in graph.outputs}))
                seen.add(name)


def _divided(operations: Sequence[Any], returned: set[Any], soft_placement: bool) -> _Graph:
    on_host = {one for one in operations if _marked(one) or (soft_placement and _uncompilable(one))}
    others = {one for one in operations if one.type not in _LEFT_OUT and one not in on_host}
    first = {one for one in others if one in returned or one.op_def.is_stateful}
    needed = others & _with_inputs(first, others.__contains__)
    return _Graph([one for one in operations if one in needed], on_host)


def _with_inputs(operations: Iterable[Any], goes_on: Callable[[Any], bool]) -> set[Any]:
    """Operations, and those that compute their inputs, and so on from those for which it `goes_on`."""
    found = set(operations)
    waiting = list(filter(goes_on, found))
    while waiting:
        before = {tensor.op for tensor in waiting.pop().inputs} - found
        found |= before
        waiting += filter(goes_on, before)
    return found


def _marked(operation: Any) -> bool:
    try:
        return bool(operation.get_attr(tpu_replication._OUTSIDE_COMPILATION_ATTR))
    except ValueError:
        return False


def functions_of(operation: Any) -> list[str]:
    """The names of the functions that an operation calls, or may call."""
    found = []
    attributes = sorted(operation.node_def.attr.items())  # a map of protobuf's has another order in each process
    for _, attribute in attributes:
        several = [one.name for one in attribute.list.func]
        found += several or ([attribute.func.name] if attribute.HasField("func") else [])
    return found


@functools.cache
def _calls(kind: str) -> bool:
    """Whether operations of a kind call functions that are compiled with them."""
    return kind in {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"} or kind.endswith(
        "PartitionedCall"
    )


def _faults(graph: _Graph) -> Iterator[tuple[Any, str]]:
    """What is wrong with a graph: operations, each with the reason."""
    for operation in graph.compiled:
        why = _uncompilable(operation)
        if not why and (operation.type in _DYNAMIC or _sized_by_values(operation)):
            why = "the shape of its result depends on values, but a TPU compiles for fixed shapes"
        # A text that is given to an operation is that operation's fault.
        if why and not (operation.type == "Const" and operation.outputs[0].consumers()):
            yield operation, why
        if operation.type != "EnsureShape":
            for tensor in operation.inputs:
                if tensor.op in graph.on_host and _is_unknown(tensor, graph.on_host):
                    yield tensor.op, _UNKNOWN


def _uncompilable(operation: Any) -> str:
    """Why there is no kernel with which a TPU could compute an operation; "" if there is one."""
    kind = operation.type
    if kind in _ARGUMENTS:
        return ""
    strings = any(one.dtype == tf.string for one in (*operation.inputs, *operation.outputs))
    if _has_kernel(operation) and not strings:
        return ""
    named = (reason for words, reason in _REASONS if any(word in kind for word in words))
    return next(named, "a TPU has no strings" if strings else "TensorFlow has no XLA kernel for it")


def _is_unknown(tensor: Any, on_host: set[Any]) -> bool:
    """Whether the host computes a tensor of unknown shape, although the shapes of all that it gets are known."""
    if tensor.shape.is_fully_defined() or tensor.dtype in _NO_NUMBERS:
        return False
    inside = on_host & _with_inputs([tensor.op], on_host.__contains__)
    read = (each for one in inside for each in one.inputs if each.op not in on_host)
    return all(each.shape.is_fully_defined() or each.dtype in _NO_NUMBERS for each in read)


def _has_kernel(operation: Any) -> bool:
    return any(
        all(set(tf.nest.flatten(operation.get_attr(name))) <= allowed for name, allowed in constraints)
        for constraints in _constraints(operation.type)
    )


@functools.cache
def _constraints(kind: str) -> tuple[tuple[tuple[str, frozenset[Any]], ...], ...]:
    """Of each XLA kernel of a kind of operation: the types that attributes may have."""
    _register_kernels()
    return tuple(
        tuple((one.name, frozenset(map(tf.as_dtype, one.allowed_values.list.type))) for one in kernel.constraint)
        for kernel in kernels.get_registered_kernels_for_op(kind).kernel
        if kernel.device_type == _XLA
    )


@functools.cache
def _register_kernels() -> None:
    """Has TensorFlow list its XLA kernels, which it does when a process calls its first function."""
    with tf.init_scope():
        tf.function(lambda: tf.constant(0))()


def _sized_by_values(operation: Any) -> bool:
    """Whether values decide on the shape of a result, although the shapes of all inputs are known."""
    inputs = list(operation.inputs)
    sizes = inputs[1:] if operation.type in _DATA_FIRST else inputs
    return (
        any(not one.shape.is_fully_defined() and one.dtype not in _NO_NUMBERS for one in operation.outputs)
        and all(one.shape.is_fully_defined() and one.dtype not in _NO_NUMBERS for one in inputs)
        and not _calls(operation.type)
        and any(one.dtype in (tf.int32, tf.int64) and not _constant(one.op) for one in sizes)
    )


def _constant(operation: Any) -> bool:
    """Whether a compiler knows an operation's results."""
    found = _with_inputs([operation], lambda one: one.type not in _KNOWN and not _computed(one))
    return all(one.type in _KNOWN or not _computed(one) for one in found)


def _computed(operation: Any) -> bool:
    return operation.type in _ARGUMENTS or bool(operation.op_def.is_stateful) or _calls(operation.type)


def _described(operation: Any, why: str) -> str:
    line = next((frame for frame in reversed(list(operation.traceback)) if not frame.filename.startswith(_OWN)), None)
    where = ""
    if line is not None:
        where = f", {line.filename}:{line.lineno}: {linecache.getline(line.filename, line.lineno).strip()}"
    return f"{operation.type} ({operation.name}{where}): {why}"


_ABOUT_TPUS = ("TPU", "SparseCore", "XlaSparse", "CrossReplica", "AllToAll", "CollectivePermute")


@dataclass(frozen=True)
class TracedOperation:
    """One TPU operation in a traced function.

    Attributes:
        function: name of its graph: the traced function, or a loop or condition inside it.
        type: such as `RecvTPUEmbeddingActivations`.
        device: its device, "" if unset.
        inputs: dtype and shape of each input, such as `int64[None]`.
        outputs: dtype and shape of each output.
    """

    function: str
    type: str
    device: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.type}({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})"


def operations(graph: Any) -> list[TracedOperation]:
    """The TPU operations of a traced function and of all functions that it calls, in order.

    Trace the function under `tpu_simulator(serve=False)`; otherwise the row engine's operations replace them.

    Args:
        graph: the traced function's, `step.get_concrete_function(...).graph`.
    """
    found = []
    for function, operation in _walk(graph, set()):
        if any(word in operation.type for word in _ABOUT_TPUS):
            found.append(
                TracedOperation(
                    function,
                    operation.type,
                    operation.device,
                    tuple(_typed(tensor) for tensor in operation.inputs),
                    tuple(_typed(tensor) for tensor in operation.outputs),
                )
            )
    return found


def configuration(embedding: Any) -> str:
    """The `TPUEmbeddingConfiguration` of a built `TPUEmbedding`, in protocol buffers' text format.

    Of a `TPUEmbeddingV2`, the `SparseCoreTableLayout` of each table.

    Args:
        embedding: `tf.tpu.experimental.embedding.TPUEmbedding` or `TPUEmbeddingV2`, made under a TPUStrategy.

    Raises:
        ValueError: it is not built, or was not made under a TPUStrategy.
    """
    if (layouts := getattr(embedding, "embedding_layouts", None)) is not None:
        return "\n".join(map(str, layouts.values()))
    proto = getattr(embedding, "_config_proto", None)
    if proto is None:
        raise ValueError("this TPUEmbedding has no configuration: build it first, under a TPUStrategy")
    return str(proto)


def _walk(graph: Any, seen: set[str]) -> Iterator[tuple[str, Any]]:
    for operation in graph.get_operations():
        yield getattr(graph, "name", ""), operation
        for name in functions_of(operation):
            function = graph._get_function(name) if name not in seen else None
            seen.add(name)
            if function is not None:
                yield from _walk(function.graph, seen)


def _typed(tensor: Any) -> str:
    shape = "?" if tensor.shape.rank is None else ",".join(str(size) for size in tensor.shape)
    return f"{tensor.dtype.name}[{shape}]"
