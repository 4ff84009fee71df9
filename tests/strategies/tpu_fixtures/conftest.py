"""A simulated TPU of two cores, new for each case."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest
import tensorflow as tf

import embexp

FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Lets TensorFlow's own configuration code assign a bool to an enum, of which protobuf 6 warns."""
    allowed = pytest.mark.filterwarnings("ignore:Field tensorflow.tpu.OptimizationParameters:DeprecationWarning")
    for item in items:
        if item.path.is_relative_to(FOLDER):
            item.add_marker(allowed)


@pytest.fixture(scope="session")
def quick_collection() -> Iterator[None]:
    """Garbage collection that does not look through all of TensorFlow."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def strategy(quick_collection: None) -> Iterator[tf.distribute.TPUStrategy]:
    """A TPUStrategy of two replicas whose TPU holds nothing yet.

    What a case leaves is collected at once. The parts of a distributed iterator are tuned by threads which sleep twice
    as long each time, and the end of an iterator waits for them: a minute, for one that was forgotten for a minute.
    """
    with embexp.tpu_simulator(cores=2) as strategy:
        yield strategy
    gc.collect()
