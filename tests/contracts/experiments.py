"""One small experiment with every kind of input, to be put into any strategy, and the same in float64 NumPy."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.checkpoints import store
from embexp.data.batches import Batch
from embexp.fields.columns.tasks import REGRESSION
from embexp.runs import execute
from embexp.runs.execute import start
from embexp.runs.prepare import PreparedTables
from embexp.runs.runtimes.execution import Blueprint, Execution
from embexp.specs.data import Clicks
from embexp.specs.models import MLP
from embexp.specs.optimizers import DenseSGD
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind, Train
from embexp.specs.tables import Combiner, Feature, Normal, Table
from embexp.strategies import strategy as strategies
from embexp.strategies.strategy import Strategy
from embexp.training.freezing import policies
from embexp.training.freezing.policies import RowFacts
from embexp.vectors.pretrained.tables import Pretrained
from tests.exact_training import Examples, Lists, Looked

ROWS = {"item": 23, "word": 17}
DIMS = {"item": 3, "word": 2}
BATCH, LENGTH, STEPS, RATE = 8, 3, 20, 0.0625
TABLES = {"dense": "item", "bag": "item", "sparse": "item", "sequence": "word", "gaps": "word"}
"""Table of each feature; what a feature is given:

dense: one id. bag: a ragged list, with weights. sparse: a sparse one, with weights. sequence: a ragged list, cut or
padded to LENGTH. gaps: a sparse one of the same kind, with empty places.
"""


def looked(combiner: str) -> dict[str, Looked]:
    """How each feature is looked up."""
    return {
        name: Looked(table, combiner, LENGTH if name in ("sequence", "gaps") else 0) for name, table in TABLES.items()
    }


@dataclass(frozen=True)
class Made:
    """An experiment in a strategy, ready to be trained."""

    execution: Execution
    model: Any
    checkpoint: Any
    policies: Mapping[str, policies.TablePolicy]
    first: Mapping[str, np.ndarray]


def spec_of(strategy: Any, optimizer: Any, *, combiner: str = "mean", seed: int = 0, **settings: Any) -> RunSpec:
    """The description of the experiment; `settings` are the item table's own."""
    made = {
        name: Table(dim=dim, combiner=Combiner(combiner), initializer=Normal(stddev=0.5)) for name, dim in DIMS.items()
    }
    made["item"] = made["item"].model_copy(update=settings)
    return RunSpec(
        name="contract",
        task=REGRESSION,
        seed=seed,
        data=Clicks(),
        tables=made,
        features={
            name: Feature(
                table=each.table,
                weights=f"{name}_weights" if name in ("bag", "sparse") else None,
                max_sequence_length=each.length,
            )
            for name, each in looked(combiner).items()
        },
        model=MLP(hidden=()),
        optimizer=optimizer,
        dense_optimizer=DenseSGD(learning_rate=RATE),
        strategy=strategy,
        train=Train(steps=STEPS, batch_size=BATCH, evaluation_batch_size=BATCH),
    )


@contextlib.contextmanager
def making(
    spec: RunSpec, runtime: RuntimeKind = RuntimeKind.FUNCTION, estimator_folder: Path = Path("unused")
) -> Iterator[Made]:
    """Puts the experiment into execution as a run does."""
    strategy = strategies.build(spec.strategy)
    with strategy.active():
        made = _made(spec, strategy, runtime, estimator_folder)
        yield made
        made.execution.close()


def _made(spec: RunSpec, strategy: Strategy, runtime: RuntimeKind, estimator_folder: Path) -> Made:
    captured = []
    facts = {name: RowFacts(rows, None, None) for name, rows in ROWS.items()}
    settled = policies.settle(spec, facts, steps_per_epoch=1e9, runtime=runtime)
    prepared = PreparedTables(spec, ROWS, Pretrained(), settled)
    initial = execute.initial_rows(prepared)

    def assemble(embeddings: Any, counter: Any) -> Any:
        dense = execute.dense_settings(spec, rows={}, width=2, total_steps=STEPS, output_bias=0.25)
        parts = execute.assemble(dense, strategy, embeddings, counter)
        captured.append(parts)
        return parts

    blueprint = Blueprint(
        plans=execute.table_plans(prepared, initial),
        features=spec.features,
        columns={name: spec.column_of(name) for name in spec.features},
        assemble=assemble,
        training_spec=dataset(examples(1)).element_spec,
        prediction_spec=lambda: dataset(examples(1)).element_spec,
        strategy=strategy,
        total_steps=STEPS,
        estimator_folder=estimator_folder,
    )
    made = start(runtime, blueprint)
    first = {name: source.read(0, source.rows) for name, source in initial.items()}
    parts = captured[0] if captured else None  # an Estimator makes them when it trains
    return Made(made, parts and parts.step.model, parts and parts.checkpoint, settled, first)


