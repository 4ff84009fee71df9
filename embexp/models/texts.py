"""Models of texts: sequences of word vectors, whose padding must have no effect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras

from embexp.models import layers
from embexp.models.layers import Head
from embexp.specs.models import BagOfWords, TextCNN


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
    x = layers.concatenated(means, name="bag.inputs")
    return layers.logits(layers.dropped(x, model.dropout, seed=head.seed, name="bag.dropout"), head)


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
            found = layers.maxima(
                x, count, width=width, maps=model.maps, seed=head.seed, name=f"windows.{name}.{width}"
            )
            inputs.append(keras.layers.ReLU(name=f"relu.{name}.{width}")(found))
    x = layers.concatenated(inputs, name="texts.inputs")
    x = layers.dropped(x, model.dropout, seed=head.seed, name="texts.dropout")
    return layers.logits(x, head, max_norm=model.max_norm)


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
