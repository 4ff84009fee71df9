"""Models of texts: sequences of word vectors, whose padding must have no effect.

The maximum over a text of a convolution's feature maps, and its gradient. Only one window of a text and map is the
maximum, so the gradients are sums over windows, and not convolutions with a gradient that is 0 nearly everywhere.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from embexp.data.columns import Columns
from embexp.fields.texts.specs import BagOfWords, Text, TextCNN, Words
from embexp.runs.serving import FeatureModel, Signatures, lowered
from embexp.system import native
from embexp.training import models
from embexp.training.models import Head

_TRIED = 16
"""Number of texts on which the bits of both ways are compared."""


def bag_of_words(model: BagOfWords, activations: Mapping[str, Any], head: Head) -> Any:
    """A linear classifier of the mean word vector.

    Args:
        activations: symbolic tensors, [B, L, dim] for texts, whose words are averaged without the padding, and [B, n]
            for anything else, such as words that the table has already combined. The means are concatenated in the
            order of their names.

    Returns:
        Logits [B, outputs].
    """
    means = [
        MeanOfWords(name=f"mean.{name}")(activations[name]) if len(activations[name].shape) == 3 else activations[name]
        for name in sorted(activations)
    ]
    x = models.concatenated(means, name="bag.inputs")
    return models.logits(models.dropped(x, model.dropout, seed=head.seed, name="bag.dropout"), head)


def text_cnn(model: TextCNN, activations: Mapping[str, Any], head: Head) -> Any:
    """Kim: "Convolutional Neural Networks for Sentence Classification" (2014), §2.

    For each width h: feature maps ReLU(w · x[i:i+h] + b) of all windows of h words, and of each map the maximum over
    the text. As in the author's code, a text is padded with h - 1 zero vectors on both sides, so that even the
    shortest text has windows. A window without any word is never the maximum, so that a prediction does not depend on
    the padding of its batch; the maxima of a text without words are 0.

    Args:
        activations: symbolic tensors, [B, L, dim] for texts; others, [B, n], are concatenated with the maxima, in the
            order of their names.

    Returns:
        Logits [B, outputs].
    """
    inputs = []
    for name in sorted(activations):
        x = activations[name]
        if len(x.shape) == 2:
            inputs.append(x)
            continue
        for width in model.widths:
            # Three layers per width, whose numbers are part of the keys in checkpoints.
            count = Lengths(name=f"lengths.{name}.{width}")(x)
            windows = f"windows.{name}.{width}"
            kernel = models.glorot(head.seed, windows)
            found = MaximumOverWindows(width, x.shape[-1], model.maps, kernel, name=windows)([x, count])
            inputs.append(keras.layers.ReLU(name=f"relu.{name}.{width}")(found))
    x = models.concatenated(inputs, name="texts.inputs")
    x = models.dropped(x, model.dropout, seed=head.seed, name="texts.dropout")
    return models.logits(x, head, max_norm=model.max_norm)


def lengths(words: Any) -> Any:
    """Number of words of each text: [B, L, dim] -> int32 [B].

    A lookup pads a short text with vectors of zeros, so a text ends with its last vector that is not all zeros. Zero
    vectors before that, such as of words that a pretrained file lacks with `missing: zeros`, count as words.
    """
    positions = keras.ops.arange(1, keras.ops.shape(words)[1] + 1, dtype="int32")
    nonzero = keras.ops.cast(keras.ops.any(keras.ops.not_equal(words, 0.0), axis=-1), "int32")
    return keras.ops.max(nonzero * positions, axis=1)


class Lengths(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """`lengths` of texts: [B, L, dim] -> int32 [B]."""

    def call(self, words: Any) -> Any:
        """See `lengths`."""
        return lengths(words)


class MeanOfWords(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The mean of a text's word vectors: [B, L, dim] -> [B, dim]; zeros for a text without words."""

    def call(self, words: Any) -> Any:
        """Divides the sum, to which padding adds nothing, by the number of words."""
        count = keras.ops.cast(keras.ops.maximum(lengths(words), 1), words.dtype)
        return keras.ops.sum(words, axis=1) / count[:, None]


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

    def __init__(self, width: int, dim: int, maps: int, kernel_initializer: Any, **kwargs: Any) -> None:
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
    if not training or not models.on_processor():
        return tf.reduce_max(_convolved(words, lengths, kernel), axis=1)
    if None not in words.shape[1:] and models.usable("windows") and _same_bits(words.shape[1], *kernel.shape):
        return _by_library(words, lengths, kernel)
    return _by_sparse_products(words, lengths, kernel)


