"""A run's training step traced and not run: what would be executed, and on a TPU what the TPU would be asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from embexp.errors import RunError
from embexp.models import shapes
from embexp.pretrained.aligned import align
from embexp.pretrained.dims import with_dims
from embexp.records.folder import RunFolder
from embexp.runs import scanned, story
from embexp.runtimes.function import FunctionRuntime
from embexp.simulation import trace as tpu_trace
from embexp.specs import resolution
from embexp.specs.optimizers import slot_count
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.strategies import TPUSimulator
from embexp.strategies import build as strategies
from embexp.system import arrays, places

_FLOAT_BYTES = 4


@dataclass(frozen=True)
class Traced:
    """What tracing found.

    Attributes:
        graph_bytes: size of the training function's GraphDef.
        operations: how many operations of each type it has, those of loops inside of it not counted.
        allocated_bytes: of tables and slots, made for tracing; rows are not filled.
        configuration: on a TPU, the `TPUEmbeddingConfiguration` in text format; else "".
        tpu_operations: on a TPU, its operations, in their order.
    """

    graph_bytes: int
    operations: Mapping[str, int]
    allocated_bytes: int
    configuration: str = ""
    tpu_operations: tuple[tpu_trace.TracedOperation, ...] = field(default=())


@dataclass(frozen=True)
class _Unfilled:
    """Rows that are whatever is in memory; a `MappableRows`."""

    rows: int
    dim: int

    def read(self, start: int, stop: int) -> np.ndarray:
        return arrays.empty((stop - start, self.dim), np.float32)

    def memory_map(self) -> None:
        return None


def trace(spec: RunSpec, *, say: Callable[[str, float | None], None] = lambda what, part: None) -> Traced:
    """Traces the training step of a run; reads its data and pretrained files, and makes its variables.

    Args:
        spec: what the user asked for.
        say: is told of what goes on.

    Raises:
        RunError: the run is executed in another runtime than `function`; or as for a run.
    """
    kind = resolution.runtime_of(spec)
    if kind is not RuntimeKind.FUNCTION:
        raise RunError(f"only the runtime function can be traced, and this run's is {kind.value}")
    simulated = isinstance(spec.strategy, TPUSimulator)
    placement = (
        strategies.simulated_tpu(spec.strategy, serve=False)
        if isinstance(spec.strategy, TPUSimulator)
        else strategies.build(spec.strategy)
    )
    data = scanned.read_data(spec, say)
    sizes = scanned.table_sizes(spec, data.vocabularies)
    given = align(spec, data.vocabularies, sizes, cache=places.cache(spec.output.cache), say=say)
    sizes |= {name: table.rows for name, table in given.tables.items()}
    spec = with_dims(spec, given, shapes.run_faults)
    frozen = story.freeze_policies(spec, data, sizes, given, kind)
    plan = story.rhythm_of(spec, examples=len(data.scan.splits["train"]))
    unfilled = {name: _Unfilled(sizes[name], table.width) for name, table in spec.tables.items()}
    say("tracing", None)
    with strategies.opened(placement):
        training = story.training_data(spec, data, plan)
        folder = RunFolder(Path("unused"))
        execution = story.build(
            spec, data, given, unfilled, frozen, plan, folder, training.element_spec, kind, placement, None
        )
        assert isinstance(execution.runtime, FunctionRuntime)  # of kind function
        graph = execution.runtime.graph(iter(execution.dataset(training)))
        return Traced(
            graph_bytes=graph.as_graph_def().ByteSize(),
            operations=Counter(operation.type for operation in graph.get_operations()),
            allocated_bytes=sum(
                _FLOAT_BYTES * sizes[name] * table.width * (1 + slot_count(spec.optimizer_of(name)))
                for name, table in spec.tables.items()
            ),
            configuration="" if execution.embedding is None else tpu_trace.configuration(execution.embedding),
            tpu_operations=tuple(tpu_trace.operations(graph)) if simulated else (),
        )
