"""The protocol between a training loop and the tables."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class EmbeddingBackend(Protocol):
    """Looks features up and updates their rows, with the calls of TPUEmbedding's mid-level API.

    A step is one `enqueue`, then one `activations`, then, in training, one `apply_gradients`; each is called once while
    the step is traced. `enqueue` runs on the host, the other two on the replica. The backend records nothing on a
    gradient tape: the caller computes d loss / d activations.
    """

    def enqueue(self, features: Mapping[str, Any], *, training: bool) -> None:
        """Takes the step's ids.

        Args:
            features: for every feature name its ids, or a pair of ids and weights: each a `tf.Tensor`,
                `tf.SparseTensor` or `tf.RaggedTensor`; ids int32 or int64, weights floating-point.
            training: whether `apply_gradients` will follow.
        """
        ...

    def activations(self) -> dict[str, Any]:
        """For every feature name its float32 activations, shape `[..., dim]`."""
        ...

    def rows(self, feature: str, start: int, stop: int) -> Any:
        """Rows [start, stop) of a feature's table, float32 [stop - start, dim], apart from any step.

        Only backends whose rows are in this machine's memory have them.
        """
        ...

    def apply_gradients(self, gradients: Mapping[str, Any]) -> None:
        """Updates the rows that the step looked up.

        Args:
            gradients: for every feature name d loss / d activations, float32, of the activations' shape;
                None counts as zero.
        """
        ...
