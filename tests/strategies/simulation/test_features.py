"""Shapes of inputs under the simulated TPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import embexp
from embexp.errors import RunError

api = tf.tpu.experimental.embedding
ROWS, DIM = 9, 2
START = np.random.default_rng(0).standard_normal((ROWS, DIM)).astype(np.float32)


def look_up(
    ids: Any, shape: Any, weights: Any = None, combiner: str = "sum", spec: Any = None, **feature: Any
) -> np.ndarray:
    """What one core's lookup gives."""
    with embexp.tpu_simulator(cores=1) as strategy:
        with strategy.scope():
            table = api.TableConfig(ROWS, DIM, tf.constant_initializer(START), combiner=combiner, name="items")
            embedding = api.TPUEmbedding({"seen": api.FeatureConfig(table, name="seen", **feature)}, api.SGD(0.5))
        if shape is not None:
            embedding.build({"seen": tf.TensorShape(shape)})

        @tf.function(reduce_retracing=True)
        def step(ids: Any, weights: Any) -> Any:
            embedding.enqueue({"seen": ids}, None if weights is None else {"seen": weights}, training=False)
            return strategy.run(lambda: embedding.dequeue()["seen"])

        step = step if spec is None else step.get_concrete_function(*spec)
        found: np.ndarray = step(ids, weights).numpy()
        return found


def ragged(*rows: list[int], dtype: Any = tf.int64) -> Any:
    return tf.ragged.constant(rows, dtype)


def total(*ids: int) -> np.ndarray:
    return START[list(ids)].sum(0) if ids else np.zeros(DIM, np.float32)


class TestDense:
    def test_a_vector(self) -> None:
        np.testing.assert_array_equal(look_up(tf.constant([3, 1]), None), START[[3, 1]])

    def test_a_last_dimension_of_one_is_dropped(self) -> None:
        ids = np.array([[[3], [1]], [[0], [8]]])
        np.testing.assert_array_equal(look_up(tf.constant(ids), None), START[ids[..., 0]])

    def test_floats_are_cast(self) -> None:
        np.testing.assert_array_equal(look_up(tf.constant([3.0, 1.0]), None), START[[3, 1]])


class TestSparse:
    def test_rank_three_keeps_empty_rows_and_drops_nothing(self) -> None:
        ids = tf.SparseTensor([[0, 0, 0], [0, 0, 2], [1, 1, 1]], tf.constant([4, 4, 2], tf.int64), [2, 2, 3])
        expected = [[total(4, 4), total()], [total(), total(2)]]
        np.testing.assert_allclose(look_up(ids, None), expected, rtol=1e-6)

    def test_negative_weights_count(self) -> None:
        ids = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([4, 2], tf.int64), [2, 2])
        weights = tf.SparseTensor([[0, 0], [0, 1]], [1.0, -0.5], [2, 2])
        expected = [(START[4] - 0.5 * START[2]) / 0.5, total()]
        np.testing.assert_allclose(look_up(ids, None, weights, combiner="mean"), expected, rtol=1e-5)

    def test_weights_that_cancel_give_zero(self) -> None:
        ids = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([4, 2], tf.int64), [1, 2])
        weights = tf.SparseTensor([[0, 0], [0, 1]], [1.0, -1.0], [1, 2])
        np.testing.assert_array_equal(look_up(ids, None, weights, combiner="mean"), [total()])

    def test_gaps_of_a_sequence_keep_their_place(self) -> None:
        ids = tf.SparseTensor([[0, 1], [0, 3], [1, 0]], tf.constant([4, 5, 2], tf.int64), [2, 4])
        expected = [[total(), total(4), total()], [total(2), total(), total()]]
        np.testing.assert_array_equal(look_up(ids, None, max_sequence_length=3), expected)


class TestRagged:
    def test_output_shape_of_as_many_vectors(self) -> None:
        ids = ragged([1, 2], [], [3], [4, 4])
        expected = [[total(1, 2), total()], [total(3), total(4, 4)]]
        np.testing.assert_allclose(look_up(ids, None, output_shape=[2, 2]), expected, rtol=1e-6)

    def test_output_shape_of_more_vectors_is_a_sequence(self) -> None:
        found = look_up(ragged([1, 2, 3], []), None, output_shape=[2, 2])
        np.testing.assert_array_equal(found, [[total(1), total(2)], [total(), total()]])

    def test_output_shape_that_does_not_fit(self) -> None:
        with pytest.raises(ValueError, match="holds 4 vectors, which is not a multiple of the 3 rows"):
            look_up(ragged([1], [2], [3]), None, output_shape=[2, 2])


class TestRefusals:
    def test_more_examples_than_the_shape_has(self) -> None:
        ids = tf.SparseTensor([[0, 0], [2, 1]], tf.constant([4, 2], tf.int64), [3, 2])
        spec = (tf.SparseTensorSpec([None, None], tf.int64), None)
        with pytest.raises(RunError, match="sparse ids of more than 2 examples"):
            look_up(ids, [2, 2], spec=spec)

    def test_sparse_ids_of_another_rank(self) -> None:
        ids = tf.SparseTensor([[0, 0]], tf.constant([4], tf.int64), [1, 2])
        with pytest.raises(ValueError, match=r"sparse ids of rank 2, but its shape \(1, 2\) needs rank 3"):
            look_up(ids, None, output_shape=[1, 2])

    def test_another_number_of_dense_ids(self) -> None:
        spec = (tf.TensorSpec([None], tf.int64), None)
        with pytest.raises(RunError, match="holds a different number of dense ids"):
            look_up(tf.constant([1, 2, 3], tf.int64), [2], spec=spec)

    def test_another_number_of_weights(self) -> None:
        spec = (
            tf.SparseTensorSpec([1, None], tf.int64),
            tf.SparseTensorSpec([1, None], tf.float32),
        )
        ids = tf.SparseTensor([[0, 0], [0, 1]], tf.constant([4, 2], tf.int64), [1, 2])
        weights = tf.SparseTensor([[0, 0]], [1.0], [1, 2])
        with pytest.raises(RunError, match="the numbers of weights and ids differ"):
            look_up(ids, [1, 2], weights, spec=spec)

    def test_ragged_ids_of_unknown_number_of_rows(self) -> None:
        spec = (tf.RaggedTensorSpec([None, None], tf.int64), None)
        with pytest.raises(ValueError, match="must be known while tracing: batch with drop_remainder=True"):
            look_up(ragged([1], [2]), [2, 1], spec=spec)

    def test_weights_of_dense_ids_are_tensorflows_to_refuse(self) -> None:
        with pytest.raises(ValueError, match="Weight specified for dense input"):
            look_up(tf.constant([1]), None, tf.constant([1.0]))
