"""What a run would be: its training step traced without being executed, or some of its steps timed."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np

from embexp.errors import RunError
from embexp.runs import execute
from embexp.runs.evaluations import evaluator_of
from embexp.runs.execute import build, training_batches
from embexp.runs.prepare import Prepared
from embexp.specs.running import RuntimeKind
from embexp.strategies import strategy as strategies
from embexp.strategies.simulation import compilation
from embexp.strategies.strategy import Strategy
from embexp.system import arrays
from embexp.system.parallel import Progress, quiet
from embexp.training.loop import Runtime

_SECONDS = 5.0
"""Seconds during which steps are timed."""
_WARM_UP_SECONDS = 1.0
"""Seconds of steps before, so that memory and threads are in place."""
_CALLS = 20
"""Number of calls of the runtime among which the timed steps are divided."""
_LEAST_CALLS = 3
_BATCHES = 8
"""Number of evaluation batches that are timed."""


@dataclass(frozen=True)
class Timed:
    """An estimate of a run's time, in seconds.

    Attributes:
        start: making and filling the tables, tracing and the first step.
        quartiles: of the same.
        validations: evaluations of the validation split in the run.
    """

    start: float
    step: float
    quartiles: tuple[float, float]
    steps: int
    evaluations: Mapping[str, float]
    training_steps: int
    validations: int

    @property
    def training(self) -> float:
        """All steps of the run."""
        return self.step * self.training_steps

    @property
    def evaluating(self) -> float:
        """All evaluations: of validation during training, of the other splits at the end."""
        others = sum(seconds for split, seconds in self.evaluations.items() if split != "validation")
        return self.evaluations.get("validation", 0.0) * self.validations + others

    @property
    def total(self) -> float:
        """The whole run, without checkpoints, digests and plots."""
        return self.start + self.training + self.evaluating

    @property
    def spread(self) -> float:
        """Half the distance of the quartiles, relative to the median: how sure the estimate of the steps is."""
        return (self.quartiles[1] - self.quartiles[0]) / (2 * self.step)


def measure(prepared: Prepared, strategy: Strategy, progress: Progress = quiet) -> Timed:
    """Times steps and evaluations of a run on tables of its own, which are freed afterwards; writes no file of a run.

    Raises:
        RunError: the run fails for a reason in the data, a file or the machine.
    """
    with tempfile.TemporaryDirectory(prefix="embexp-") as folder, strategy.active():
        progress("creating the tables", None)
        began = time.perf_counter()
        batches = training_batches(prepared, strategy)
        initial = execute.initial_rows(prepared.tables)
        execution = build(prepared, initial, batches.element_spec, strategy, Path(folder))
        try:
            runtime, iterator = execution.runtime, iter(execution.dataset(batches))
            runtime.train(iterator, 1)
            start = time.perf_counter() - began
            progress("timing steps", None)
            calls = _timed_steps(lambda steps: runtime.train(iterator, steps), prepared.schedule.steps - 1, start)
            progress("timing evaluations", None)
            evaluated = _timed_evaluations(prepared, runtime)
        finally:
            execution.close()
    each = [seconds / steps for steps, seconds in calls]
    low, _, high = statistics.quantiles(each, n=4) if len(each) > 1 else (each[0],) * 3
    validations = prepared.schedule.evaluations() if "validation" in evaluated else 0
    return Timed(
        start=start,
        step=statistics.median(each),
        quartiles=(low, high),
        steps=sum(steps for steps, _ in calls),
        evaluations=evaluated,
        training_steps=prepared.schedule.steps,
        validations=validations,
    )


def _timed_steps(train: Callable[[int], object], left: int, first: float) -> list[tuple[int, float]]:
    """Times calls of some steps each, after a warm-up; returns the steps and the seconds of each call.

    Args:
        left: number of steps that are left.
        first: seconds of the first step, for a run without other steps.
    """
    steps, warm, last = 1, 0.0, first
    while left > steps and warm < _WARM_UP_SECONDS:
        last = _seconds(partial(train, steps)) / steps
        left -= steps
        warm += last * steps
        steps = max(1, min(2 * steps, round(_SECONDS / _CALLS / max(last, 1e-9)), left // (2 * _CALLS)))
    calls: list[tuple[int, float]] = []
    spent = 0.0
    while left >= steps and len(calls) < _CALLS and (spent < _SECONDS or len(calls) < _LEAST_CALLS):
        calls.append((steps, _seconds(partial(train, steps))))
        left -= steps
        spent += calls[-1][1]
    return calls or [(1, last)]


def _timed_evaluations(prepared: Prepared, runtime: Runtime) -> dict[str, float]:
    """Seconds of one evaluation of each split except the training split, extrapolated from a part of it."""
    evaluator, data = evaluator_of(prepared.spec), prepared.data
    found: dict[str, float] = {}
    for split, rows in data.scan.splits.items():
        if split == "train" or not len(rows):
            continue
        if not evaluator.parts:
            found[split] = _seconds(partial(evaluator.of_rows(data, split, rows), runtime))
            continue
        some = rows[: _BATCHES * prepared.spec.evaluation_batch_size]
        measured = evaluator.of_rows(data, split, some)
        if not found:
            measured(runtime)  # this call traces
        found[split] = _seconds(partial(measured, runtime)) * len(rows) / len(some)
    return found


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


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
    tpu_operations: tuple[compilation.TracedOperation, ...] = field(default=())


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

    Raises:
        RunError: the runtime is not `function`, or devices are missing.
    """
    if prepared.runtime is not RuntimeKind.FUNCTION:
        raise RunError(f"only runtime=function can be traced, but this run has runtime={prepared.runtime.value}")
    spec, rows = prepared.spec, prepared.tables.rows
    strategy = strategies.build(spec.strategy, traced=True)
    unfilled = {name: _Unfilled(rows[name], table.width) for name, table in spec.tables.items()}
    progress("tracing", None)
    with strategy.active():
        training = training_batches(prepared, strategy)
        fresh = replace(prepared, dense=None)
        execution = build(fresh, unfilled, training.element_spec, strategy, Path("unused"))
        assert execution.graph is not None  # the runtime is of kind function
        graph = execution.graph(iter(execution.dataset(training)))
        return Traced(
            graph_bytes=graph.as_graph_def().ByteSize(),
            operations=Counter(operation.type for operation in graph.get_operations()),
            allocated_bytes=sum(
                rows[name] * (table.row_bytes(table.width) + table.slot_bytes(spec.optimizer_of(name), table.width))
                for name, table in spec.tables.items()
            ),
            configuration="" if execution.embedding is None else compilation.configuration(execution.embedding),
            tpu_operations=tuple(compilation.operations(graph)),
        )
