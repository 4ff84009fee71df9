"""One replica: this machine's processor, or one GPU beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp.initialization.plan import TablePlan
from embexp.specs.tables import Feature
from embexp.strategies import host_tables
from embexp.strategies.strategy import Embeddings
from embexp.training.replication import ReplicaBatch


@dataclass(frozen=True)
class OneDevice:
    """Rows in the machine's memory, the dense part on one device; a `Strategy`.

    It works in graphs of TensorFlow 1 as well.

    Attributes:
        device: of the dense part, in TensorFlow's words; None: whatever TensorFlow takes, with rows there too.
    """

    device: str | None = None

    @property
    def replicas(self) -> int:
        """See `Strategy`."""
        return 1

    @property
    def devices(self) -> tuple[str, ...]:
        """See `Strategy`."""
        return (self.device or "CPU:0",)

    @property
    def notes(self) -> tuple[str, ...]:
        """See `Strategy`."""
        return ()

    def active(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        return contextlib.nullcontext()

    def host(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        return contextlib.nullcontext() if self.device is None else tf.device("/CPU:0")

    def scope(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        return contextlib.nullcontext() if self.device is None else tf.device(self.device)

    def counter_scope(self) -> AbstractContextManager[Any]:
        """See `Strategy`."""
        return self.host()

    def embeddings(
        self,
        plans: Mapping[str, TablePlan],
        features: Mapping[str, Feature],
        inputs: Mapping[str, Any],
        counter: Any,
        total_steps: int,
    ) -> Embeddings:
        """Makes the tables in this machine's memory; see `Strategy.embeddings`."""
        return host_tables.embeddings(plans, features, counter, total_steps, self.backend)

    def dataset(self, batches: Any) -> Any:
        """See `Strategy`."""
        return batches

    def backend(self, rows: Any) -> Any:
        """The backend to be used here, around the one that holds the rows."""
        return rows if self.device is None else _OnHost(rows, self.host)

    def run(self, function: Callable[[ReplicaBatch], Any], batch: Any) -> Any:
        """See `Strategy`."""
        with self.scope():
            return function(ReplicaBatch(batch.dense, batch.labels))

    def total(self, results: Any) -> Any:
        """See `Strategy`."""
        return results

    def joined(self, results: Any) -> Any:
        """See `Strategy`."""
        return results

    def labels(self, batch: Any) -> Any:
        """See `Strategy`."""
        return batch.labels

    def summed(self, gradients: Sequence[Any]) -> list[Any]:
        """See `Strategy`."""
        return list(gradients)

    def averaged(self, variables: Sequence[Any]) -> None:
        """See `Strategy`."""
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
