"""Assembles the features, dense model, training step and checkpoint of an experiment around its tables.

A run assembles them to train; a finished run assembles them again to evaluate and predict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from embexp.models import build as models
from embexp.models import dense_optimizer, losses
from embexp.models.losses import PairLoss, recommendation_loss
from embexp.runs.prepare import Prepared
from embexp.specs.data import CANDIDATES, Triples
from embexp.specs.models import KnowledgeGraph, LossOfTask, Task
from embexp.specs.run import RunSpec
from embexp.strategies.strategy import Embeddings, Strategy
from embexp.system import digests
from embexp.tables import learning_rates
from embexp.tables.checkpointing import TableCheckpoint
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
        total_steps: number of training steps, for learning-rate schedules.
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
