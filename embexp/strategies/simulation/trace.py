"""A traced function's TPU operations and the embedding configuration, in readable form."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from embexp.strategies.simulation import compilation

_ABOUT_TPUS = ("TPU", "CrossReplica", "AllToAll", "CollectivePermute")


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
                    tuple(_described(tensor) for tensor in operation.inputs),
                    tuple(_described(tensor) for tensor in operation.outputs),
                )
            )
    return found


def configuration(embedding: Any) -> str:
    """The `TPUEmbeddingConfiguration` of a built `TPUEmbedding`, in protocol buffers' text format.

    Args:
        embedding: `tf.tpu.experimental.embedding.TPUEmbedding`, made under a TPUStrategy.

    Raises:
        ValueError: it is not built, or was not made under a TPUStrategy.
    """
    proto = getattr(embedding, "_config_proto", None)
    if proto is None:
        raise ValueError("this TPUEmbedding has no configuration: build it first, under a TPUStrategy")
    return str(proto)


def _walk(graph: Any, seen: set[str]) -> Iterator[tuple[str, Any]]:
    for operation in graph.get_operations():
        yield getattr(graph, "name", ""), operation
        for name in compilation.functions_of(operation):
            function = graph._get_function(name) if name not in seen else None
            seen.add(name)
            if function is not None:
                yield from _walk(function.graph, seen)


def _described(tensor: Any) -> str:
    shape = "?" if tensor.shape.rank is None else ",".join(str(size) for size in tensor.shape)
    return f"{tensor.dtype.name}[{shape}]"
