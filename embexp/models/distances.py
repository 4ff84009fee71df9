"""Distances by which models of knowledge graphs score: from differences [..., dim] to [...]."""

from __future__ import annotations

from typing import Any

import keras

_TINY = 1e-24
"""Least squared distance: the square root has no derivative at 0."""


def absolute(differences: Any) -> Any:
    """The sum of absolute differences."""
    return keras.ops.sum(keras.ops.abs(differences), axis=-1)


def euclidean(differences: Any) -> Any:
    """The root of the sum of squared differences."""
    squared = keras.ops.sum(keras.ops.square(differences), axis=-1)
    return keras.ops.sqrt(keras.ops.maximum(squared, _TINY))


def moduli(differences: Any) -> Any:
    """The sum of the moduli of complex differences, whose real parts come first."""
    real, imaginary = keras.ops.split(keras.ops.square(differences), 2, axis=-1)
    return keras.ops.sum(keras.ops.sqrt(keras.ops.maximum(real + imaginary, _TINY)), axis=-1)
