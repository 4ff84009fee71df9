"""A different random seed for each replica.

Keras keeps the state of a layer's randomness in a variable, [seed, number of draws], which is mirrored like any other.
So all replicas would draw the same, and dropout would drop the same units in each replica's examples.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

_STRIDE = 506_952_115
"""Distance between the seeds of neighbouring replicas: 2^32 / golden ratio, modulo 2^31 - 2.

Keras takes seeds by that modulus. The distance is far from the small numbers that people choose as seeds of several
layers, so no replica draws what another draws in another layer. It shares no factor with the modulus, so the seeds of
any number of replicas differ.
"""


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
