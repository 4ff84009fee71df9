"""Assembles the tables, features, dense model, training step and checkpoint of an experiment.

A run assembles them to train; a finished run assembles them again to evaluate and predict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from embexp.freezing.policies import TablePolicy
from embexp.initialization.plan import FileRows, TablePlan
from embexp.models import build as models
from embexp.models import dense_optimizer, losses
from embexp.models.losses import PairLoss, recommendation_loss
from embexp.pretrained.rows import beside_file, mapping_of, row_source, slot_sources
from embexp.pretrained.tables import PretrainedTable
from embexp.runs.prepare import Prepared, PreparedTables
from embexp.specs.data import CANDIDATES, Triples
from embexp.specs.models import KnowledgeGraph, LossOfTask, Task
from embexp.specs.run import RunSpec
from embexp.specs.tables import Storage
from embexp.strategies.strategy import Embeddings, Strategy
from embexp.system import digests
from embexp.system.rows import MappableRows
from embexp.tables import learning_rates, optimizers
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.learning_rates import RowGroups
from embexp.training.one_vs_all import OneVsAll
from embexp.training.step import Assembly, Input, Step


@dataclass(frozen=True)
class DenseSettings:
    """What the dense part of an experiment needs to know of its data and its schedule.

    Attributes:
        width: number of dense features.
        outputs: logits of an example: 1, or the number of classes.
        output_bias: initial bias of each logit; of standardised labels, their mean.
        label_deviation: standard deviation of the labels, where they are standardised.
        total_steps: number of training steps, for learning-rate learning_rates.
    """

    width: int
    total_steps: int
    outputs: int = 1
    output_bias: float = 0.0
    label_deviation: float = 1.0


def dense_settings(prepared: Prepared) -> DenseSettings:
    """The dense settings of a prepared run."""
    return DenseSettings(
        width=prepared.data.dense_width,
        total_steps=prepared.schedule.steps,
        outputs=max(1, len(prepared.data.classes)),
        output_bias=output_bias(prepared.spec.task, prepared.data.scan.label_mean),
        label_deviation=_label_deviation(prepared) if prepared.spec.standardizes_labels else 1.0,
    )


def _label_deviation(prepared: Prepared) -> float:
    """The standard deviation of the training labels; 1 if they are all alike."""
    return prepared.data.constant(prepared.spec.task).deviation or 1.0


def output_bias(task: Task, label_mean: float) -> float:
    """The initial bias of the logit: the mean rating, the log odds of the mean click rate, or 0."""
    match task:
        case Task.RATING:
            return label_mean
        case Task.CLICK:
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
        embeddings: the tables, and their lookup.
        counter: int64 variable, the number of steps done.
        dense: settings of the dense part.
        strategy: where the step will run.
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
            lambda step: learning_rates.schedule_factor(schedule, counter, total_steps=dense.total_steps),
        )
        optimizer.build(model.trainable_variables)
    step = Step(
        backend=embeddings.backend,
        model=model,
        loss=_loss(spec),
        optimizer=optimizer,
        inputs={name: _input(spec, name) for name in spec.features},
        counter=counter,
        strategy=strategy,
        one_vs_all=_one_vs_all(spec, model),
        # The squared error of standardised labels is that of the labels by their variance.
        gradient_scale=dense.label_deviation**-2,
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


def _one_vs_all(spec: RunSpec, model: keras.Model) -> OneVsAll | None:
    if isinstance(spec.model, KnowledgeGraph):
        return OneVsAll(model, spec.model.loss, spec.model.label_smoothing)
    return None


def dense_model(spec: RunSpec, dims: Mapping[str, int], dense: DenseSettings) -> keras.Model:
    """The dense part of an experiment, with its initial values.

    Args:
        spec: what the user asked for.
        dims: of each table.
        dense: settings of the dense part.
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


def _loss(spec: RunSpec) -> losses.Loss | PairLoss:
    if not isinstance(spec.loss, LossOfTask):
        return recommendation_loss(spec.loss)
    if isinstance(spec.model, KnowledgeGraph):
        return losses.ranking(spec.model.loss, spec.model.label_smoothing)
    return losses.mean_loss(spec.task)


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
        tables: prepared.
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
