"""Adding to a few places of a large tensor."""

from __future__ import annotations

from typing import Any

import tensorflow as tf


def add_at(tensor: Any, places: Any, values: Any) -> Any:
    """`tf.tensor_scatter_nd_add`, in place where nothing else reads the tensor; on a processor, that one always copies.

    Args:
        tensor: [...]; what else reads it should do so before, by a control dependency, or a copy is made.
        places: integers [n, k], as of `tf.tensor_scatter_nd_add`.
        values: [n, ...].

    Returns:
        A tensor like the first.
    """
    if isinstance(tf.distribute.get_strategy(), tf.distribute.TPUStrategy):  # XLA has no kernel for the other
        return tf.tensor_scatter_nd_add(tensor, places, values)
    return tf.raw_ops.ScatterNdNonAliasingAdd(input=tensor, indices=places, updates=values)
