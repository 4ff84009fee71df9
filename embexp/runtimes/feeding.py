"""Batches of an eager dataset, fed into a graph of TensorFlow 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf


class Feeds:
    """Placeholders for a batch, ragged parts in their components, made in the graph that is current.

    Attributes:
        batch: the batch as the graph sees it, of the structure of the dataset's elements.
    """

    def __init__(self, element_spec: Any) -> None:
        """Makes a placeholder for each component of what a dataset with this `element_spec` gives."""
        parts = tf.nest.flatten(element_spec, expand_composites=True)
        self._placeholders = [tf.compat.v1.placeholder(part.dtype, part.shape) for part in parts]
        self.batch = tf.nest.pack_sequence_as(element_spec, self._placeholders, expand_composites=True)

    def of(self, values: list[np.ndarray]) -> dict[Any, np.ndarray]:
        """What to feed for a batch, given its `components`."""
        return dict(zip(self._placeholders, values, strict=True))


def components(batch: Any) -> list[np.ndarray]:
    """The arrays that an eager batch consists of; they share its memory."""
    return [part.numpy() for part in tf.nest.flatten(batch, expand_composites=True)]
