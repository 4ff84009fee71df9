"""`RunSpec`: the one description of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import Field

from embexp.specs.base import Spec, WholeNumber
from embexp.specs.data import Data
from embexp.specs.models import Model, Task
from embexp.specs.optimizers import DenseOptimizer, TableOptimizer
from embexp.specs.pretrained import NoPretrained, Pretrained
from embexp.specs.running import Output, Runtime, Strategy, Train
from embexp.specs.tables import Feature, Freeze, Init, Table

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$")]
"""Names of tables and features: letters, digits and underscores, a letter first (they become checkpoint keys)."""


class RunSpec(Spec):
    """Everything the user asked for. What only the data can tell is resolved by the scan."""

    name: str
    """Name of the experiment, for people."""
    task: Task
    seed: WholeNumber = 0
    data: Data
    tables: Annotated[dict[Name, Table], Field(min_length=1)]
    features: Annotated[dict[Name, Feature], Field(min_length=1)]
    model: Model
    optimizer: TableOptimizer
    dense_optimizer: DenseOptimizer
    pretrained: Pretrained = NoPretrained()
    init: Init = Init()
    freeze: Freeze = Freeze()
    strategy: Strategy = Strategy()
    runtime: Runtime = Runtime()
    train: Train
    output: Output = Output()

    def optimizer_of(self, table: str) -> TableOptimizer:
        """The table's own optimizer, or the top-level one."""
        return self.tables[table].optimizer or self.optimizer

    def pretrained_of(self, table: str) -> Pretrained:
        """The table's own source of values, or the top-level one."""
        return self.tables[table].pretrained or self.pretrained

    def pretrained_path(self, table: str) -> str:
        """Config path of what `pretrained_of` gives."""
        return f"tables.{table}.pretrained" if self.tables[table].pretrained is not None else "pretrained"

    @property
    def fixed_batch(self) -> bool:
        """Whether every batch must have the size of a training batch, as an `output_shape` names it."""
        return any(feature.output_shape is not None for feature in self.features.values())

    @property
    def evaluation_batch_size(self) -> int:
        """Examples at once when evaluating."""
        return self.train.batch_size if self.fixed_batch else self.train.evaluation_batch_size

    def column_of(self, feature: str) -> str:
        """The data column that a feature reads."""
        return self.features[feature].column or feature

    def features_of(self, table: str) -> Mapping[str, Feature]:
        """The features that are looked up in a table, in their order."""
        return {name: feature for name, feature in self.features.items() if feature.table == table}
