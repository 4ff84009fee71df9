"""Whether a model's operations may be replaced by those of a library of fused ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.system import native


def on_processor() -> bool:
    """Whether this is a step for a processor: of no TPU, and of no GPU."""
    return not isinstance(
        tf.distribute.get_strategy(), tf.distribute.TPUStrategy
    ) and not tf.config.list_logical_devices("GPU")


def usable(library: str) -> bool:
    """Whether a library is there, and this is a step that TensorFlow 2 traces for a processor."""
    return tf.compat.v1.executing_eagerly_outside_functions() and on_processor() and native.library(library) is not None


def same_bits(
    one: Callable[..., Any], other: Callable[..., Any], inputs: Sequence[np.ndarray], upstream: np.ndarray
) -> bool:
    """Whether two functions and their gradients agree to the last bit on a processor.

    Args:
        one: from tensors to a tensor; may refuse them.
        other: the same.
        inputs: float32.
        upstream: gradient of the result, float32.
    """
    # A thread of its own is outside of the step that is being traced, and of its gradient tape.
    with ThreadPoolExecutor(1) as thread:
        try:
            found, expected = thread.map(lambda each: _with_gradients(each, inputs, upstream), (one, other))
        except (tf.errors.InvalidArgumentError, tf.errors.UnimplementedError):
            return False
    return all(np.array_equal(a.view(np.int32), b.view(np.int32)) for a, b in zip(found, expected, strict=True))


def _with_gradients(function: Callable[..., Any], inputs: Sequence[np.ndarray], upstream: np.ndarray) -> list[Any]:
    def both(*tensors: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            result = function(*tensors)
        return [result, *tape.gradient(result, tensors, tf.constant(upstream))]

    with tf.device("CPU:0"):
        tensors = [tf.constant(each) for each in inputs]
        traced = tf.function(both, autograph=False).get_concrete_function(*tensors)  # as steps are
        return [each.numpy() for each in traced(*tensors)]
