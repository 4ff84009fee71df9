"""How the replicas of a step share a batch: the part of a strategy that a step uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol


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
