"""One replica: this machine's processor, or one GPU beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.strategies.strategy import Part


@dataclass(frozen=True)
class OneDevice:
    """Rows in the machine's memory, the dense part on one device; a `Placement`.

    It works in graphs of TensorFlow 1 as well.

    Attributes:
        device: of the dense part, in TensorFlow's words; None: whatever TensorFlow takes, with rows there too.
    """

    device: str | None = None

    @property
    def replicas(self) -> int:
        """See `Placement`."""
        return 1

    @property
    def devices(self) -> tuple[str, ...]:
        """See `Placement`."""
        return (self.device or "CPU:0",)

    def host(self) -> AbstractContextManager[Any]:
        """See `Placement`."""
        return contextlib.nullcontext() if self.device is None else tf.device("/CPU:0")

    def scope(self) -> AbstractContextManager[Any]:
        """See `Placement`."""
        return contextlib.nullcontext() if self.device is None else tf.device(self.device)

    def dataset(self, batches: Any) -> Any:
        """See `Placement`."""
        return batches

    def backend(self, rows: Any) -> Any:
        """See `Placement`."""
        return rows if self.device is None else _OnHost(rows, self.host)

    def run(self, function: Callable[[Part], Any], batch: Any) -> Any:
        """See `Placement`."""
        with self.scope():
            return function(Part(batch.dense, batch.labels))

    def total(self, results: Any) -> Any:
        """See `Placement`."""
        return results

    def joined(self, results: Any) -> Any:
        """See `Placement`."""
        return results

    def labels(self, batch: Any) -> Any:
        """See `Placement`."""
        return batch.labels

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """See `Placement`."""
        return list(gradients)

    def averaged(self, variables: Sequence[Any]) -> None:
        """See `Placement`."""
        return  # not an empty body, which AutoGraph can't read


@dataclass(frozen=True)
class _OnHost:
    """A backend whose operations all run where the rows are."""

    rows: Any
    host: Callable[[], AbstractContextManager[Any]]

    def enqueue(self, features: Any, *, training: bool) -> None:
        with self.host():
            self.rows.enqueue(features, training=training)

    def activations(self) -> Any:
        with self.host():
            return self.rows.activations()

    def apply_gradients(self, gradients: Any) -> None:
        with self.host():
            self.rows.apply_gradients(gradients)
