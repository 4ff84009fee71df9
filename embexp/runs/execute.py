"""Executes a prepared run: its tables, model and step are assembled, filled in its runtime, and its rows watched.

A run assembles them to train; a finished run assembles them again to evaluate and predict.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import keras
import tensorflow as tf

from embexp.checkpoints import restoring
from embexp.checkpoints.account import LiveAccount
from embexp.data import batches
from embexp.data.batches import Items
from embexp.errors import CheckpointError
from embexp.freezing import watching
from embexp.freezing.policies import TablePolicy
from embexp.freezing.watching import Watch, Watched
from embexp.initialization.filling import FileRows, TablePlan
from embexp.models import build as models
from embexp.models import dense_optimizer, losses
from embexp.pretrained.earlier import EarlierCheckpoint
from embexp.pretrained.tables import PretrainedTable, beside_file, mapping_of, row_source, slot_sources
from embexp.runs import evaluations
from embexp.runs.prepare import Prepared, PreparedTables
from embexp.runs.runtimes.execution import Blueprint, Execution, start
from embexp.specs.data import CANDIDATES, Triples
from embexp.specs.losses import CustomLoss, RecommendationLoss
from embexp.specs.models import KnowledgeGraph, Task
from embexp.specs.run import RunSpec
from embexp.specs.running import Restoring, Save
from embexp.specs.tables import Storage
from embexp.strategies.strategy import Embeddings, Strategy
from embexp.system import digests
from embexp.system.arrays import MappableRows
from embexp.system.machine import PeakMemory, keep_freed
from embexp.tables import optimizers
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.optimizers import RowGroups
from embexp.training.one_vs_all import OneVsAll
from embexp.training.step import Assembly, Input, Step


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
        estimator_folder: where an Estimator keeps its own checkpoints.
    """
    initial = initial_rows(prepared.tables)
    with PeakMemory() as memory, contextlib.ExitStack() as stack:
        stack.enter_context(strategy.active())
        training = training_batches(prepared, first_step)
        execution = build(prepared, initial, training.element_spec, strategy, estimator_folder)
        stack.callback(execution.close)
        policies, pretrained = prepared.tables.policies, prepared.tables.pretrained
        vocabularies = prepared.data.vocabularies
        watch = watching.watch(
            prepared.spec,
            {
                name: Watched(
                    table, vocabularies[name], policies[name], initial[name], pretrained.pretrained_rows(name)
                )
                for name, table in execution.tables.items()
            },
            total_steps=prepared.schedule.steps,
            examples=prepared.data.training_examples,
        )
        stack.callback(watch.close)
        keep_freed()
        yield Started(execution, training, watch, memory)


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
    if data.interactions is None or not isinstance(spec.loss, RecommendationLoss):
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
        initial: initial values of each table.
        training_spec: `element_spec` of the training batches.
        estimator_folder: where an Estimator keeps its own checkpoints.
    """
    spec = prepared.spec
    blueprint = Blueprint(
        plans=table_plans(prepared.tables, initial),
        features=spec.features,
        columns={name: spec.ids_of(name) for name in spec.features},
        assemble=partial(assemble, spec, dense=dense_settings(prepared), strategy=strategy),
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


def _dense_values(spec: RunSpec, earlier: EarlierCheckpoint | None, checkpoint: Any) -> restoring.DenseValues:
    """What the dense part takes from an earlier checkpoint before the first step.

    Raises:
        CheckpointError: the checkpoint does not fit the model.
    """
    if earlier is None:
        return restoring.DenseValues([])
    kinds = [
        (each.kind, getattr(each, "function", None)) for each in (spec.dense_optimizer, earlier.spec.dense_optimizer)
    ]
    same = kinds[0] == kinds[1]
    return restoring.read_dense(checkpoint, earlier.index, same_optimizer=same)


@dataclass(frozen=True)
class DenseSettings:
    """What the dense part of an experiment needs to know of its data and its schedule.

    Attributes:
        width: number of dense features.
        outputs: logits of an example: 1, or the number of classes.
        output_bias: initial bias of each logit; of standardised labels, their mean.
        label_deviation: standard deviation of the labels, where they are standardised.
        total_steps: number of training steps, for learning-rate schedules.
    """

    width: int
    total_steps: int
    outputs: int = 1
    output_bias: float = 0.0
    label_deviation: float = 1.0


def dense_settings(prepared: Prepared) -> DenseSettings:
    """The dense settings of a prepared run."""
    standardizes, task = prepared.spec.standardizes_labels, prepared.spec.task
    return DenseSettings(
        width=prepared.data.dense_width,
        total_steps=prepared.schedule.steps,
        outputs=max(1, len(prepared.data.classes)),
        output_bias=output_bias(task, prepared.data.scan.label_mean),
        # 1 also of labels that are all alike.
        label_deviation=(prepared.data.constant(task).deviation or 1.0) if standardizes else 1.0,
    )


def output_bias(task: Task, label_mean: float) -> float:
    """The initial bias of the logit: the mean label, the log odds of the rate of label 1, or 0."""
    match task:
        case Task.REGRESSION:
            return label_mean
        case Task.BINARY:
            rate = min(max(label_mean, 1e-6), 1 - 1e-6)
            return math.log(rate / (1 - rate))
        case Task.CLASSIFICATION | Task.RANKING | Task.RECOMMENDATION:
            return 0.0


def assemble(
    spec: RunSpec,
    embeddings: Embeddings,
    counter: Any,
    *,
    dense: DenseSettings,
    strategy: Strategy,
) -> Assembly:
    """Creates every variable of an experiment except its tables, in the current graph.

    Args:
        spec: what the user asked for, with every dim settled.
        counter: int64 variable, the number of steps done.
    """
    tables = embeddings.tables
    # Layers of a user's own model draw from Keras' global seed.
    keras.utils.set_random_seed(digests.seed_of(spec.seed, "keras")[0])
    schedule = spec.dense_optimizer.schedule
    with strategy.scope():
        model = dense_model(spec, {name: table.dim for name, table in tables.items()}, dense)
        optimizer = dense_optimizer.build(
            # The run's own step counter: a restored optimizer has also counted the steps of the earlier run.
            spec.dense_optimizer,
            lambda step: optimizers.schedule_factor(schedule, counter, total_steps=dense.total_steps),
        )
        optimizer.build(model.trainable_variables)
    step = Step(
        backend=embeddings.backend,
        model=model,
        loss=losses.build(spec, dense.outputs),
        optimizer=optimizer,
        inputs={name: _input(spec, name) for name in spec.features},
        counter=counter,
        strategy=strategy,
        one_vs_all=OneVsAll(model, spec.model.loss, spec.model.label_smoothing)
        if isinstance(spec.model, KnowledgeGraph)
        else None,
        # The squared error of standardised labels is that of the labels by their variance.
        gradient_scale=1.0 if isinstance(spec.loss, CustomLoss) else dense.label_deviation**-2,
    )
    return Assembly(
        step=step,
        checkpoint=tf.train.Checkpoint(
            embedding=TableCheckpoint(tables.values()),
            model=model,
            optimizer=optimizer,
            random=models.random_state(model),
            step=counter,
        ),
    )


def _input(spec: RunSpec, feature: str) -> Input:
    """The columns of a feature; on a TPU, all rows of a table are looked up as any others."""
    every_row = isinstance(spec.data, Triples) and feature == CANDIDATES and spec.data.negatives is None
    return Input(spec.ids_of(feature), spec.features[feature].weights, every_row and not spec.strategy.own_memory)


def dense_model(spec: RunSpec, dims: Mapping[str, int], dense: DenseSettings) -> keras.Model:
    """The dense part of an experiment, with its initial values.

    Args:
        dims: of each table.
    """
    shapes = {name: feature.activation_shape(dims[feature.table]) for name, feature in spec.features.items()}
    model = models.build(
        spec.model,
        shapes=shapes,
        dense_width=dense.width,
        output_bias=0.0 if spec.standardizes_labels else dense.output_bias,
        seed=spec.seed,
        outputs=dense.outputs,
    )
    if not spec.standardizes_labels:
        return model
    mean, deviation = dense.output_bias, dense.label_deviation
    return models.standardized(model, shapes=shapes, dense_width=dense.width, mean=mean, deviation=deviation)


def initial_rows(tables: PreparedTables) -> dict[str, MappableRows]:
    """Initial values of every table: pretrained, or drawn by its initializer from the seed, its name and the row."""
    spec = tables.spec
    return {
        name: row_source(name, table, tables.rows[name], spec.seed, tables.pretrained.tables.get(name))
        for name, table in spec.tables.items()
    }


def table_plans(tables: PreparedTables, initial: Mapping[str, MappableRows]) -> dict[str, TablePlan]:
    """Plans how every table is created and filled, without creating it.

    Args:
        initial: initial values of each table, see `initial_rows`.

    Raises:
        RunError: rows of a file can't be mapped.
    """
    files = tables.pretrained.tables
    return {
        name: _table_plan(tables.spec, name, files.get(name), rows, tables.policies[name])
        for name, rows in initial.items()
    }


def _table_plan(
    spec: RunSpec, name: str, pretrained: PretrainedTable | None, rows: MappableRows, policy: TablePolicy
) -> TablePlan:
    optimizer = None if policy.fully_frozen else spec.optimizer_of(name)
    grouping, file, slots = policy.grouping, None, {}
    if policy.storage is Storage.MEMORY_MAP and pretrained is not None:
        file = FileRows(mapping_of(name, pretrained), pretrained.alignment.file_rows, beside_file(rows))
    if optimizer is not None and pretrained is not None:
        slots = slot_sources(name, pretrained, optimizers.slots_of(optimizer))
    return TablePlan(
        name=name,
        source=rows,
        init=spec.init_of(name),
        init_path="init" if spec.tables[name].init is None else f"tables.{name}.init",
        combiner=spec.tables[name].combiner,
        optimizer=optimizer,
        storage=policy.storage,
        by_reference=spec.kept_by_reference(name),
        groups=None
        if grouping is None
        else partial(RowGroups, name, grouping.groups, grouping.multipliers, grouping.starts),
        frozen_rows=policy.frozen if policy.frozen_rows and not policy.fully_frozen else None,
        file=file,
        slots=slots,
    )
