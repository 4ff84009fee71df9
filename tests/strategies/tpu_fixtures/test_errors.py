"""Inputs and gradients that are refused, with TensorFlow's words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf

from tests.strategies.tpu_fixtures import world
from tests.strategies.tpu_fixtures.cases import Case, original

api = tf.tpu.experimental.embedding


@pytest.fixture
def bridge(case: Case) -> Iterator[None]:
    """The MLIR bridge on, for the variant with it."""
    if case.variant == "mlir":
        tf.config.experimental.enable_mlir_bridge()
    yield
    if case.variant == "mlir":
        tf.config.experimental.disable_mlir_bridge()


def forward(strategy: Any, embedding: Any, ids: Any, weights: Any = None) -> Any:
    """Traces and runs a forward step; ids and weights are functions called inside it."""

    @tf.function
    def step() -> Any:
        embedding.enqueue(ids(), weights=None if weights is None else weights(), training=False)
        return strategy.run(embedding.dequeue)

    return step()


@original(("v2_invalid_input", "test_tables_with_same_name"))
def test_tables_with_same_name(case: Case, strategy: Any) -> None:
    """Two tables may not share a name."""

    def feature(name: str) -> Any:
        table = api.TableConfig(4, 2, initializer=tf.zeros_initializer(), name="table")
        return api.FeatureConfig(table, name=name)

    with strategy.scope(), pytest.raises(ValueError, match=r"Multiple tables with name table found\."):
        api.TPUEmbedding((feature("watched"), feature("favorited")), api.SGD(0.1))


@original(("v2_invalid_input", "test_pass_non_tensor_to_apply_gradients"))
def test_pass_non_tensor_to_apply_gradients(case: Case, strategy: Any) -> None:
    """Numbers are no gradients, and a list is not the tuple of the features."""
    embedding = world.embedding(strategy)
    embedding.build(64)
    with pytest.raises(ValueError, match="found non-tensor type"):
        strategy.run(tf.function(lambda: embedding.apply_gradients((1, 2, 3))))
    with pytest.raises(TypeError, match=r"The two structures don't have the same nested structure\."):
        strategy.run(tf.function(lambda: embedding.apply_gradients([1, 2, 3])))


@original(("v2_invalid_input", "test_enqueue_weight_for_dense_tensor"))
def test_enqueue_weight_for_dense_tensor(case: Case, strategy: Any) -> None:
    """A dense input has no weights."""
    embedding = world.embedding(strategy)
    batches = world.distributed(strategy, world.dataset("dense", weight=0.5))

    @tf.function
    def step() -> Any:
        ids, weights = next(batches)
        embedding.enqueue(ids, weights=weights, training=False)
        return strategy.run(embedding.dequeue)

    with pytest.raises(ValueError, match="Weight specified for dense input"):
        step()


@original(("v2_invalid_input", "test_enqueue_wrong_weight_type_for_sparse_and_ragged_tensor"))
def test_enqueue_wrong_weight_type_for_sparse_and_ragged_tensor(case: Case, strategy: Any) -> None:
    """Sparse ids need sparse weights, ragged ids ragged ones."""
    embedding = world.embedding(strategy)
    sparse = world.distributed(strategy, world.dataset("sparse", weight=0.5))
    ragged = world.distributed(strategy, world.dataset("ragged", weight=0.5))
    with pytest.raises(ValueError, match=r"which does not match type input which is SparseTensor\."):
        forward(strategy, embedding, lambda: next(sparse)[0], lambda: next(ragged)[1])
    with pytest.raises(ValueError, match=r"which does not match type input which is RaggedTensor\."):
        forward(strategy, embedding, lambda: next(ragged)[0], lambda: next(sparse)[1])


@original(("v2_invalid_input", "test_enqueue_incorrect_structure_for_features_and_weights"))
def test_enqueue_incorrect_structure_for_features_and_weights(case: Case, strategy: Any) -> None:
    """One feature, or one weight, where three belong."""
    embedding = world.embedding(strategy)
    batches = world.distributed(strategy, world.dataset("sparse", weight=0.5))
    words = "The two structures don't have the same number of elements"
    with pytest.raises(ValueError, match=words):
        forward(strategy, embedding, lambda: next(batches)[0][:1])
    with pytest.raises(ValueError, match=words):
        forward(strategy, embedding, lambda: next(batches)[0], lambda: next(batches)[1][:1])


@original(("v2_invalid_input", "test_enqueue_cpu_tensor"))
def test_enqueue_cpu_tensor(case: Case, strategy: Any) -> None:
    """A data set distributed without experimental_fetch_to_device=False ends on the TPU, too late to enqueue."""
    embedding = world.embedding(strategy)
    batches = world.distributed(strategy, world.dataset("dense"), to_device=True)
    with pytest.raises(ValueError, match="which is on a TPU input device"):
        forward(strategy, embedding, lambda: next(batches))


@original(("v2_invalid_input", "test_enqueue_cpu_tensor_with_outside_compilation"))
@pytest.mark.usefixtures("bridge")
def test_enqueue_cpu_tensor_with_outside_compilation(case: Case, strategy: Any) -> None:
    """The same inside strategy.run."""
    embedding = world.embedding(strategy)
    batches = world.distributed(strategy, world.dataset("dense"), to_device=True)

    @tf.function
    def step() -> Any:
        def replica(ids: Any) -> Any:
            embedding.enqueue(ids, training=False)
            return embedding.dequeue()

        return strategy.run(replica, args=(next(batches),))

    with pytest.raises(ValueError, match="which is on a TPU input device"):
        step()
