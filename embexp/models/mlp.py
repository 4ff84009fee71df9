"""A multi-layer perceptron of all inputs, concatenated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from embexp.models import layers
from embexp.specs.models import Activation


def mlp(
    activations: Mapping[str, Any],
    *,
    widths: Sequence[int],
    activation: Activation,
    dropout: float,
    seed: int,
) -> Any:
    """A multi-layer perceptron of all inputs.

    Args:
        activations: symbolic tensors [B, dim] or [B, L, dim], the latter flattened. They are concatenated in the
            order of their names, so that the order of the config's features does not matter.
        widths: units of the hidden layers.
        activation: their non-linearity.
        dropout: fraction of the hidden units that is dropped in training.
        seed: the run's seed.

    Returns:
        Input of the linear layer that gives the logits, [B, n].
    """
    x = layers.concatenated([activations[name] for name in sorted(activations)], name="mlp.inputs")
    return layers.hidden(x, widths, activation=activation, dropout=dropout, seed=seed, name="hidden")
