"""What the replicas of any strategy of `tf.distribute` do alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf


class Replicated(ABC):
    """The part of a `Strategy` that a `tf.distribute.Strategy` does by itself."""

    @property
    @abstractmethod
    def strategy(self) -> Any:
        """The `tf.distribute.Strategy`."""

    def host(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        context: AbstractContextManager[Any] = tf.device("/CPU:0")
        return context

    def scope(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        context: AbstractContextManager[Any] = self.strategy.scope()
        return context

    def joined(self, results: Any) -> Any:
        """See `Strategy`."""
        return tf.concat(self.strategy.experimental_local_results(results), 0)

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """See `Strategy`."""
        return _reduced(tf.distribute.ReduceOp.SUM, gradients)

    def averaged(self, variables: Sequence[Any]) -> None:
        """See `Strategy`."""
        if variables:
            means = _reduced(tf.distribute.ReduceOp.MEAN, [tf.convert_to_tensor(each) for each in variables])
            for variable, mean in zip(variables, means, strict=True):
                variable.assign(mean)


def _reduced(operation: Any, values: Sequence[Any]) -> list[Any]:
    there = [value for value in values if value is not None]
    found = iter(tf.distribute.get_replica_context().all_reduce(operation, there) if there else ())
    return [None if value is None else next(found) for value in values]
