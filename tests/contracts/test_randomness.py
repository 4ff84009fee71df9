"""Dropout in every strategy, against TensorFlow's own: other masks in each replica, the same ones in each run."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from embexp.fields.texts.specs import BagOfWords
from embexp.specs.optimizers import Adagrad
from embexp.specs.run import RunSpec
from embexp.specs.strategies import CPU, Mirrored, TPUSimulator
from embexp.strategies.mirrored import sizes
from embexp.system import digests
from embexp.training import models
from tests import checkpoint_values
from tests.contracts import experiments
from tests.contracts.experiments import RATE
from tests.exact_training import Lists, Looked, activations

STRATEGIES: dict[str, Any] = {
    "cpu": CPU(),
    "mirrored, 3": Mirrored(replicas=3),  # which share 8 examples unevenly
    "tpu_simulator, 2 on 2 hosts": TPUSimulator(cores=2, hosts=2),
}
DROPPED, LAYER = 0.25, "bag.dropout"
APART = 506_952_115
BATCHES = experiments.examples(4)


def spec_of(strategy: Any) -> RunSpec:
    spec = experiments.spec_of(strategy, Adagrad(learning_rate=0.125))
    return spec.model_copy(update={"model": BagOfWords(dropout=DROPPED)})


def train(made: experiments.Made, start: int, stop: int) -> list[float]:
    runtime = made.execution.runtime
    iterator = iter(made.execution.dataset(experiments.dataset(BATCHES[start:stop])))
    return [runtime.train(iterator, 1) for _ in range(start, stop)]


def masks(replicas: int, width: int, draw: int) -> np.ndarray:
    """What TensorFlow makes of ones, with another seed in each replica."""
    seed = digests.seed_of(0, "model", LAYER)[0]
    parts = [
        tf.nn.experimental.stateless_dropout(tf.ones([size, width]), DROPPED, [(seed + n * APART) % (2**31 - 2), draw])
        for n, size in enumerate(sizes(experiments.BATCH, replicas))
    ]
    return np.concatenate(parts)


def of_feature(lists: Lists, looked: Looked, rows: np.ndarray) -> np.ndarray:
    found = activations(lists, looked, rows).astype(np.float32)
    return found if looked.length else found[:, 0]


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_step_drops_what_tensorflow_would(name: str) -> None:
    batch, strategy = BATCHES[0], STRATEGIES[name]
    with experiments.making(spec_of(strategy)) as made:
        kernel, bias = (weight.numpy().astype(np.float64) for weight in made.model.trainable_weights)
        before = keras.Model(made.model.input, made.model.get_layer(LAYER).input)
        given = {
            name: of_feature(batch.given[name], looked, made.first[looked.table])
            for name, looked in experiments.looked("mean").items()
        }
        x = np.asarray(before({**given, "dense.features": batch.dense}), np.float64)
        x *= masks(strategy.replica_count, x.shape[1], 0)
        [loss] = train(made, 0, 1)
        found = made.model.trainable_weights[0].numpy()
    error = (x @ kernel)[:, 0] + bias[0] - batch.labels
    assert loss == pytest.approx(np.mean(error**2), rel=1e-5)
    expected = kernel - RATE * 2 / len(error) * (x.T @ error)[:, None]
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_one_replica_is_one_device() -> None:
    found = []
    for strategy in (CPU(), Mirrored(replicas=1)):
        with experiments.making(spec_of(strategy)) as made:
            found.append((train(made, 0, 4), *(weight.numpy().tobytes() for weight in made.model.weights)))
    assert found[0] == found[1]


@dataclass(frozen=True)
class Trained:
    """The losses of two steps, of two more, and of these again, from what was saved before them."""

    first: list[float]
    second: list[float]
    again: list[float]
    directory: Path
    values: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    @functools.cache
    def by(name: str) -> Trained:
        directory = tmp_path_factory.mktemp("saved") / "first"
        with experiments.making(spec_of(STRATEGIES[name])) as made:
            first = train(made, 0, 2)
            values = checkpoint_values.every(experiments.saved(made, directory))
            second = train(made, 2, 4)
            made.execution.restore(directory)
            return Trained(first, second, train(made, 2, 4), directory, values)

    return by


REPLICATED = ["mirrored, 3", pytest.param("tpu_simulator, 2 on 2 hosts", marks=pytest.mark.slow)]


@pytest.mark.parametrize("name", REPLICATED)
def test_what_is_restored_goes_on_as_it_would_have(name: str, trained: Callable[[str], Trained]) -> None:
    assert trained(name).again == trained(name).second


def test_the_same_training_gives_the_same_bits(trained: Callable[[str], Trained]) -> None:
    with experiments.making(spec_of(STRATEGIES["mirrored, 3"])) as made:
        assert train(made, 0, 4) == [*trained("mirrored, 3").first, *trained("mirrored, 3").second]


@pytest.mark.parametrize("name", REPLICATED)
def test_states_are_those_of_one_device(name: str, trained: Callable[[str], Trained]) -> None:
    alone, shared = trained("cpu"), trained(name)
    [key] = [key for key in alone.values if key.startswith("random/")]
    assert alone.values.keys() == shared.values.keys()
    for each in (alone, shared):
        assert each.values[key].tolist() == [digests.seed_of(0, "model", LAYER)[0], 2]
    with experiments.making(spec_of(CPU())) as made:
        made.execution.restore(shared.directory)
        [state] = models.random_state(made.model)
        assert state.numpy().tolist() == shared.values[key].tolist()
