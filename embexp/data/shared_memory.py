"""Arrays as TensorFlow sees them, without a copy where their alignment allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from embexp.system import arrays


class SharedArray:
    """An array as a variable whose value shares the array's memory.

    Not a plain tensor: tf.data would write the tensors that its functions capture, with all their bytes, into the graph
    that it optimises.
    """

    def __init__(self, array: np.ndarray) -> None:
        shared = array.size and arrays.is_aligned(array)
        tensor = tf.experimental.dlpack.from_dlpack(array.__dlpack__()) if shared else tf.constant(array)
        self._variable = tf.Variable(tensor, trainable=False)

    def at(self, rows: Any) -> Any:
        """The values at some rows. `read_value`, because a gather from the variable itself would first copy it."""
        return tf.gather(self._variable.read_value(), rows)

    def all(self) -> Any:
        """All values."""
        return self._variable.read_value()
