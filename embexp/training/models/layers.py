"""The Keras layers that the models share, and whether their operations may be those of a library of fused ones.

Every layer's name has a dot, so that none clashes with an input, which has its feature's name. Initial values are a
pure function of the run's seed and the layer's name, independent of the order of creation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.specs.models import Activation
from embexp.system import digests, native


def hidden(x: Any, widths: Sequence[int], *, activation: Activation, dropout: float, seed: int, name: str) -> Any:
    """Fully connected layers, each followed by its non-linearity and dropout.

    Args:
        x: symbolic tensor [B, n].
        widths: units of each layer.
        dropout: fraction of the units that is dropped in training; 0 adds no dropout layer.
        seed: the run's seed. Kernels are Glorot-uniform (Glorot & Bengio 2010), biases 0.
        name: prefix of the layers' names `name.0`, `name.1`, …

    Returns:
        Symbolic tensor [B, widths[-1]], or `x` without widths.
    """
    for number, width in enumerate(widths):
        layer = f"{name}.{number}"
        x = keras.layers.Dense(width, activation=activation.value, kernel_initializer=glorot(seed, layer), name=layer)(
            x
        )
        x = dropped(x, dropout, seed=seed, name=f"{layer}.dropout")
    return x


@dataclass(frozen=True)
class Head:
    """What a run asks of any model.

    Attributes:
        seed: the run's seed. Initial values depend only on it and on layer names.
        outputs: logits per example: 1, or the number of classes.
        bias: initial bias of each logit, such as the mean label or the log odds of a click.
    """

    seed: int
    outputs: int = 1
    bias: float = 0.0


def logits(x: Any, head: Head, *, max_norm: float | None = None) -> Any:
    """A linear layer [B, n] -> [B, outputs].

    With `max_norm`, the n weights of each output are rescaled to that L2 norm after a step in which they exceed it.
    """
    name = "head.logit"
    return keras.layers.Dense(
        head.outputs,
        kernel_initializer=glorot(head.seed, name),
        kernel_constraint=None if max_norm is None else keras.constraints.MaxNorm(max_norm, axis=0),
        bias_initializer=keras.initializers.Constant(head.bias),
        name=name,
    )(x)


class Rescaled(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """`mean + deviation * x`; both are weights that are not trained, float32 [], so that checkpoints have them."""

    def __init__(self, mean: float, deviation: float, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        constant = keras.initializers.Constant
        self.mean = self.add_weight(shape=(), initializer=constant(mean), trainable=False, name="mean")
        self.deviation = self.add_weight(shape=(), initializer=constant(deviation), trainable=False, name="deviation")

    def call(self, inputs: Any) -> Any:
        """Takes and returns float32 of any shape."""
        return inputs * self.deviation + self.mean


def linear(x: Any, width: int, *, seed: int, name: str) -> Any:
    """A linear layer without bias [B, n] -> [B, width]."""
    return keras.layers.Dense(width, use_bias=False, kernel_initializer=glorot(seed, name), name=name)(x)


def dropped(x: Any, rate: float, *, seed: int, name: str) -> Any:
    """Dropout of `x` in training; `x` itself at a rate of 0."""
    return keras.layers.Dropout(rate, seed=_seed(seed, name), name=name)(x) if rate else x


def concatenated(tensors: Sequence[Any], *, name: str) -> Any:
    """Flattens each of `tensors` to [B, n] and concatenates them in the given order."""
    flat = [
        keras.layers.Flatten(name=f"{name}.flat.{number}")(x) if len(x.shape) > 2 else x
        for number, x in enumerate(tensors)
    ]
    return keras.layers.Concatenate(name=name)(flat) if len(flat) > 1 else flat[0]


def glorot(seed: int, layer: str) -> Any:
    """The initializer of a kernel (Glorot & Bengio 2010), which depends on the seed and the layer's name only."""
    return keras.initializers.GlorotUniform(seed=_seed(seed, layer))


def normal(seed: int, layer: str, deviation: float) -> Any:
    """An initializer of normal values around 0, which depends on the seed and the layer's name only."""
    return keras.initializers.RandomNormal(stddev=deviation, seed=_seed(seed, layer))


def _seed(seed: int, layer: str) -> int:
    return digests.seed_of(seed, "model", layer)[0]


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
