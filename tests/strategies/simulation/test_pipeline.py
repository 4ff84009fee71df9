"""`pipeline_execution_with_tensor_core`: lookups miss the update of the step before, in float64 and to the bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp

api = tf.tpu.experimental.embedding
ROWS, DIM, CORES, BATCH, RATE = 7, 2, 2, 3, 0.5
START = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)
IDS = np.random.default_rng(1).integers(0, ROWS, (6, CORES, BATCH))


class Trainer:
    """A table on two cores, whose loss is half the sum of the squared activations."""

    def __init__(self, strategy: Any, optimizer: Any = None) -> None:
        self.strategy = strategy
        with strategy.scope():
            table = api.TableConfig(ROWS, DIM, tf.constant_initializer(START), combiner="sum", name="items")
            self.embedding = api.TPUEmbedding(
                {"seen": api.FeatureConfig(table, name="seen")},
                optimizer or api.SGD(RATE),
                pipeline_execution_with_tensor_core=True,
            )
        self.embedding.build(BATCH)

        def replica() -> Any:
            found = self.embedding.dequeue()
            self.embedding.apply_gradients(tf.nest.map_structure(tf.identity, found))
            return found["seen"]

        @tf.function
        def train(ids: Any) -> Any:
            self.enqueue(ids, training=True)
            return strategy.run(replica)

        @tf.function
        def evaluate(ids: Any) -> Any:
            self.enqueue(ids, training=False)
            return strategy.run(self.embedding.dequeue)["seen"]

        self.train, self.evaluate = train, evaluate

    def enqueue(self, ids: Any, *, training: bool) -> None:
        given = self.strategy.experimental_distribute_values_from_function(
            lambda context: ids[context.replica_id_in_sync_group]
        )
        self.embedding.enqueue({"seen": given}, training=training)

    @property
    def rows(self) -> np.ndarray:
        values: np.ndarray = self.embedding._variables["items"]["parameters"].variables[0].numpy()
        return values


@contextmanager
def trainer(optimizer: Any = None) -> Iterator[Trainer]:
    with embexp.tpu_simulator(cores=CORES) as strategy:
        yield Trainer(strategy, optimizer)


def of_all(values: Any) -> np.ndarray:
    return np.stack([one.numpy() for one in values.values])


def moved(rows: np.ndarray, ids: np.ndarray, activations: np.ndarray) -> np.ndarray:
    """Rows after SGD with the activations as gradients, summed by row."""
    gradient = np.zeros_like(rows)
    np.add.at(gradient, ids.ravel(), activations.reshape(-1, DIM))
    return rows - RATE * gradient


def test_each_step_sees_the_rows_of_one_step_earlier() -> None:
    with trainer() as own:
        current = before = START.astype(np.float64)
        for ids in IDS:
            found = of_all(own.train(tf.constant(ids)))
            np.testing.assert_allclose(found, before[ids], rtol=1e-5, atol=1e-6)
            before, current = current, moved(current, ids, before[ids])
            np.testing.assert_allclose(own.rows, current, rtol=1e-5, atol=1e-6)
        found = of_all(own.evaluate(tf.constant(IDS[0])))  # evaluations see every update
        np.testing.assert_array_equal(found, own.rows[IDS[0]])


@pytest.mark.parametrize("between", ["evaluation", "saving", "loading"])
def test_a_pause_lets_the_next_step_see_all(between: str) -> None:
    with trainer() as own:
        first = tf.constant(IDS[0])
        own.train(first)
        match between:
            case "evaluation":
                own.evaluate(first)
            case "saving":
                own.embedding._retrieve_variables()
            case "loading":
                own.embedding._load_variables()
        rows = own.rows
        np.testing.assert_array_equal(of_all(own.train(first)), rows[IDS[0]])
        assert (of_all(own.train(first)) == rows[IDS[0]]).all()  # and the one after it is late again


def test_an_optimizer_that_moves_every_row() -> None:
    """Rows that no id of the step before names are stale as well."""
    with trainer(api.Adam(RATE, lazy_adam=False)) as own:
        own.train(tf.constant(np.zeros((CORES, BATCH), int)))
        rows = own.rows
        own.train(tf.constant(np.ones((CORES, BATCH), int)))
        assert (own.rows[0] != rows[0]).all()
        found = of_all(own.train(tf.constant(np.zeros((CORES, BATCH), int))))
        np.testing.assert_array_equal(found, np.broadcast_to(rows[0], found.shape))
