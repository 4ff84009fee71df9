"""Weight decay on SparseCores, whose optimizers in `TPUEmbeddingV2` have none.

The step of SGD takes it in its gradient: w - d w - lr g = w - lr (g + (d / lr) w). The ids of a batch can't carry it,
because a row decays once in a step, whatever its occurrences, weights and combiners. So a further feature of the TPU
looks up each distinct row of the batch of all replicas, in a vector of its own in one of the replicas. Its activations
are these rows, and (d / lr) times them are its gradients, which the TPU adds to those of the other features.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.specs.optimizers import SGD
from embexp.specs.sparse_cores import DistinctRows


@dataclass(frozen=True, eq=False)
class SparseCoreDecay:
    """Weight decay of a device table.

    Attributes:
        table: name of the table, for errors.
        part: name of the device table.
        features: those of the TPU that look its rows up.
    """

    table: str
    part: str
    features: Sequence[str]
    optimizer: SGD
    vectors: DistinctRows

    @property
    def key(self) -> str:
        """The TPU's name for its feature: after the others, because TensorFlow's layout depends on the first one."""
        return f"~decay/{self.part}"

    def deal(self, ids: Sequence[Any]) -> list[Any]:
        """Deals the distinct ids of a step out over the SparseCores of all replicas, evenly.

        Args:
            ids: of rows of the device table, integers of any shapes, with repetitions; none where nothing is trained.

        Returns:
            By replica, ragged int32 ids with at most one in each vector.

        Raises:
            tf.errors.InvalidArgumentError: there are more distinct ids than vectors, see `inputs.translated_errors`.
        """
        distinct = tf.zeros([0], tf.int32)
        if ids:
            distinct = tf.unique(tf.concat([tf.cast(tf.reshape(each, [-1]), tf.int32) for each in ids], 0)).y
        rows = tf.size(distinct, tf.int64)
        with tf.control_dependencies([] if self.vectors.enough else [self._room_for(rows)]):
            # The places of n ids in v vectors are floor(0 v / n), floor(1 v / n), …
            ends = tf.constant(np.arange(self.vectors.room + 1))
            splits = (ends * rows + (self.vectors.room - 1)) // self.vectors.room
        count = self.vectors.count
        dealt = []
        for start in range(0, self.vectors.room, count):
            own = splits[start : start + count + 1]
            values = distinct[own[0] : own[-1]]
            dealt.append(tf.RaggedTensor.from_row_splits(values, own - own[0], validate=False))
        return dealt

    def gradients(self, rows: Any, learning_rate: Any) -> Any:
        """The gradients of the rows, float32 [vectors, dim], with which a step decays them."""
        by_rate = self.optimizer.multiply_weight_decay_factor_by_learning_rate
        factor = self.optimizer.weight_decay_factor
        return rows * (factor if by_rate else factor / learning_rate)

    def _room_for(self, rows: Any) -> Any:
        message = (
            f"table '{self.table}': a step looks up {{}} distinct rows, but SparseCores have room for the weight decay"
            f" of {self.vectors.room}; set strategy.max_ids_per_chip_per_sample to {{}} or more"
        )
        described = tf.strings.format(message, (rows, self.vectors.sufficient(rows)))
        return tf.raw_ops.Assert(condition=rows <= self.vectors.room, data=[described])
