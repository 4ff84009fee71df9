"""The parts of an experiment put together: tables, features, dense model, step, runtime, checkpoint.

A run builds it to train, a finished run builds it again to evaluate and to predict.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from embexp import digests
from embexp.data.columns import Columns
from embexp.models import build as models
from embexp.models import dense_optimizer, losses
from embexp.runtimes.function import FunctionRuntime
from embexp.specs.data import Clicks
from embexp.specs.run import RunSpec
from embexp.tables import schedules
from embexp.tables.checkpointing import TablesCheckpoint
from embexp.tables.row_engine import RowEngine
from embexp.tables.table import EmbeddingTable
from embexp.training.step import Input, Step


@dataclass(frozen=True)
class Assembly:
    """What trains: all variables exist, table rows are not filled yet."""

    tables: Mapping[str, EmbeddingTable]
    model: Any
    step: Step
    runtime: FunctionRuntime
    checkpoint: Any

    @property
    def steps_done(self) -> int:
        """The value of the step counter."""
        return int(self.step.counter.numpy())
