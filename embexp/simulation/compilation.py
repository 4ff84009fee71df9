"""Refuses steps that a TPU could not compile, while they are traced.

A TPU compiles a step with XLA, for fixed shapes. What TensorFlow can't compile with XLA for a CPU, by its own list of
kernels, it can't compile for a TPU either; and a shape that is computed from values can't be compiled at all.
"""

from __future__ import annotations

import collections
import functools
import importlib.util
import linecache
import os
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf
from tensorflow.python.framework import kernels

from embexp.tables import bounds

ON_HOST = "_simulated_on_host"
"""Attribute of operations that run on a TPU's host."""

_XLA = "XLA_CPU_JIT"
_HOST_OPERATIONS = frozenset(
    {"Assert", "AssertNextDataset", "PrintV2", "WriteAudioSummary", "WriteGraphSummary", "WriteHistogramSummary"}
    | {"WriteImageSummary", "WriteRawProtoSummary", "WriteScalarSummary", "WriteSummary", "FlushSummaryWriter"}
)
"""Those that TensorFlow itself moves to the host, or leaves out, with whatever is computed for them alone."""
_ARGUMENTS = frozenset({"Placeholder", "_Arg", "_Retval", "NoOp"})
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
)
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


def check(operations: Sequence[Any], results: Any) -> None:
    """Checks the operations of one replica's step.

    Args:
        operations: in a graph, without those on the host.
        results: what the step returns, nested.

    Raises:
        tf.errors.InvalidArgumentError: a TPU could not compile some; names them, the line that made each, the reason
            and the remedy. `bounds.translated_errors` turns this into a RunError.
    """
    returned = {one.op for one in tf.nest.flatten(results, expand_composites=True) if isinstance(one, tf.Tensor)}
    found = [_described(operation, why) for operation in _all(operations, returned) if (why := _fault(operation))]
    if found:
        unique = list(dict.fromkeys(found))
        more = [f"and {len(unique) - _MANY} more"] if len(unique) > _MANY else []
        message = (
            f"{bounds.UNCOMPILED}\n"
            + "".join(f"  {one}\n" for one in [*unique[:_MANY], *more])
            + "  Compute it in the input pipeline (Dataset.map) or before strategy.run, or let the step's host compute"
            " it: tf.compat.v1.tpu.outside_compilation(function, …), whose result must have a known shape. Shapes can"
            " be fixed by padding and masks: tf.where(condition, x, 0.0) keeps the shape."
        )
        raise tf.errors.InvalidArgumentError(None, None, message)


def _all(operations: Sequence[Any], returned: set[Any]) -> Iterator[Any]:
    """The operations that a core computes, and those of the functions that it calls in them."""
    seen: set[str] = set()
    waiting = collections.deque([(operations, returned)])
    while waiting:
        for operation in _needed(*waiting.popleft()):
            yield operation
            for name in _functions(operation):
                graph = _graph_of(operation, name)
                if name not in seen and graph is not None:
                    waiting.append((graph.get_operations(), {tensor.op for tensor in graph.outputs}))
                seen.add(name)


def _needed(operations: Sequence[Any], returned: set[Any]) -> list[Any]:
    """The operations of a graph that are neither on the host, nor computed only for what is, or for nothing."""
    compiled = {one for one in operations if one.type not in _HOST_OPERATIONS and not _marked(one)}
    needed = {one for one in compiled if one in returned or one.op_def.is_stateful}
    waiting = list(needed)
    while waiting:
        for tensor in waiting.pop().inputs:
            if tensor.op in compiled and tensor.op not in needed:
                needed.add(tensor.op)
                waiting.append(tensor.op)
    return [one for one in operations if one in needed]


def _marked(operation: Any) -> bool:
    try:
        return bool(operation.get_attr(ON_HOST))
    except ValueError:
        return False


def _functions(operation: Any) -> list[str]:
    if not _calls(operation.type):
        return []
    found = []
    for attribute in operation.node_def.attr.values():
        several = [one.name for one in attribute.list.func]
        found += several or ([attribute.func.name] if attribute.HasField("func") else [])
    return found


@functools.cache
def _calls(kind: str) -> bool:
    """Whether operations of a kind call functions that are compiled with them."""
    return kind in {"If", "StatelessIf", "While", "StatelessWhile", "Case", "StatelessCase"} or kind.endswith(
        "PartitionedCall"
    )


def _graph_of(operation: Any, name: str) -> Any:
    function = operation.graph._get_function(name)
    return None if function is None else getattr(function, "graph", None)


def _fault(operation: Any) -> str:
    """Why a TPU can't compile an operation; "" if it can."""
    kind = operation.type
    if kind in _ARGUMENTS:
        return ""
    strings = [one for one in (*operation.inputs, *operation.outputs) if one.dtype == tf.string]
    if strings:
        return "a TPU has no strings"
    if not _has_kernel(operation):
        named = (reason for words, reason in _REASONS if any(word in kind for word in words))
        return next(named, "TensorFlow has no XLA kernel for it")
    if kind in _DYNAMIC or _sized_by_values(operation):
        return "the shape of its result depends on values, and a TPU compiles for fixed shapes"
    return ""


def _has_kernel(operation: Any) -> bool:
    return any(
        all(_types(operation.get_attr(name)) <= allowed for name, allowed in constraints)
        for constraints in _constraints(operation.type)
    )


def _types(attribute: Any) -> set[Any]:
    """The types that an attribute names."""
    return set(attribute) if isinstance(attribute, list) else {attribute}


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
    seen, waiting = {operation}, [operation]
    while waiting:
        one = waiting.pop()
        if one.type in _KNOWN:
            continue
        if one.type in _ARGUMENTS or one.op_def.is_stateful or _calls(one.type):
            return False
        before = {tensor.op for tensor in one.inputs} - seen
        seen |= before
        waiting += before
    return True


def _described(operation: Any, why: str) -> str:
    line = next((frame for frame in reversed(list(operation.traceback)) if not frame.filename.startswith(_OWN)), None)
    where = ""
    if line is not None:
        where = f", {line.filename}:{line.lineno}: {linecache.getline(line.filename, line.lineno).strip()}"
    return f"{operation.type} ({operation.name}{where}): {why}"
