"""How replicas share a batch, and what keeps them the same."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp.errors import RunError
from embexp.specs.optimizers import DenseAdagrad, DenseAdam, DenseSGD
from embexp.specs.strategies import Mirrored
from embexp.specs.tables import Feature
from embexp.strategies import mirrored
from embexp.strategies.mirrored import divided, sizes
from embexp.strategies.strategy import OneDevice
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
from embexp.training import models
from embexp.training.step import Input, Step


class Batch(NamedTuple):
    ids: dict[str, Any]
    weights: dict[str, Any]
    dense: Any
    labels: Any


@pytest.mark.parametrize(("count", "expected"), [(8, [3, 3, 2]), (9, [3, 3, 3]), (2, [1, 1, 0])])
def test_parts_are_as_equal_as_can_be(count: int, expected: list[int]) -> None:
    assert sizes(count, 3) == expected
    assert [int(size) for size in sizes(tf.constant(count), 3)] == expected
    value = tf.range(count)[:, None]
    known = divided(value, 3)
    assert [part.shape[0] for part in known] == expected

    @tf.function(input_signature=[tf.TensorSpec([None, 1], tf.int32)])
    def unknown(value: Any) -> Any:
        return divided(value, 3)

    for parts in (known, unknown(value)):
        np.testing.assert_array_equal(np.concatenate(parts), value)
        assert [len(part) for part in parts] == expected


def step_of(strategy: Any, optimizer: Any, layers: list[Any], rule: Any = None) -> tuple[Step, EmbeddingTable]:
    """A step of a small model on one feature of one table that stays as it is, and on one number of each example."""
    table = EmbeddingTable("item", 7, 2, frozen=True)
    table.write(0, np.random.default_rng(0).standard_normal((7, 2)).astype(np.float32))
    counter = tf.Variable(0, dtype=tf.int64)
    engine = RowEngine({"item": table}, {"item": Feature(table="item")}, {}, step=counter, total_steps=9)
    with strategy.scope():
        keras.utils.set_random_seed(1)
        item, dense = keras.Input((2,), name="item"), keras.Input((1,), name="dense.features")
        x = keras.layers.Concatenate()([item, dense])
        for layer in layers:
            x = layer()(x)
        model = keras.Model({"item": item, "dense.features": dense}, x)
        built = models.build_optimizer(optimizer)
        built.build(model.trainable_variables)

    def loss(labels: Any, logits: Any) -> Any:
        return tf.reduce_mean((labels - logits[:, 0]) ** 2)

    return Step(strategy.backend(engine), model, {"item": Input("item")}, strategy, loss, built, counter), table


def batches(count: int, size: int = 7) -> list[Batch]:
    generator = np.random.default_rng(3)
    return [
        Batch(
            {"item": tf.constant(generator.integers(0, 7, size))},
            {},
            tf.constant(generator.standard_normal((size, 1)), tf.float32),
            tf.constant(generator.standard_normal(size), tf.float32),
        )
        for _ in range(count)
    ]


def final(strategy: Any, optimizer: Any, layers: list[Any]) -> tuple[list[float], list[np.ndarray], Step]:
    step, _ = step_of(strategy, optimizer, layers)
    train = tf.function(step.train)
    losses = [float(train(batch)) for batch in batches(6)]
    return losses, [weight.numpy() for weight in step.model.weights], step


def linear() -> Any:
    return keras.layers.Dense(1, kernel_initializer=keras.initializers.Constant(0.5))


def hidden() -> Any:
    return keras.layers.Dense(
        3,
        kernel_initializer=keras.initializers.GlorotUniform(seed=4),
        kernel_constraint=keras.constraints.MaxNorm(0.75, axis=0),
        kernel_regularizer=keras.regularizers.L2(0.125),
    )


OPTIMIZERS = {
    "sgd": DenseSGD(learning_rate=0.125, momentum=0.5),
    "clipped": DenseSGD(learning_rate=0.125, clipnorm=0.25),
    "adagrad": DenseAdagrad(learning_rate=0.125),
    "adam, decayed": DenseAdam(learning_rate=0.0625, weight_decay=0.125, clipnorm=0.5),
}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_dense_part_learns_what_it_learns_on_one_device(optimizer: str) -> None:
    """With uneven parts, clipping of the summed gradient, decay, constraints and regularisers."""
    alone, expected, _ = final(OneDevice(), OPTIMIZERS[optimizer], [hidden, linear])
    losses, found, step = final(mirrored.build_mirrored(Mirrored(replicas=3)), OPTIMIZERS[optimizer], [hidden, linear])
    np.testing.assert_allclose(losses, alone, rtol=1e-5)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    replicas_agree(step)


def test_running_means_agree() -> None:
    """Each replica normalises its own part; the means over parts are kept."""
    strategy, size = mirrored.build_mirrored(Mirrored(replicas=2)), 8
    step, table = step_of(strategy, DenseSGD(learning_rate=0.125), [keras.layers.BatchNormalization, linear])
    [batch] = batches(1, size)
    tf.function(step.train)(batch)
    replicas_agree(step)
    rows = np.concatenate([table.read(0, 7)[batch.ids["item"].numpy()], batch.dense], 1)
    means = [0.01 * part.mean(0) for part in (rows[:4], rows[4:])]  # Keras' momentum is 0.99
    np.testing.assert_allclose(step.model.non_trainable_weights[0].numpy(), np.mean(means, 0), rtol=1e-4, atol=1e-6)


def replicas_agree(step: Step) -> None:
    for weight in step.model.weights:
        first, *others = [each.numpy().tobytes() for each in weight.value.values]
        assert {first} == set(others), weight.path


def test_rows_exist_once() -> None:
    step, table = step_of(mirrored.build_mirrored(Mirrored(replicas=3)), DenseSGD(), [linear])
    assert not hasattr(table.variable, "values")
    assert [len(weight.value.values) for weight in step.model.weights] == [3, 3]


def test_candidates_of_the_whole_batch_reach_every_replica() -> None:
    """Activations [1, C, dim] are not cut, and their gradients come from all examples."""
    moved = []
    for strategy in (OneDevice(), mirrored.build_mirrored(Mirrored(replicas=3))):
        table = EmbeddingTable("item", 5, 2)
        table.write(0, np.ones((5, 2), np.float32))
        from embexp.specs.optimizers import SGD

        counter = tf.Variable(0, dtype=tf.int64)
        engine = RowEngine(
            {"item": table},
            {"all": Feature(table="item")},
            {"item": SGD(learning_rate=0.5)},
            step=counter,
            total_steps=9,
        )
        backend = strategy.backend(engine)

        @tf.function(autograph=False)
        def train(batch: Any, backend: Any = backend, strategy: Any = strategy) -> Any:
            backend.enqueue({"all": tf.constant([[0, 2, 4]])}, training=True)

            def replica(part: Any) -> Any:
                found = backend.activations()["all"]
                backend.apply_gradients({"all": found * tf.reduce_sum(part.labels)})
                return tf.fill([tf.size(part.labels)], tf.size(found))

            return strategy.joined(strategy.run(replica, batch))

        labels = tf.range(7, dtype=tf.float32)
        seen = train(Batch({}, {}, tf.zeros([7, 0]), labels))
        assert seen.numpy().tolist() == [6] * 7
        moved.append(table.read(0, 5))
    np.testing.assert_array_equal(moved[0], moved[1])
    assert (moved[0][0] == 1 - 0.5 * 21).all()


@pytest.mark.parametrize(("there", "words"), [(0, "no GPU"), (1, "1 GPU"), (2, "2 GPUs")])
def test_replicas_that_are_logical_processors_are_told_of(
    monkeypatch: pytest.MonkeyPatch, there: int, words: str
) -> None:
    found = tf.config.list_physical_devices
    monkeypatch.setattr(
        tf.config, "list_physical_devices", lambda kind: [kind] * there if kind == "GPU" else found(kind)
    )
    strategy = mirrored.build_mirrored(Mirrored(replicas=3))
    assert strategy.devices == ("CPU:0", "CPU:1", "CPU:2")
    (note,) = strategy.notes
    assert f"TensorFlow sees {words}, so the 3 replicas are logical processors of this machine" in note


def test_processors_that_are_there_are_enough() -> None:
    mirrored.logical_processors(2)
    with pytest.raises(RunError, match=r"9 logical processors are needed, but TensorFlow is already running"):
        mirrored.logical_processors(9)


def test_a_new_process_gets_its_processors(forked: Path) -> None:
    script = (
        "import tensorflow as tf\n"
        "from embexp.strategies import mirrored\n"
        "from embexp.specs.strategies import Mirrored\n"
        "strategy = mirrored.build_mirrored(Mirrored(replicas=3))\n"
        "print(strategy.devices, len(tf.config.list_logical_devices('CPU')))\n"
    )
    found = subprocess.run([forked / "python", "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "('CPU:0', 'CPU:1', 'CPU:2') 3"
