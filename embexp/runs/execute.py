"""A prepared run put into execution: its variables made and filled in its runtime, its rows under watch."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from embexp.data import batches
from embexp.freezing import watching
from embexp.freezing.watching import Watch, Watched
from embexp.initialization import filling
from embexp.runs import assembly
from embexp.runs.prepare import Prepared
from embexp.runtimes import execution
from embexp.runtimes.execution import Blueprint, Execution
from embexp.strategies import build as strategies
from embexp.strategies.placement import Placement
from embexp.system.memory import PeakMemory
from embexp.system.rows import MappableRows
from embexp.tables.reading import ReadableTable


@dataclass(frozen=True)
class Started:
    """A run whose variables are made and filled, before its first step.

    Attributes:
        execution: executes steps, reads tables and saves them.
        batches: of the training, a `tf.data.Dataset`.
        watch: knows the rows as they were before the first step.
        memory: watches the memory that is taken, up to the end of the first step.
    """

    execution: Execution
    batches: Any
    watch: Watch
    memory: PeakMemory


@contextlib.contextmanager
def execute(prepared: Prepared, placement: Placement, estimator_directory: Path) -> Iterator[Started]:
    """Makes and fills all variables; at the end of the block the runtime is closed.

    Args:
        prepared: the run.
        placement: where it is executed.
        estimator_directory: where an Estimator keeps its own checkpoints.
    """
    tables = prepared.tables
    initial = filling.sources(tables.spec, tables.rows, tables.pretrained)
    with PeakMemory() as memory, contextlib.ExitStack() as opened:
        opened.enter_context(strategies.opened(placement))
        training = training_batches(prepared)
        made = build(prepared, initial, training.element_spec, placement, estimator_directory)
        opened.callback(made.close)
        watch = watching.watch(
            tables.spec,
            {name: _watched(prepared, name, table, initial[name]) for name, table in made.tables.items()},
            total_steps=prepared.schedule.steps,
            examples=prepared.data.training_examples,
        )
        opened.callback(watch.close)
        yield Started(made, training, watch, memory)


def _watched(prepared: Prepared, name: str, table: ReadableTable, initial: MappableRows) -> Watched:
    tables = prepared.tables
    pretrained = tables.pretrained.pretrained_rows(name)
    return Watched(table, prepared.data.vocabularies[name], tables.policies[name], initial, pretrained)


def training_batches(prepared: Prepared) -> Any:
    """The batches of the training, a `tf.data.Dataset`."""
    spec, data = prepared.spec, prepared.data
    return batches.training_batches(
        data.scan.examples,
        data.scan.splits["train"],
        data.columns,
        batch_size=spec.train.batch_size,
        seed=spec.seed,
        shuffle=spec.data.shuffle,
        window=spec.data.window,
        steps=prepared.schedule.steps,
        candidates=data.candidates,
    )


def build(
    prepared: Prepared,
    initial: Mapping[str, MappableRows],
    training_spec: Any,
    placement: Placement,
    estimator_directory: Path,
) -> Execution:
    """Makes and fills all variables in the run's runtime.

    Args:
        prepared: the run.
        initial: initial values of each table.
        training_spec: `element_spec` of the training batches.
        placement: where the run is executed.
        estimator_directory: where an Estimator keeps its own checkpoints.
    """
    spec, data, tables = prepared.spec, prepared.data, prepared.tables
    predicted = batches.evaluation_batches(
        data.scan.examples,
        data.scan.splits["train"][:1],
        data.columns,
        batch_size=spec.evaluation_batch_size,
        full=spec.fixed_batch,
        candidates=data.candidates,
    )
    blueprint = Blueprint(
        spec=spec,
        given=tables.pretrained,
        sources=initial,
        policies=tables.policies,
        tables=partial(filling.tables, spec, tables.pretrained, initial, tables.policies),
        assemble=partial(assembly.assemble, spec, dense=assembly.dense_settings(prepared), placement=placement),
        training_spec=training_spec,
        prediction_spec=predicted.element_spec,
        placement=placement,
        total_steps=prepared.schedule.steps,
        dense=prepared.dense,
    )
    return execution.of(prepared.runtime, blueprint, estimator_directory)
