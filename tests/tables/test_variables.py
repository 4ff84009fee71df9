"""Variables of embedding rows."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from embexp.tables import variables


def test_rows_read_without_a_copy_keep_their_values() -> None:
    rows = variables.variable("rows", tf.zeros([4, 2]), [4, 2])
    variables.write_rows(
        rows, "rows", 0, np.ones((4, 2), np.float32)
    )  # from here on, TensorFlow copies at each reading
    held = variables.read_without_copy(rows)
    address = np.frombuffer(memoryview(held), np.float32).ctypes.data
    again = variables.read_without_copy(rows)
    assert np.frombuffer(memoryview(again), np.float32).ctypes.data == address
    variables.write_rows(rows, "rows", 1, np.full((1, 2), 5.0, np.float32))
    np.testing.assert_array_equal(held, np.ones((4, 2)))
    np.testing.assert_array_equal(variables.read_without_copy(rows)[1], [5.0, 5.0])
