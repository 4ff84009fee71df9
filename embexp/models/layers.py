"""The Keras layers that the models share.

Every layer's name has a dot, so that none clashes with an input, which has its feature's name. Initial values are a
pure function of the run's seed and the layer's name, independent of the order of creation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from embexp.models.windows import MaximumOverWindows
from embexp.specs.models import Activation
from embexp.system import digests


def hidden(x: Any, widths: Sequence[int], *, activation: Activation, dropout: float, seed: int, name: str) -> Any:
    """Fully connected layers, each followed by its non-linearity and dropout.

    Args:
        x: symbolic tensor [B, n].
        widths: units of each layer.
        activation: the non-linearity.
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


def logits(x: Any, *, outputs: int, bias: float, seed: int, max_norm: float | None = None) -> Any:
    """A linear layer [B, n] -> [B, outputs] with the initial biases `bias`.

    With `max_norm`, the n weights of each output are rescaled to that L2 norm after a step in which they exceed it.
    """
    name = "head.logit"
    return keras.layers.Dense(
        outputs,
        kernel_initializer=_kernel(seed, name),
        kernel_constraint=None if max_norm is None else keras.constraints.MaxNorm(max_norm, axis=0),
        bias_initializer=keras.initializers.Constant(bias),
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
        maps: feature maps.
        seed: the run's seed.
        name: of the layer.

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