def _convolved(words: Any, lengths: Any, kernel: Any) -> Any:
    """Feature maps, [B, L + width - 1, maps]: -inf where a window has no word.

    Window i covers words i - width + 1 to i, so the last window with a word is number length + width - 2.
    """
    edge = kernel.shape[0] - 1
    maps = tf.nn.conv1d(tf.pad(words, [[0, 0], [edge, edge], [0, 0]]), kernel, 1, "VALID")
    length = lengths[:, None]
    with_words = (tf.range(tf.shape(maps)[1])[None, :] < length + edge) & (length > 0)
    return maps + tf.where(with_words, 0.0, -np.inf)[:, :, None]


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _by_sparse_products(words: Any, lengths: Any, kernel: Any) -> Any:
    maps = _convolved(words, lengths, kernel)
    # A text without words has no window with a word, so take one that ends before it.
    positions = tf.where(lengths[:, None] > 0, tf.argmax(maps, axis=1, output_type=tf.int32), -1)

    def gradient(upstream: Any) -> Any:
        to_words, to_kernel = _gradients(words, kernel, positions, upstream)
        return to_words, None, to_kernel

    return tf.reduce_max(maps, axis=1), gradient


def _gradients(words: Any, kernel: Any, positions: Any, upstream: Any) -> tuple[Any, Any]:
    """Products with a sparse matrix [B·L, maps·width], which has the upstream gradient where a word meets a tap."""
    width, dim, maps = kernel.shape
    batch, longest, _ = tf.unstack(tf.shape(words))
    taken = tf.where(tf.not_equal(upstream, 0.0))  # texts and maps in order; dropout and ReLU leave less than half
    of_text, of_map = (tf.cast(each[:, None], tf.int32) for each in tf.unstack(taken, axis=1))
    at = tf.gather_nd(positions, taken)[:, None] + tf.range(1 - width, 1)  # the word that each tap meets
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
    """The name of the operation that has the gradient of words.

    TensorFlow sums the gradients of several widths in the order of their operations' names.
    """
    return f"to_words_{kernel.shape[0]}"


@tf.custom_gradient  # type: ignore[untyped-decorator]
def _by_library(words: Any, lengths: Any, kernel: Any) -> Any:
    """The same with `native_code/windows.cc`, which keeps a text's maps in the nearest cache and skips padding."""
    library = native.library("windows")
    found, positions = library.embexp_windows(words, lengths, kernel)

    def gradient(upstream: Any) -> Any:
        to_words, to_kernel = library.embexp_windows_grad(words, kernel, positions, upstream, name=_summand(kernel))
        return to_words, None, to_kernel

    return found, gradient


@functools.cache
def _same_bits(longest: int, width: int, dim: int, maps: int) -> bool:
    """Whether both ways give the same bits: if convolutions are fused multiply-adds in order, as in oneDNN."""
    random = np.random.default_rng(0)
    lengths = random.integers(0, longest + 1, _TRIED).astype(np.int32)
    # There are few different words, so that windows tie.
    words = random.standard_normal((8, dim)).astype(np.float32)[random.integers(0, 8, (_TRIED, longest))]
    words[np.arange(longest) >= lengths[:, None]] = 0
    kernel, upstream = (
        random.standard_normal(shape).astype(np.float32) for shape in ((width, dim, maps), (_TRIED, maps))
    )

    def with_lengths(way: Any) -> Any:
        return lambda words, kernel: way(words, tf.constant(lengths), kernel)

    return models.same_bits(with_lengths(_by_library), with_lengths(_by_sparse_products), (words, kernel), upstream)


_NO_WORD = r"[^\p{L}\p{N}_]+"
"""Python's `\\W` in the syntax of RE2."""
_BLANK = r"[\s\v\x1c-\x1f\x{85}\p{Z}]+"
"""Python's `\\s+` in the syntax of RE2."""
_MARK = r"([^\p{L}\p{N}_ ])"


def signatures(data: Text, module: FeatureModel, columns: Columns) -> Signatures:
    """The signature that takes texts, which it divides into words as the run did."""
    column = next(iter(columns.ids))

    def call(**given: Any) -> Any:
        found = words_of_texts(given["text"], data.max_length, data.token_separator, data.words, data.ngrams)
        return module.predict({column: found})

    function = tf.function(call, autograph=False)
    return {"serving_text": function.get_concrete_function(text=tf.TensorSpec([None], tf.string))}


def words_of_texts(
    texts: Any, max_length: int | None, separator: str | None = None, kind: Words = Words.LONG, ngrams: int = 1
) -> Any:
    """The words of texts in their order, in lower case, or their tokens; and behind them their n-grams.

    Args:
        texts: string [B], UTF-8.
        max_length: only the first words of a text; None: all.
        separator: between the tokens of texts that are split already; None: they are split into words.
        kind: of the words.
        ngrams: most words of an n-gram; 1: there are none.

    Returns:
        Ragged string [B, None].
    """
    if separator is None:
        texts = lowered(texts)
        if kind is Words.PUNCTUATION:
            texts = tf.strings.regex_replace(tf.strings.regex_replace(texts, _BLANK, " "), _MARK, r" \1 ")
        else:
            texts = tf.strings.regex_replace(texts, _NO_WORD, " ")
    found = tf.strings.split(texts, sep=separator)
    shortest = 2 if separator is None and kind is Words.LONG else 1
    long_enough = tf.strings.length(found.values, unit="UTF8_CHAR") >= shortest
    kept = tf.ragged.boolean_mask(found, found.with_values(long_enough))
    kept = kept if max_length is None else kept[:, :max_length]
    return kept if ngrams == 1 else tf.strings.ngrams(kept, tuple(range(1, ngrams + 1)), separator=" ")
