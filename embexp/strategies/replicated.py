"""The methods that all strategies of `tf.distribute` share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any

import tensorflow as tf


class Replicated(ABC):
    """A `Strategy` around a `tf.distribute.Strategy`, without the methods that depend on its devices."""

    @property
    @abstractmethod
    def strategy(self) -> Any:
        """The `tf.distribute.Strategy`."""

    def host(self) -> AbstractContextManager[Any]:
        """The processor."""
        context: AbstractContextManager[Any] = tf.device("/CPU:0")
        return context

    def scope(self) -> AbstractContextManager[Any]:
        """The scope of the `tf.distribute.Strategy`, which mirrors variables."""
        context: AbstractContextManager[Any] = self.strategy.scope()
        return context

    def joined(self, results: Any) -> Any:
        """The replicas' results as one tensor, in the batch's order."""
        return tf.concat(self.strategy.experimental_local_results(results), 0)

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """In a replica: the sums of tensors over all replicas."""
        return _reduced(tf.distribute.ReduceOp.SUM, gradients)

    def averaged(self, variables: Sequence[Any]) -> None:
        """In a replica: sets each variable to its mean over all replicas."""
        if variables:
            means = _reduced(tf.distribute.ReduceOp.MEAN, [tf.convert_to_tensor(each) for each in variables])
            for variable, mean in zip(variables, means, strict=True):
                variable.assign(mean)


def _reduced(operation: Any, values: Sequence[Any]) -> list[Any]:
    present = [value for value in values if value is not None]
    results = iter(tf.distribute.get_replica_context().all_reduce(operation, present) if present else ())
    return [None if value is None else next(results) for value in values]
