"""Executes a prepared run: creates and fills its variables in its runtime, and watches its rows."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from embexp.checkpoints import dense_part, restoring
from embexp.checkpoints.account import LiveAccount
from embexp.data import batches
from embexp.data.batches import Items
from embexp.errors import CheckpointError
from embexp.freezing import watching
from embexp.freezing.watching import Watch, Watched
from embexp.pretrained.earlier import EarlierCheckpoint
from embexp.runs import assembly, evaluations
from embexp.runs.prepare import Prepared
from embexp.runtimes.execution import Blueprint, Execution
from embexp.runtimes.start import start
from embexp.specs.models import LossOfTask
from embexp.specs.run import RunSpec
from embexp.specs.running import Restoring, Save
from embexp.strategies.strategy import Strategy
from embexp.system.memory import PeakMemory, keep_freed
from embexp.system.rows import MappableRows
from embexp.tables.reading import ReadableTable


@dataclass(frozen=True)
class Started:
    """A run with its variables created and filled, before its first step.

    Attributes:
        execution: executes steps, and reads and saves tables.
        batches: the training batches, a `tf.data.Dataset`.
        watch: compares rows with their initial values.
        memory: measures peak memory up to the end of the first step.
    """

    execution: Execution
    batches: Any
    watch: Watch
    memory: PeakMemory


@contextlib.contextmanager
def execute(
    prepared: Prepared, strategy: Strategy, estimator_folder: Path, *, first_step: int = 0
) -> Iterator[Started]:
    """Creates and fills all variables; closes the runtime at the end of the block.

    Args:
        prepared: the run.
        strategy: where it runs.
        estimator_folder: where an Estimator keeps its own checkpoints.
        first_step: with which step the batches begin.
    """
    initial = assembly.initial_rows(prepared.tables)
    with PeakMemory() as memory, contextlib.ExitStack() as stack:
        stack.enter_context(strategy.active())
        training = training_batches(prepared, first_step)
        execution = build(prepared, initial, training.element_spec, strategy, estimator_folder)
        stack.callback(execution.close)
        watch = watching.watch(
            prepared.spec,
            {name: _watched(prepared, name, table, initial[name]) for name, table in execution.tables.items()},
            total_steps=prepared.schedule.steps,
            examples=prepared.data.training_examples,
        )
        stack.callback(watch.close)
        keep_freed()
        yield Started(execution, training, watch, memory)


def _watched(prepared: Prepared, name: str, table: ReadableTable, initial: MappableRows) -> Watched:
    pretrained = prepared.tables.pretrained.pretrained_rows(name)
    policy = prepared.tables.policies[name]
    return Watched(table, prepared.data.vocabularies[name], policy, initial, pretrained)


def training_batches(prepared: Prepared, first_step: int = 0) -> Any:
    """The training batches from `first_step` on, a `tf.data.Dataset`."""
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
        start_step=first_step,
        candidates=data.candidates,
        items=_items(prepared),
    )


def _items(prepared: Prepared) -> Items | None:
    """The items that the loss of recommendation compares; None for other tasks."""
    spec, data = prepared.spec, prepared.data
    if data.interactions is None or isinstance(spec.loss, LossOfTask):
        return None
    return Items(data.interactions, data.scan.examples, data.scan.splits["train"], spec.loss, spec.seed)


def build(
    prepared: Prepared,
    initial: Mapping[str, MappableRows],
    training_spec: Any,
    strategy: Strategy,
    estimator_folder: Path,
) -> Execution:
    """Creates and fills all variables in the run's runtime.

    Args:
        prepared: the run.
        initial: initial values of each table.
        training_spec: `element_spec` of the training batches.
        strategy: where the run is executed.
        estimator_folder: where an Estimator keeps its own checkpoints.
    """
    spec = prepared.spec
    blueprint = Blueprint(
        plans=assembly.table_plans(prepared.tables, initial),
        features=spec.features,
        columns={name: spec.ids_of(name) for name in spec.features},
        assemble=partial(assembly.assemble, spec, dense=assembly.dense_settings(prepared), strategy=strategy),
        training_spec=training_spec,
        prediction_spec=evaluations.evaluation_spec(prepared),
        strategy=strategy,
        total_steps=prepared.schedule.steps,
        estimator_folder=estimator_folder,
        keeps_checkpoints=spec.checkpoint.save is not Save.NEVER,
        dense=partial(_dense_values, spec, prepared.dense),
        restored=partial(_restored, spec.restore, prepared.restored),
    )
    return start(prepared.runtime, blueprint)


def _restored(settings: Restoring, path: Path | None, checkpoint: Any) -> LiveAccount | None:
    """Restores what the config names, before the first step.

    Raises:
        CheckpointError: the checkpoint lacks something of that, or has it in another shape or type.
        DataError: it is damaged.
    """
    if path is None:
        return None
    account = restoring.restore_run(path, checkpoint, only=settings.only, rename=settings.rename)
    try:
        return account.assert_consumed()
    except CheckpointError as error:
        raise CheckpointError(
            f"{error}\nName in restore.only what to restore, and in restore.rename what has another name there"
        ) from None


def _dense_values(spec: RunSpec, earlier: EarlierCheckpoint | None, checkpoint: Any) -> dense_part.DenseValues:
    """What the dense part takes from an earlier checkpoint before the first step.

    Raises:
        CheckpointError: the checkpoint does not fit the model.
    """
    if earlier is None:
        return dense_part.DenseValues([])
    same = spec.dense_optimizer.kind == earlier.spec.dense_optimizer.kind
    return dense_part.read(checkpoint, earlier.index, same_optimizer=same)
