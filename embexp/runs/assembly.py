"""The parts of an experiment put together around its tables: features, dense model, step, checkpoint.

A run builds it to train, a finished run builds it again to evaluate and to predict.
"""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf

from embexp.models import build as models
from embexp.models import dense_optimizer, losses
from embexp.specs.models import KnowledgeGraph
from embexp.specs.run import RunSpec
from embexp.strategies.strategy import Embeddings, Strategy
from embexp.system import digests
from embexp.tables import schedules
from embexp.tables.checkpointing import TableCheckpoint
from embexp.training.step import Assembly, Input, Step


def assemble(
    spec: RunSpec,
    embeddings: Embeddings,
    counter: Any,
    *,
    dense_width: int,
    output_bias: float,
    total_steps: int,
    outputs: int = 1,
    strategy: Strategy,
) -> Assembly:
    """Creates every variable of an experiment but its tables', in the graph that is current.

    Args:
        spec: what the user asked for.
        embeddings: the tables, and what looks them up.
        counter: int64 variable, the number of steps done.
        dense_width: number of dense features.
        output_bias: where the bias of each logit starts.
        total_steps: length of the training, for schedules that end with it.
        outputs: logits of an example: 1, or the number of classes.
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
            dense_width=dense_width,
            output_bias=output_bias,
            seed=spec.seed,
            outputs=outputs,
        )
        optimizer = dense_optimizer.build(
            # By the run's own steps: an optimizer that is taken over from an earlier run has counted that one's too.
            spec.dense_optimizer,
            lambda step: schedules.factor(schedule, counter, total_steps=total_steps),
        )
        optimizer.build(model.trainable_variables)
    step = Step(
        backend=embeddings.backend,
        model=model,
        loss=_loss(spec),
        optimizer=optimizer,
        inputs={name: Input(spec.column_of(name), feature.weights) for name, feature in spec.features.items()},
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
    return losses.of(spec.task)
