"""This machine's processor, for tables that a TPU has trained: TensorFlow's own `TPUEmbeddingForServing`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from embexp.initialization import filling
from embexp.initialization.plan import TablePlan
from embexp.specs.tables import Feature
from embexp.strategies.one_device import OneDevice
from embexp.strategies.strategy import Embeddings
from embexp.tables.serving import ServingBackend


@dataclass(frozen=True)
class Serving(OneDevice):
    """One device whose tables are looked up as a TPU looks them up, and not trained."""

    def embeddings(
        self,
        plans: Mapping[str, TablePlan],
        features: Mapping[str, Feature],
        inputs: Mapping[str, Any],
        counter: Any,
        total_steps: int,
    ) -> Embeddings:
        """Makes the tables, with their initial values until a checkpoint is restored; see `Strategy.embeddings`."""
        tables = filling.make_on_tpu(plans, hosts=1)
        return Embeddings(tables, ServingBackend(tables, features))
