"""The column `candidates` of a knowledge graph's queries: entities, one of them the answer. No file holds it.

| | candidates | label |
|---|---|---|
| all entities (1-vs-all; all that is evaluated) | int32 [1, C], the same for every query | row of the answer |
| drawn | int32 [B, 1 + k]: the answer, then k others | 0 |

What is drawn is a pure function of the seed and the number of the step, so that a training can go on anywhere.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from embexp.data.columns import Columns
from embexp.specs.data import CANDIDATES
from embexp.system import digests

if TYPE_CHECKING:
    import tensorflow as tf


@dataclass(frozen=True)
class Candidates:
    """How the column is made.

    Attributes:
        entities: how many there are, at least 2.
        negatives: so many are drawn for each training query; None: all entities are candidates.
        seed: of the run.
    """

    entities: int
    negatives: int | None
    seed: int

    def for_training(self, batches: tf.data.Dataset, start_step: int) -> tf.data.Dataset:
        """Adds the column to the batches of a training that begins with `start_step`."""
        if self.negatives is None:
            return batches.map(self.for_all)
        numbered = batches.enumerate(start_step)
        return numbered.map(self._drawn)

    def for_all(self, batch: Any) -> Any:
        """Adds all entities to a batch."""
        import tensorflow as tf  # not above: a run is prepared without it

        return batch._replace(ids={**batch.ids, CANDIDATES: tf.range(self.entities, dtype=tf.int32)[None]})

    def _drawn(self, step: Any, batch: Any) -> Any:
        import tensorflow as tf

        answers = tf.cast(batch.labels, tf.int32)[:, None]
        high, low = digests.seed_of(self.seed, "negatives")
        seed = tf.stack([tf.constant((high << 32) + low, tf.int64), step])
        shape = tf.concat([tf.shape(batch.labels), [self.negatives]], 0)
        # One fewer than there are, and those from the answer on moved up by one: uniform on all others.
        drawn = tf.random.stateless_uniform(shape, seed, 0, self.entities - 1, tf.int32)
        drawn += tf.cast(drawn >= answers, tf.int32)
        drawn = tf.ensure_shape(drawn, [batch.labels.shape[0], self.negatives])
        ids = {**batch.ids, CANDIDATES: tf.concat([answers, drawn], 1)}
        return batch._replace(ids=ids, labels=tf.zeros_like(batch.labels))


def stored(columns: Columns) -> Columns:
    """The columns without the one that is made."""
    return replace(columns, ids={name: table for name, table in columns.ids.items() if name != CANDIDATES})