def examples(steps: int = STEPS, seed: int = 1, batch: int = BATCH) -> list[Examples]:
    """Some batches, with repeated ids, empty examples and lists that are too long."""
    generator = np.random.default_rng(seed)
    made = []
    for _ in range(steps):
        given: dict[str, Lists] = {}
        for name, table in TABLES.items():
            rows = ROWS[table] - 2  # the last two are never looked up
            lists = []
            for _ in range(batch):
                places = np.arange(1 if name == "dense" else generator.integers(0, LENGTH + 3))
                if name == "gaps":
                    places = np.flatnonzero(generator.random(LENGTH + 2) < 0.5)
                weighted = name in ("bag", "sparse")
                weights = generator.uniform(0.25, 2, len(places)) if weighted else np.ones(len(places))
                ids = generator.integers(0, rows, len(places))
                lists.append(
                    [(int(p), int(i), float(np.float32(w))) for p, i, w in zip(places, ids, weights, strict=True)]
                )
            given[name] = lists
        dense = generator.standard_normal((batch, 2)).astype(np.float32)
        made.append(Examples(given, dense, generator.standard_normal(batch).astype(np.float32)))
    return made


def dataset(batches: list[Examples]) -> tf.data.Dataset:
    """The same as the data pipeline would give them."""
    size = len(batches[0].labels)
    ragged = partial(tf.RaggedTensorSpec, [size, None], ragged_rank=1, row_splits_dtype=tf.int64)
    sparse = partial(tf.SparseTensorSpec, [size, None])
    signature = Batch(
        ids={
            "dense": tf.TensorSpec([size], tf.int64),
            "bag": ragged(tf.int64),
            "sparse": sparse(tf.int64),
            "sequence": ragged(tf.int64),
            "gaps": sparse(tf.int64),
        },
        weights={"bag_weights": ragged(tf.float32), "sparse_weights": sparse(tf.float32)},
        dense=tf.TensorSpec([size, 2], tf.float32),
        labels=tf.TensorSpec([size], tf.float32),
    )

    def all_of() -> Iterator[Batch]:
        for batch in batches:
            lists = batch.given
            yield Batch(
                ids={
                    "dense": np.array([each[0][1] for each in lists["dense"]]),
                    "bag": _ragged(lists["bag"], 1, np.int64),
                    "sparse": _sparse(lists["sparse"], 1, np.int64),
                    "sequence": _ragged(lists["sequence"], 1, np.int64),
                    "gaps": _sparse(lists["gaps"], 1, np.int64),
                },
                weights={
                    "bag_weights": _ragged(lists["bag"], 2, np.float32),
                    "sparse_weights": _sparse(lists["sparse"], 2, np.float32),
                },
                dense=batch.dense,
                labels=batch.labels,
            )

    return tf.data.Dataset.from_generator(all_of, output_signature=signature)


def _ragged(lists: Any, part: int, dtype: Any) -> Any:
    values = np.array([each[part] for some in lists for each in some], dtype)
    return tf.RaggedTensor.from_row_lengths(values, np.array([len(some) for some in lists], np.int64))


def _sparse(lists: Any, part: int, dtype: Any) -> Any:
    places = np.array([(b, each[0]) for b, some in enumerate(lists) for each in some], np.int64).reshape(-1, 2)
    values = np.array([each[part] for some in lists for each in some], dtype)
    return tf.SparseTensor(places, values, [len(lists), LENGTH + 3])


def saved(made: Made, directory: Path) -> Path:
    """Saves a checkpoint of the experiment there."""
    return store.write_by(made.execution.save, directory)
