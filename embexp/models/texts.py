"""Models of texts: sequences of word vectors whose padding must count for nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras

from embexp.models import layers


def bag_of_words(activations: Mapping[str, Any], *, dropout: float, outputs: int, output_bias: float, seed: int) -> Any:
    """A linear classifier of the mean word vector.

    Args:
        activations: symbolic tensors, [B, L, dim] for texts, whose words are averaged without the padding, and [B, n]
            for anything else, such as words that the table has combined already. The means are laid side by side in
            the order of their names.
        dropout: part of the means' numbers dropped while training.
        outputs: number of logits.
        output_bias: where their biases start.
        seed: the run's seed.

    Returns:
        Logits [B, outputs].
    """
    means = [
        MeanOfWords(name=f"mean.{name}")(activations[name]) if len(activations[name].shape) == 3 else activations[name]
        for name in sorted(activations)
    ]
    x = layers.side_by_side(means, name="bag.inputs")
    x = layers.dropped(x, dropout, seed=seed, name="bag.dropout")
    return layers.logits(x, outputs=outputs, bias=output_bias, seed=seed)


def text_cnn(
    activations: Mapping[str, Any],
    *,
    widths: Sequence[int],
    maps: int,
    dropout: float,
    max_norm: float | None,
    outputs: int,
    output_bias: float,
    seed: int,
) -> Any:
    """Kim: "Convolutional Neural Networks for Sentence Classification" (2014), §2.

    For each width h: feature maps ReLU(w · x[i:i+h] + b) of all windows of h words, and of each map the maximum over
    the text. As in the author's code, a text is padded with h - 1 zero vectors on both sides, so that there are
    windows that only begin or end in it, however short it is. A window without any word never is the maximum, so that
    a prediction does not depend on how far a batch is padded; a text without words gives maxima of 0.

    Args:
        activations: symbolic tensors, [B, L, dim] for texts; anything else, [B, n], goes beside the maxima. They are
            taken in the order of their names.
        widths: words of a window, one layer for each.
        maps: feature maps of each width.
        dropout: part of the maxima dropped while training.
        max_norm: bound of the L2 norm of each logit's weights; None for none.
        outputs: number of logits.
        output_bias: where their biases start.
        seed: the run's seed.

    Returns:
        Logits [B, outputs].
    """
    found = []
    for name in sorted(activations):
        x = activations[name]
        if len(x.shape) == 2:
            found.append(x)
            continue
        for width in widths:
            padded = keras.layers.ZeroPadding1D(width - 1, name=f"pad.{name}.{width}")(x)
            convolved = layers.windows(padded, width=width, maps=maps, seed=seed, name=f"windows.{name}.{width}")
            found.append(MaxOverText(width, name=f"max.{name}.{width}")([convolved, x]))
    x = layers.side_by_side(found, name="texts.inputs")
    x = layers.dropped(x, dropout, seed=seed, name="texts.dropout")
    return layers.logits(x, outputs=outputs, bias=output_bias, seed=seed, max_norm=max_norm)


def lengths(words: Any) -> Any:
    """Words of each text: [B, L, dim] -> int32 [B].

    A lookup pads a short text with vectors of zeros, so a text ends behind its last vector that is not all zeros.
    Such vectors inside a text, as of words that a pretrained file lacks with `missing: zeros`, are words like others.
    """
    places = keras.ops.arange(1, keras.ops.shape(words)[1] + 1, dtype="int32")
    spoken = keras.ops.cast(keras.ops.any(keras.ops.not_equal(words, 0.0), axis=-1), "int32")
    return keras.ops.max(spoken * places, axis=1)


class MeanOfWords(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The mean of a text's word vectors: [B, L, dim] -> [B, dim]; zeros for a text without words."""

    def call(self, words: Any) -> Any:
        """Averages over the words alone: what pads them adds nothing to the sum."""
        count = keras.ops.cast(keras.ops.maximum(lengths(words), 1), words.dtype)
        return keras.ops.sum(words, axis=1) / count[:, None]


class MaxOverText(keras.layers.Layer):  # type: ignore[misc]  # Keras is untyped
    """The maximum of each map over the windows that hold a word: [B, L + width - 1, maps], [B, L, dim] -> [B, maps].

    Maps are at least 0, so that one that is set to 0 is out of the running.
    """

    def __init__(self, width: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._width = width

    def call(self, inputs: list[Any]) -> Any:
        """Window i covers words i - width + 1 to i, so the last one with a word is number length + width - 2."""
        maps, words = inputs
        places = keras.ops.arange(keras.ops.shape(maps)[1], dtype="int32")
        length = lengths(words)[:, None]
        with_words = keras.ops.logical_and(places[None, :] < length + (self._width - 1), length > 0)
        return keras.ops.max(maps * keras.ops.cast(with_words, maps.dtype)[:, :, None], axis=1)
