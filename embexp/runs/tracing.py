"""Traces the training step of a run without executing it: its graph and, on a TPU, the TPU's operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from embexp.errors import RunError
from embexp.runs.execute import build, training_batches
from embexp.runs.prepare import Prepared
from embexp.simulation import trace as tpu_trace
from embexp.specs.optimizers import slot_count
from embexp.specs.running import RuntimeKind
from embexp.strategies import build as strategies
from embexp.system import arrays
from embexp.system.parallel import Progress, quiet

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Traced:
    """A traced training step.

    Attributes:
        graph_bytes: size of the training function's GraphDef.
        operations: number of its operations of each type, without those inside loops.
        allocated_bytes: of tables and slots, allocated for tracing and not filled.
        configuration: on a TPU, the `TPUEmbeddingConfiguration` in text format; else "".
        tpu_operations: on a TPU, its operations in graph order.
    """

    graph_bytes: int
    operations: Mapping[str, int]
    allocated_bytes: int
    configuration: str = ""
    tpu_operations: tuple[tpu_trace.TracedOperation, ...] = field(default=())


@dataclass(frozen=True)
class _Unfilled:
    """Uninitialized rows; a `MappableRows`."""

    rows: int
    dim: int

    def read(self, start: int, stop: int) -> np.ndarray:
        return arrays.empty((stop - start, self.dim), np.float32)

    def memory_map(self) -> None:
        return None


def trace(prepared: Prepared, progress: Progress = quiet) -> Traced:
    """Traces the training step of a run; creates its variables without filling them.

    Args:
        prepared: the run.
        progress: called when tracing begins.

    Raises:
        RunError: the runtime is not `function`, or devices are missing.
    """
    if prepared.runtime is not RuntimeKind.FUNCTION:
        raise RunError(f"only runtime=function can be traced, and this run has runtime={prepared.runtime.value}")
    spec, rows = prepared.spec, prepared.tables.rows
    strategy = strategies.build(spec.strategy, traced=True)
    unfilled = {name: _Unfilled(rows[name], table.width) for name, table in spec.tables.items()}
    progress("tracing", None)
    with strategy.active():
        training = training_batches(prepared)
        fresh = replace(prepared, dense=None)
        execution = build(fresh, unfilled, training.element_spec, strategy, Path("unused"))
        assert execution.graph is not None  # of kind function
        graph = execution.graph(iter(execution.dataset(training)))
        return Traced(
            graph_bytes=graph.as_graph_def().ByteSize(),
            operations=Counter(operation.type for operation in graph.get_operations()),
            allocated_bytes=sum(
                _FLOAT_BYTES * rows[name] * table.width * (1 + slot_count(spec.optimizer_of(name)))
                for name, table in spec.tables.items()
            ),
            configuration="" if execution.embedding is None else tpu_trace.configuration(execution.embedding),
            tpu_operations=tuple(tpu_trace.operations(graph)),
        )
