"""Randomness of a replica's own.

Keras keeps the state of a layer's randomness in a variable, [seed, number of draws]. It is mirrored like any other, so
replicas would all draw the same: the same units would be dropped in each part of a batch, where one device drops units
independently in every example.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import tensorflow as tf

_APART = 506_952_115
"""Between the seeds of neighbouring replicas: 2^32 / golden ratio, modulo 2^31 - 2.

Keras takes seeds by that modulus. It is far from the small numbers that people choose as seeds of several layers, so
that no replica draws what another draws in another layer. It shares no factor with the modulus: as many replicas as you
like have seeds that differ.
"""


@contextlib.contextmanager
def own_draws(states: Sequence[Any], replicas: int) -> Iterator[None]:
    """In a replica: what is drawn within the block is a function of the states and of the replica's number.

    The seeds are moved for the block and moved back after it. So the states that last, and that checkpoints hold, are
    those of one device; and the first replica draws what one device draws.

    Args:
        states: int64 variables [2] of which each replica has a copy: the states of `keras.random.SeedGenerator`s.
        replicas: number of replicas; with one nothing is added to the graph.
    """
    if replicas == 1 or not states:
        yield
        return
    number = tf.distribute.get_replica_context().replica_id_in_sync_group
    moved = tf.stack([tf.cast(number, tf.int64) * _APART, tf.constant(0, tf.int64)])
    once = list({id(state): state for state in states}.values())
    for state in once:
        state.assign(tf.convert_to_tensor(state) + moved)
    yield
    for state in once:
        state.assign(tf.convert_to_tensor(state) - moved)
