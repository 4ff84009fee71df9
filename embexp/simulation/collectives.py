"""Collective operations of a simulated TPU's replicas, behind `all_reduce` and `all_gather`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from embexp.simulation import replicas
from embexp.tables.bounds import without_autograph


@without_autograph
def cross_replica_sum(x: Any, group_assignment: Any = None, name: str | None = None) -> Any:
    """Serves `CrossReplicaSum`: the sum of x over all replicas, in their order.

    Its gradient is the sum of the gradients over all replicas, as on a TPU.
    """
    _one_group(group_assignment)

    def summed(x: Any) -> Any:
        total = replicas.exchange("a sum over replicas", _sums, x)
        return tf.identity(total), cross_replica_sum

    return tf.custom_gradient(summed)(tf.convert_to_tensor(x))


@without_autograph
def all_to_all(
    x: Any,
    concat_dimension: int,
    split_dimension: int,
    split_count: int,
    group_assignment: Any = None,
    name: str | None = None,
) -> Any:
    """Serves `AllToAll`: replica r gets part r of each replica's x, in their order. It has no gradient."""
    _one_group(group_assignment)

    def exchanged(values: list[Any]) -> Sequence[Any]:
        parts = [tf.split(one, split_count, axis=split_dimension) for one in values]
        return [tf.concat(mine, axis=concat_dimension) for mine in zip(*parts, strict=True)]

    return replicas.exchange("an exchange between replicas", exchanged, x)


def _sums(values: list[Any]) -> list[Any]:
    return [tf.add_n(values)] * len(values)


def _one_group(group_assignment: Any) -> None:
    if group_assignment is not None and len(group_assignment) > 1:
        raise NotImplementedError("the simulated TPU does not support groups of replicas")
