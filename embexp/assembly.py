"""The parts of an experiment put together: tables, features, dense model, step, runtime, checkpoint.

A run builds it to train, a finished run builds it again to evaluate and to predict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import keras
import tensorflow as tf

from embexp import digests
from embexp.initialization.assign import Assign
from embexp.models import build as models
from embexp.models import dense_optimizer, losses
from embexp.pretrained.aligned import Pretrained
from embexp.pretrained.rows import row_source
from embexp.runtimes.function import FunctionRuntime
from embexp.specs import inits as specs
from embexp.specs.run import RunSpec
from embexp.tables import optimizers, schedules
from embexp.tables.checkpointing import TableCheckpoint
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
from embexp.training.step import Input, Step


@dataclass(frozen=True)
class Assembly:
    """What trains, with all its variables; the rows of the tables may not be filled yet.

    Attributes:
        tables: by name.
        model: the dense part, a Keras model.
        runtime: executes steps.
        checkpoint: a `tf.train.Checkpoint` of all that is learned.
    """

    tables: Mapping[str, EmbeddingTable]
    model: Any
    runtime: FunctionRuntime
    checkpoint: Any


def assemble(
    spec: RunSpec, *, sizes: Mapping[str, int], dense_width: int, output_bias: float, total_steps: int
) -> Assembly:
    """Creates every variable of an experiment and the functions of its step.

    Args:
        spec: what the user asked for.
        sizes: rows of each table.
        dense_width: number of dense features.
        output_bias: where the bias of the logit starts.
        total_steps: length of the training, for schedules that end with it.
    """
    counter = tf.Variable(0, dtype=tf.int64, trainable=False, name="step")
    tables = {
        name: EmbeddingTable(
            name,
            sizes[name],
            table.dim,
            combiner=table.combiner,
            slots=optimizers.slots_of(spec.optimizer_of(name)),
        )
        for name, table in spec.tables.items()
    }
    engine = RowEngine(
        tables,
        spec.features,
        optimizers={name: spec.optimizer_of(name) for name in tables},
        step=counter,
        total_steps=total_steps,
    )
    # Layers of a user's own model draw from Keras' global seed.
    keras.utils.set_random_seed(digests.seed_of(spec.seed, "keras")[0])
    model = models.build(
        spec.model,
        shapes={
            name: feature.activation_shape(spec.tables[feature.table].dim) for name, feature in spec.features.items()
        },
        dense_width=dense_width,
        output_bias=output_bias,
        seed=spec.seed,
    )
    schedule = spec.dense_optimizer.schedule
    optimizer = dense_optimizer.build(
        spec.dense_optimizer, lambda step: schedules.factor(schedule, step, total_steps=total_steps)
    )
    optimizer.build(model.trainable_variables)
    step = Step(
        backend=engine,
        model=model,
        loss=losses.of(spec.task),
        optimizer=optimizer,
        inputs={name: Input(spec.column_of(name), feature.weights) for name, feature in spec.features.items()},
        counter=counter,
    )
    return Assembly(
        tables=tables,
        model=model,
        runtime=FunctionRuntime(step.train, step.predict),
        checkpoint=tf.train.Checkpoint(
            embedding=TableCheckpoint(tables.values()),
            model=model,
            optimizer=optimizer,
            random=models.random_state(model),
            step=counter,
        ),
    )


def fill(tables: Mapping[str, EmbeddingTable], spec: RunSpec, pretrained: Pretrained) -> None:
    """Fills every table by its init method.

    A row's values follow from the pretrained file, or else from the seed, the table's name and the row.
    """
    for name, table in tables.items():
        source = row_source(name, spec.tables[name], table.rows, spec.seed, pretrained.tables.get(name))
        init = spec.init_of(name)
        Assign(init.chunk_bytes if isinstance(init, specs.Assign) else Assign.chunk_bytes).apply(table, source)
