"""Adding to a few places of a tensor."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from embexp.tables.row_updates import add_at


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**31), rows=st.integers(1, 9), width=st.integers(1, 5), count=st.integers(0, 12))
def test_places_get_the_sum_of_their_values(seed: int, rows: int, width: int, count: int) -> None:
    random = np.random.default_rng(seed)
    tensor = random.normal(size=(rows, width)).astype(np.float32)
    places = np.stack([random.integers(rows, size=count), random.integers(width, size=count)], 1)
    values = random.normal(size=count).astype(np.float32)
    expected = tensor.astype(np.float64)
    np.add.at(expected, tuple(places.T), values)
    got = tf.function(add_at, autograph=False)(tf.constant(tensor) * 1.0, places, values)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_a_tensor_that_is_read_later_keeps_its_values() -> None:
    @tf.function(autograph=False)
    def both(tensor: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        made = tf.exp(tensor)
        more = add_at(made, [[0]], [[1.0, 1.0]])
        with tf.control_dependencies([more]):
            return tf.identity(made), more

    made, more = both(tf.zeros([2, 2]))
    np.testing.assert_array_equal(made, np.ones((2, 2)))
    np.testing.assert_array_equal(more, [[2.0, 2.0], [1.0, 1.0]])
