"""The Keras layers that the models share, and whether their operations may be those of a library of fused ones.

Every layer's name has a dot, so that none clashes with an input, which has its feature's name. Initial values are a
pure function of the run's seed and the layer's name, independent of the order of creation.

The maximum over a text of a convolution's feature maps, and its gradient. Only one window of a text and map is the
maximum, so the gradients are sums over windows, and not convolutions with a gradient that is 0 nearly everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.specs.models import Activation
from embexp.system import digests, native

_TRIED = 16
"""Texts on which the bits of both ways are compared."""


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
        x = keras.layers.Dense(width, activation=activation.value, kernel_initializer=_kernel(seed, layer), name=layer)(
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
        kernel_initializer=_kernel(head.seed, name),
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
    return keras.layers.Dense(width, use_bias=False, kernel_initializer=_kernel(seed, name), name=name)(x)


def dropped(x: Any, rate: float, *, seed: int, name: str) -> Any:
    """Dropout of `x` in training; `x` itself at a rate of 0."""
    return keras.layers.Dropout(rate, seed=_seed(seed, name), name=name)(x) if rate else x


def maxima(words: Any, lengths: Any, *, width: int, maps: int, seed: int, name: str) -> Any:
    """Feature maps of windows of `width` words, and their maximum over a text, without a ReLU.

    Args:
        words: symbolic tensor [B, L, d].
        lengths: words of each text, [B].
        width: words per window.
        seed: the run's seed.

    Returns:
        Symbolic tensor [B, maps].
    """
    layer = MaximumOverWindows(
        width=width, dim=words.shape[-1], maps=maps, kernel_initializer=_kernel(seed, name), name=name
    )
    return layer([words, lengths])


def concatenated(tensors: Sequence[Any], *, name: str) -> Any:
    """Flattens each of `tensors` to [B, n] and concatenates them in the given order."""
    flat = [
        keras.layers.Flatten(name=f"{name}.flat.{number}")(x) if len(x.shape) > 2 else x
        for number, x in enumerate(tensors)
    ]
    return keras.layers.Concatenate(name=name)(flat) if len(flat) > 1 else flat[0]


def _kernel(seed: int, layer: str) -> Any:
    return keras.initializers.GlorotUniform(seed=_seed(seed, layer))


def _seed(seed: int, layer: str) -> int:
    return digests.seed_of(seed, "model", layer)[0]


class MaximumOverWindows(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """A convolution over all windows that have a word, its maximum over the text, and a bias: [B, L, d] -> [B, maps].

    The bias comes after the maximum, and a ReLU may: both are monotone, rounded too, so the values are the same. A text
    is padded with `width - 1` zero vectors on both sides. The maxima of a text without words are -inf. In a
    tie, the first window gets the gradient on a CPU; elsewhere, all get equal parts.

    Args:
        width: words per window.
        dim: numbers per word.
        kernel_initializer: of the weights [width, dim, maps]; biases start at 0.
    """

    def __init__(self, *, width: int, dim: int, maps: int, kernel_initializer: Any, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # The attributes of `keras.layers.Conv1D`, from which checkpoints have the weights' keys.
        self._kernel = self.add_weight(shape=(width, dim, maps), initializer=kernel_initializer, name="kernel")
        self.bias = self.add_weight(shape=(maps,), initializer="zeros", name="bias")

    def call(self, inputs: list[Any], training: bool | None = None) -> Any:
        """Takes words, float32 [B, L, d], and how many each text has, int32 [B]."""
        words, lengths = inputs
        kernel, bias = tf.convert_to_tensor(self._kernel), tf.convert_to_tensor(self.bias)
        return maxima_over_windows(words, lengths, kernel, training=bool(training)) + bias


def maxima_over_windows(words: Any, lengths: Any, kernel: Any, *, training: bool) -> Any:
    """The maximum over a text's windows with a word, [B, maps]; -inf for texts without words.

    Args:
        words: float32 [B, L, d], zeros behind each text.
        lengths: words of each text, int32 [B].
        kernel: float32 [width, d, maps].
        training: whether a gradient is wanted; what is exported has TensorFlow's own operations only.
    """
    if not training or not on_processor():
        return tf.reduce_max(_convolved(words, lengths, kernel), axis=1)
    if None not in words.shape[1:] and usable("windows") and _same_bits(words.shape[1], *kernel.shape):
        return _by_library(words, lengths, kernel)
    return _by_sparse_products(words, lengths, kernel)


def _convolved(words: Any, lengths: Any, kernel: Any) -> Any:
    """Feature maps, [B, L + width - 1, maps]: -inf where a window has no word.

    Window i covers words i - width + 1 to i, so the last one with a word is number length + width - 2.
    """
    edge = kernel.shape[0] - 1
    maps = tf.nn.conv1d(tf.pad(words, [[0, 0], [edge, edge], [0, 0]]), kernel, 1, "VALID")
    length = lengths[:, None]
    with_words = (tf.range(tf.shape(maps)[1])[None, :] < length + edge) & (length > 0)
    return maps + tf.where(with_words, 0.0, -np.inf)[:, :, None]


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _by_sparse_products(words: Any, lengths: Any, kernel: Any) -> Any:
    maps = _convolved(words, lengths, kernel)
    # A text without words has none: a window that ends before it.
    positions = tf.where(lengths[:, None] > 0, tf.argmax(maps, axis=1, output_type=tf.int32), -1)

    def gradient(upstream: Any) -> Any:
        to_words, to_kernel = _gradients(words, kernel, positions, upstream)
        return to_words, None, to_kernel

    return tf.reduce_max(maps, axis=1), gradient


def _gradients(words: Any, kernel: Any, positions: Any, upstream: Any) -> tuple[Any, Any]:
    """Products with a sparse matrix [B·L, maps·width], which has the upstream gradient where a word met a tap."""
    width, dim, maps = kernel.shape
    batch, longest, _ = tf.unstack(tf.shape(words))
    taken = tf.where(tf.not_equal(upstream, 0.0))  # dropout and ReLU leave less than half: texts and maps, in order
    of_text, of_map = (tf.cast(each[:, None], tf.int32) for each in tf.unstack(taken, axis=1))
    at = tf.gather_nd(positions, taken)[:, None] + tf.range(1 - width, 1)  # the word that each tap met
    values = tf.where((at >= 0) & (at < longest), tf.gather_nd(upstream, taken)[:, None], 0.0)
    rows = of_text * longest + tf.clip_by_value(at, 0, longest - 1)
    indices = tf.reshape(tf.stack([rows, of_map * width + tf.range(width)], axis=2), [-1, 2])
    product = functools.partial(
        tf.raw_ops.SparseTensorDenseMatMul,
        a_indices=indices,
        a_values=tf.reshape(values, [-1]),
        a_shape=tf.cast(tf.stack([batch * longest, maps * width]), tf.int64),
    )
    to_words = product(b=tf.reshape(tf.transpose(tf.reshape(kernel, [-1, maps])), [-1, dim]))
    to_kernel = product(b=tf.reshape(words, [-1, dim]), adjoint_a=True)
    to_kernel = tf.reshape(tf.transpose(tf.reshape(to_kernel, [maps, -1])), kernel.shape)
    return tf.reshape(to_words, tf.shape(words), name=_summand(kernel)), to_kernel


def _summand(kernel: Any) -> str:
    """Name of the operation that has a gradient by words.

    TensorFlow sums the gradients of several widths in the order of their operations' names.
    """
    return f"to_words_{kernel.shape[0]}"


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _by_library(words: Any, lengths: Any, kernel: Any) -> Any:
    """The same by `native_code/windows.cc`, which has a text's maps in the nearest cache, and none for its padding."""
    library = native.library("windows")
    found, positions = library.embexp_windows(words, lengths, kernel)

    def gradient(upstream: Any) -> Any:
        to_words, to_kernel = library.embexp_windows_grad(words, kernel, positions, upstream, name=_summand(kernel))
        return to_words, None, to_kernel

    return found, gradient


@functools.cache
def _same_bits(longest: int, width: int, dim: int, maps: int) -> bool:
    """They are where TensorFlow's convolutions are chains of fused multiply-adds in rising order, as oneDNN's are."""
    random = np.random.default_rng(0)
    lengths = random.integers(0, longest + 1, _TRIED).astype(np.int32)
    # Few different words, so that windows tie.
    words = random.standard_normal((8, dim)).astype(np.float32)[random.integers(0, 8, (_TRIED, longest))]
    words[np.arange(longest) >= lengths[:, None]] = 0
    kernel, upstream = (
        random.standard_normal(shape).astype(np.float32) for shape in ((width, dim, maps), (_TRIED, maps))
    )

    def with_lengths(way: Any) -> Any:
        return lambda words, kernel: way(words, tf.constant(lengths), kernel)

    return same_bits(with_lengths(_by_library), with_lengths(_by_sparse_products), (words, kernel), upstream)


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
