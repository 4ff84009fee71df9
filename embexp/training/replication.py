"""How the replicas of a step share a batch: what a step asks of the strategy that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class ReplicaBatch:
    """A replica's share of a batch, beside the activations that it asks its backend for.

    Attributes:
        dense: float32 [b, number of dense columns].
        labels: float32 [b].
        share: b / the batch's examples, a float32 scalar or a Python float; None: the replica has all of them. A loss
            is to be multiplied by it, so that the sum over replicas is the mean over the batch.
    """

    dense: Any
    labels: Any
    share: Any = None


class Replication(Protocol):
    """The replicas of a step: one, or several that share each batch.

    `run` calls a function in every replica, `summed` and `averaged` are for use in there, the rest belongs to the host.
    """

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        ...

    def run(self, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """Calls `function` in every replica with its share of a batch; what it returns stays there."""
        ...

    def total(self, results: Any) -> Any:
        """The sum of what replicas returned, a scalar from each."""
        ...

    def joined(self, results: Any) -> Any:
        """What replicas returned, a tensor [b, ...] from each, as one [B, ...] in the batch's order."""
        ...

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """In a replica: the sums of tensors over all replicas."""
        ...

    def averaged(self, variables: Sequence[Any]) -> None:
        """In a replica: makes variables of which each replica has its own value, such as means of batches, agree."""
        ...
