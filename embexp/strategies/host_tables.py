"""Tables in this machine's memory, looked up by the row engine: one copy of the rows, whatever the replicas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from embexp.initialization import filling
from embexp.initialization.plan import TablePlan
from embexp.specs.tables import Feature
from embexp.strategies.strategy import Embeddings
from embexp.tables.backend import EmbeddingBackend
from embexp.tables.row_engine import RowEngine


def embeddings(
    plans: Mapping[str, TablePlan],
    features: Mapping[str, Feature],
    counter: Any,
    total_steps: int,
    backend: Callable[[EmbeddingBackend], EmbeddingBackend],
) -> Embeddings:
    """Makes the tables in the graph that is current.

    Args:
        plans: of the tables, by name.
        features: what looks them up, by name.
        counter: int64 variable, the number of steps done.
        total_steps: length of the training, for schedules that end with it.
        backend: from the row engine to what a strategy's steps look rows up by.
    """
    tables = filling.make(plans)
    optimizers = {name: plan.optimizer for name, plan in plans.items() if plan.optimizer is not None}
    engine = RowEngine(tables, features, optimizers, step=counter, total_steps=total_steps)
    return Embeddings(tables, backend(engine))
