"""Models of texts: sequences of word vectors, whose padding must have no effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from embexp.models import layers


def bag_of_words(activations: Mapping[str, Any], *, dropout: float, seed: int) -> Any:
    """A linear classifier of the mean word vector.

    Args:
        activations: symbolic tensors, [B, L, dim] for texts, whose words are averaged without the padding, and [B, n]
            for anything else, such as words that the table has already combined. The means are concatenated in the
            order of their names.
        dropout: fraction of the means' elements that is dropped in training.
        seed: the run's seed.

    Returns:
        Input of the linear layer that gives the logits, [B, n].
    """
    means = [
        MeanOfWords(name=f"mean.{name}")(activations[name]) if len(activations[name].shape) == 3 else activations[name]
        for name in sorted(activations)
    ]
    x = layers.concatenated(means, name="bag.inputs")
    return layers.dropped(x, dropout, seed=seed, name="bag.dropout")


def text_cnn(
    activations: Mapping[str, Any],
    *,
    widths: Sequence[int],
    maps: int,
    dropout: float,
    seed: int,
) -> Any:
    """Kim: "Convolutional Neural Networks for Sentence Classification" (2014), §2.

    For each width h: feature maps ReLU(w · x[i:i+h] + b) of all windows of h words, and of each map the maximum over
    the text. As in the author's code, a text is padded with h - 1 zero vectors on both sides, so that even the
    shortest text has windows. A window without any word is never the maximum, so that a prediction does not depend on
    the padding of its batch; the maxima of a text without words are 0.

    Args:
        activations: symbolic tensors, [B, L, dim] for texts; others, [B, n], are concatenated with the maxima, in the
            order of their names.
        widths: words per window, one layer for each.
        maps: feature maps of each width.
        dropout: fraction of the maxima that is dropped in training.
        seed: the run's seed.

    Returns:
        Input of the linear layer that gives the logits, [B, n].
    """
    inputs = []
    for name in sorted(activations):
        x = activations[name]
        if len(x.shape) == 2:
            inputs.append(x)
            continue
        for width in widths:
            padded = keras.layers.ZeroPadding1D(width - 1, name=f"pad.{name}.{width}")(x)
            convolved = layers.windows(padded, width=width, maps=maps, seed=seed, name=f"windows.{name}.{width}")
            inputs.append(MaxOverText(width, name=f"max.{name}.{width}")([convolved, x]))
    x = layers.concatenated(inputs, name="texts.inputs")
    return layers.dropped(x, dropout, seed=seed, name="texts.dropout")


def lengths(words: Any) -> Any:
    """Number of words of each text: [B, L, dim] -> int32 [B].

    A lookup pads a short text with vectors of zeros, so a text ends with its last vector that is not all zeros. Zero
    vectors before that, such as of words that a pretrained file lacks with `missing: zeros`, count as words.
    """
    positions = keras.ops.arange(1, keras.ops.shape(words)[1] + 1, dtype="int32")
    nonzero = keras.ops.cast(keras.ops.any(keras.ops.not_equal(words, 0.0), axis=-1), "int32")
    return keras.ops.max(nonzero * positions, axis=1)


class MeanOfWords(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The mean of a text's word vectors: [B, L, dim] -> [B, dim]; zeros for a text without words."""

    def call(self, words: Any) -> Any:
        """Divides the sum, to which padding adds nothing, by the number of words."""
        count = keras.ops.cast(keras.ops.maximum(lengths(words), 1), words.dtype)
        return keras.ops.sum(words, axis=1) / count[:, None]


class MaxOverText(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The maximum of each map over the windows with a word: [B, L + width - 1, maps], [B, L, dim] -> [B, maps].

    Maps are at least 0, so windows without words are masked by setting them to 0.
    """

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._width = width

    def call(self, inputs: list[Any]) -> Any:
        """Window i covers words i - width + 1 to i, so the last one with a word is number length + width - 2."""
        maps, words = inputs
        windows = keras.ops.arange(keras.ops.shape(maps)[1], dtype="int32")
        length = lengths(words)[:, None]
        with_words = keras.ops.logical_and(windows[None, :] < length + (self._width - 1), length > 0)
        return keras.ops.max(maps * keras.ops.cast(with_words, maps.dtype)[:, :, None], axis=1)
