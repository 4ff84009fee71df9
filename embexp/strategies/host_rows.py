"""What strategies share whose tables live in this machine's memory."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from contextlib import AbstractContextManager
from typing import Any

from embexp.initialization import filling
from embexp.initialization.plan import TablePlan
from embexp.specs.tables import Feature
from embexp.strategies.strategy import Embeddings
from embexp.tables.row_engine import EmbeddingBackend, RowEngine


class HostRows(ABC):
    """A `Strategy` with one copy of the rows in this machine's memory, which the row engine looks up.

    It lacks the methods that depend on the devices of the dense part.
    """

    @abstractmethod
    def host(self) -> AbstractContextManager[Any]:
        """The processor, which holds the rows."""

    @abstractmethod
    def backend(self, rows: Any) -> EmbeddingBackend:
        """The backend of a step, around the row engine."""

    def active(self) -> AbstractContextManager[Any]:
        """A context without effect: the devices are always there."""
        return contextlib.nullcontext()

    def counter_scope(self) -> AbstractContextManager[Any]:
        """The processor, as for the rows."""
        return self.host()

    def embeddings(
        self,
        plans: Mapping[str, TablePlan],
        features: Mapping[str, Feature],
        inputs: Mapping[str, Any],
        counter: Any,
        total_steps: int,
    ) -> Embeddings:
        """The tables in this machine's memory, in the current graph."""
        tables = filling.make(plans)
        optimizers = {name: plan.optimizer for name, plan in plans.items() if plan.optimizer is not None}
        engine = RowEngine(tables, features, optimizers, step=counter, total_steps=total_steps)
        return Embeddings(tables, self.backend(engine))

    def dataset(self, batches: Any) -> Any:
        """The same batches: each is whole."""
        return batches

    def labels(self, batch: Any) -> Any:
        """All labels of a batch, float32 [B]."""
        return batch.labels
