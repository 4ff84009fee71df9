"""What a step asks of the place that it runs in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True)
class Part:
    """What a replica gets of a batch, beside the activations that it asks its backend for.

    Attributes:
        dense: float32 [b, number of dense columns].
        labels: float32 [b].
        share: b / the batch's examples, a float32 scalar or a Python float; None: the replica has all of them. A loss
            is to be multiplied by it, so that the sum over replicas is the mean over the batch.
    """

    dense: Any
    labels: Any
    share: Any = None


class Placement(Protocol):
    """Where variables live, and how the replicas of a step share a batch.

    A batch is what an iterator over `dataset(...)` gives, `embexp.data.batches.Batch` or anything with its attributes.
    `run` calls a function in every replica, `summed` and `averaged` are for use in there, the rest belongs to the host.
    """

    @property
    def replicas(self) -> int:
        """Number of replicas."""
        ...

    @property
    def devices(self) -> tuple[str, ...]:
        """Where the replicas are, in words for people."""
        ...

    def host(self) -> AbstractContextManager[Any]:
        """In which rows, counters and whatever no replica owns are made and used."""
        ...

    def scope(self) -> AbstractContextManager[Any]:
        """In which model and dense optimizer are made."""
        ...

    def dataset(self, batches: Any) -> Any:
        """What to iterate over in place of a `tf.data.Dataset` of whole batches."""
        ...

    def backend(self, rows: Any) -> Any:
        """The `EmbeddingBackend` to be used here, around the one of a single device that holds the rows."""
        ...

    def run(self, function: Callable[[Part], Any], batch: Any) -> Any:
        """Calls `function` in every replica with its part of a batch; what it returns stays there."""
        ...

    def total(self, results: Any) -> Any:
        """The sum of what replicas returned, a scalar from each."""
        ...

    def joined(self, results: Any) -> Any:
        """What replicas returned, a tensor [b, ...] from each, as one [B, ...] in the batch's order."""
        ...

    def labels(self, batch: Any) -> Any:
        """All labels of a batch, float32 [B]."""
        ...

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """In a replica: the sums of tensors over all replicas."""
        ...

    def averaged(self, variables: Sequence[Any]) -> None:
        """In a replica: makes variables of which each replica has its own value, such as means of batches, agree."""
        ...
