"""How the replicas of a step share a batch, and the random seed of each: the part of a strategy that a step uses.

A different random seed for each replica. Keras keeps the state of a layer's randomness in a variable, [seed, number of
draws], which is mirrored like any other. So all replicas would draw the same, and dropout would drop the same units in
each replica's examples.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import tensorflow as tf

_STRIDE = 506_952_115
"""Distance between the seeds of neighbouring replicas: 2^32 / golden ratio, modulo 2^31 - 2.

Keras takes seeds by that modulus. The distance is far from the small numbers that people choose as seeds of several
layers, so no replica draws what another draws in another layer. It shares no factor with the modulus, so the seeds of
any number of replicas differ.
"""


@dataclass(frozen=True)
class ReplicaBatch:
    """A replica's share of a batch, but for the activations, which come from its backend.

    Attributes:
        dense: float32 [b, number of dense columns].
        labels: float32 [b].
        share: b / the batch's examples, a float32 scalar or a Python float; None: the replica has all of them. The step
            multiplies the loss by it, so that the sum over replicas is the mean over the batch.
        known: ragged integers [b, None], all known answers of each query: in an evaluation those that ranks leave
            aside, in training (KvsAll) all positives. None: the batch has none.
    """

    dense: Any
    labels: Any
    share: Any = None
    known: Any = None


class Replication(Protocol):
    """The replicas of a step: one, or several that share each batch.

    `run` calls a function in every replica. That function may call `summed` and `averaged`; all else is for the host.
    """

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        ...

    def run(self, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """Calls `function` in every replica with its share of a batch, and returns the results by replica."""
        ...

    def total(self, results: Any) -> Any:
        """The sum of the replicas' results, a scalar from each."""
        ...

    def joined(self, results: Any) -> Any:
        """The replicas' results, a tensor [b, ...] from each, as one [B, ...] in the batch's order."""
        ...

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """In a replica: the sums of tensors over all replicas."""
        ...

    def averaged(self, variables: Sequence[Any]) -> None:
        """In a replica: sets each variable, such as a running mean, to its mean over all replicas."""
        ...


@contextlib.contextmanager
def replica_seeds(states: Sequence[Any], replicas: int) -> Iterator[None]:
    """In a replica: random numbers within the block depend on the states and on the replica's number.

    The seeds change for the block only. So the states in checkpoints are those of one device, and the first replica
    draws what one device draws.

    Args:
        states: int64 variables [2] of which each replica has a copy: the states of `keras.random.SeedGenerator`s.
        replicas: number of replicas; with one nothing is added to the graph.
    """
    if replicas == 1 or not states:
        yield
        return
    number = tf.distribute.get_replica_context().replica_id_in_sync_group
    offset = tf.stack([tf.cast(number, tf.int64) * _STRIDE, tf.constant(0, tf.int64)])
    distinct = list({id(state): state for state in states}.values())
    for state in distinct:
        state.assign(tf.convert_to_tensor(state) + offset)
    yield
    for state in distinct:
        state.assign(tf.convert_to_tensor(state) - offset)
