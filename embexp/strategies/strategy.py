"""What a run asks of its strategy: where variables live, how rows are looked up, how replicas share a batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from embexp.initialization.plan import TablePlan
from embexp.specs.tables import Feature
from embexp.tables.backend import EmbeddingBackend
from embexp.tables.row_engine import AnyTable
from embexp.tables.tpu_tables import TPUTable
from embexp.training.replication import Replication


@dataclass(frozen=True)
class Embeddings:
    """The tables of a run, made where a strategy keeps them, and what looks them up there.

    Attributes:
        tables: by name; those that are variables of this process are still to be filled (`filling.fill`).
        backend: looks their rows up and moves them, for the steps of the strategy.
        load: brings what was assigned to the tables to where steps look it up; to be called after any assignment.
        embedding: on a TPU, its `TPUEmbedding`.
    """

    tables: Mapping[str, AnyTable | TPUTable]
    backend: EmbeddingBackend
    load: Callable[[], object] = lambda: None
    embedding: Any = None


class Strategy(Replication, Protocol):
    """Where variables live, and how the replicas of a step share a batch.

    A batch is what an iterator over `dataset(...)` gives, `embexp.data.batches.Batch` or anything with its attributes.
    """

    @property
    def devices(self) -> tuple[str, ...]:
        """Where the replicas are, in words for people."""
        ...

    @property
    def notes(self) -> tuple[str, ...]:
        """What the user should know of these devices, for the run's warnings."""
        ...

    def active(self) -> AbstractContextManager[Any]:
        """The time in which the devices are there: all that is made on them, and every step, must be inside."""
        ...

    def host(self) -> AbstractContextManager[Any]:
        """In which rows and whatever no replica owns are made and used."""
        ...

    def scope(self) -> AbstractContextManager[Any]:
        """In which model and dense optimizer are made."""
        ...

    def counter_scope(self) -> AbstractContextManager[Any]:
        """In which the counter of steps is made, which learning rates of rows may be a function of."""
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
            plans: of the tables, by name.
            features: what looks them up, by name.
            inputs: `tf.TypeSpec` of each feature's ids in a whole batch, by feature.
            counter: int64 variable, the number of steps done.
            total_steps: length of the training, for schedules that end with it.

        Raises:
            RunError: the tables can't be made here.
        """
        ...

    def dataset(self, batches: Any) -> Any:
        """What to iterate over in place of a `tf.data.Dataset` of whole batches."""
        ...

    def labels(self, batch: Any) -> Any:
        """All labels of a batch, float32 [B]."""
        ...
