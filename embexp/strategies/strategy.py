"""The protocol of strategies: where variables live, how rows are looked up, how replicas share a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from embexp.initialization.plan import TablePlan
from embexp.specs.tables import Feature
from embexp.tables.row_engine import AnyTable, EmbeddingBackend
from embexp.tables.tpu_tables import TPUTable
from embexp.training.replication import Replication


@dataclass(frozen=True)
class Embeddings:
    """The tables of a run, made by its strategy, and the backend that looks them up.

    Attributes:
        tables: by name; `filling.fill` then fills those that are variables of this process.
        backend: looks their rows up and moves them, for the steps of the strategy.
        load: copies the tables to where steps look them up; to be called after any assignment.
        embedding: on a TPU, its `TPUEmbedding`.
    """

    tables: Mapping[str, AnyTable | TPUTable]
    backend: EmbeddingBackend
    load: Callable[[], object] = lambda: None
    embedding: Any = None


class Strategy(Replication, Protocol):
    """Where variables live, and how the replicas of a step share a batch.

    A batch is an element of `dataset(...)`: an `embexp.data.batches.Batch`, or anything with its attributes.
    """

    @property
    def devices(self) -> tuple[str, ...]:
        """Names of the replicas' devices, for people."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """Warnings about these devices."""
        ...

    def active(self) -> AbstractContextManager[Any]:
        """A context in which the devices exist; variables are made and steps run only inside."""
        ...

    def host(self) -> AbstractContextManager[Any]:
        """A scope for rows, and for all else that no replica owns."""
        ...

    def scope(self) -> AbstractContextManager[Any]:
        """A scope in which the model and the dense optimizer are made."""
        ...

    def counter_scope(self) -> AbstractContextManager[Any]:
        """A scope in which the step counter is made, which learning rates of rows may read."""
        ...

    def embeddings(
        self,
        plans: Mapping[str, TablePlan],
        features: Mapping[str, Feature],
        inputs: Mapping[str, Any],
        counter: Any,
        total_steps: int,
    ) -> Embeddings:
        """Makes the tables, within `host`.

        Args:
            plans: tables to make, by name.
            features: features that look them up, by name.
            inputs: `tf.TypeSpec` of each feature's ids in a whole batch, by feature.
            counter: int64 variable, the number of steps done.
            total_steps: length of the training, for schedules that end with it.

        Raises:
            RunError: this strategy can't make the tables.
        """
        ...

    def dataset(self, batches: Any) -> Any:
        """What steps iterate over, from a `tf.data.Dataset` of whole batches."""
        ...

    def labels(self, batch: Any) -> Any:
        """All labels of a batch, float32 [B]."""
        ...
