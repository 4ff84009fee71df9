"""Assembles the features, dense model, training step and checkpoint of an experiment around its tables.

A run assembles them to train; a finished run assembles them again to evaluate and predict.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from embexp.models import build as models
from embexp.models import dense_optimizer, losses
from embexp.runs.prepare import Prepared
from embexp.specs.models import KnowledgeGraph, Task
from embexp.specs.run import RunSpec
from embexp.strategies.strategy import Embeddings, Strategy
from embexp.system import digests
from embexp.tables import schedules
from embexp.tables.checkpointing import TableCheckpoint
from embexp.training.step import Assembly, Input, Step


@dataclass(frozen=True)
class DenseSettings:
    """What the dense part of an experiment needs to know of its data and its schedule.

    Attributes:
        width: number of dense features.
        outputs: logits of an example: 1, or the number of classes.
        output_bias: initial bias of each logit.
        total_steps: number of training steps, for learning-rate schedules.
    """

    width: int
    total_steps: int
    outputs: int = 1
    output_bias: float = 0.0


def dense_settings(prepared: Prepared) -> DenseSettings:
    """The dense settings of a prepared run."""
    return DenseSettings(
        width=prepared.data.dense_width,
        total_steps=prepared.schedule.steps,
        outputs=max(1, len(prepared.data.classes)),
        output_bias=output_bias(prepared.spec.task, prepared.data.scan.label_mean),
    )


def output_bias(task: Task, label_mean: float) -> float:
    """The initial bias of the logit: the mean rating, the log odds of the mean click rate, or 0."""
    match task:
        case Task.RATING:
            return label_mean
        case Task.CLICK:
            rate = min(max(label_mean, 1e-6), 1 - 1e-6)
            return math.log(rate / (1 - rate))
        case Task.CLASSIFICATION | Task.RANKING:
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
        model = models.build(
            spec.model,
            shapes={
                name: feature.activation_shape(tables[feature.table].dim) for name, feature in spec.features.items()
            },
            dense_width=dense.width,
            output_bias=dense.output_bias,
            seed=spec.seed,
            outputs=dense.outputs,
        )
        optimizer = dense_optimizer.build(
            # The run's own step counter: a restored optimizer has also counted the steps of the earlier run.
            spec.dense_optimizer,
            lambda step: schedules.factor(schedule, counter, total_steps=dense.total_steps),
        )
        optimizer.build(model.trainable_variables)
    step = Step(
        backend=embeddings.backend,
        model=model,
        loss=_loss(spec),
        optimizer=optimizer,
        inputs={name: Input(spec.ids_of(name), feature.weights) for name, feature in spec.features.items()},
        counter=counter,
        strategy=strategy,
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


def _loss(spec: RunSpec) -> losses.Loss:
    if isinstance(spec.model, KnowledgeGraph):
        return losses.ranking(spec.model.loss, spec.model.label_smoothing)
    return losses.mean_loss(spec.task)
