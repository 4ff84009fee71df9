"""Evaluations, in which worker 0 predicts, and the others look their rows up, score their candidates and keep items.

So no worker needs more than its own rows and a block of others. Worker 0 tells the others of each batch before it
predicts that.

Queries of a graph go to all workers. Each looks up all of them, and counts how its own candidates stand, see
`one_vs_all.standings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.specs.data.graphs import CANDIDATES
from embexp.strategies.cluster.control import Leader


class Announced:
    """Batches, each of which the other workers hear of before its rows are looked up.

    Attributes:
        element_spec: of the batches.
    """

    def __init__(self, batches: Any, leader: Leader, *, ranked: bool) -> None:
        """Takes a dataset.

        Args:
            ranked: whether all workers get the batches, as each has some of the candidates.
        """
        self._batches, self._leader, self._ranked = batches, leader, ranked
        self.element_spec = batches.element_spec

    def __iter__(self) -> Iterator[Any]:
        for batch in self._batches:
            if self._ranked:
                flat = tf.nest.flatten(_sent(batch), expand_composites=True)
                self._leader.tell({"command": "rank"}, [np.asarray(each.numpy()) for each in flat])
            else:
                self._leader.tell({"command": "lookup"})
            yield batch


@dataclass(frozen=True)
class Told:
    """One batch of queries that worker 0 has announced.

    Attributes:
        element_spec: of batches of queries, the same as that of worker 0.
        arrays: what has come.
    """

    element_spec: Any
    arrays: Sequence[np.ndarray]

    def __iter__(self) -> Iterator[Any]:
        flat = [tf.constant(each) for each in self.arrays]
        batch = tf.nest.pack_sequence_as(_sent(self.element_spec), flat, expand_composites=True)
        candidates = tf.range(self.element_spec.ids[CANDIDATES].shape[1])[None]
        yield batch._replace(ids={**batch.ids, CANDIDATES: candidates})


def _sent(batch: Any) -> Any:
    """What of a batch of queries is sent: all but the candidates, which are all there are."""
    return batch._replace(ids={name: each for name, each in batch.ids.items() if name != CANDIDATES})
