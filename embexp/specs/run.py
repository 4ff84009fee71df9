"""`RunSpec`: the one description of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated

from pydantic import Field

from embexp.specs.base import Spec, WholeNumber
from embexp.specs.data import Data
from embexp.specs.inits import Assign, Init, MemoryMap
from embexp.specs.models import Model, Task
from embexp.specs.optimizers import DenseOptimizer, TableOptimizer
from embexp.specs.pretrained import Checkpoint, NoPretrained, Pretrained
from embexp.specs.running import Output, Runtime, Train
from embexp.specs.strategies import CPU, Strategy
from embexp.specs.studies import NoStudy, Study
from embexp.specs.tables import Feature, Freeze, FreezeTable, NoFreeze, Storage, Table

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
    init: Init = Assign()
    freeze: Freeze = NoFreeze()
    strategy: Strategy = CPU()
    runtime: Runtime = Runtime()
    train: Train
    output: Output = Output()
    study: Study = NoStudy()

    def optimizer_of(self, table: str) -> TableOptimizer:
        """The table's own optimizer, or the top-level one."""
        return self.tables[table].optimizer or self.optimizer

    def pretrained_of(self, table: str) -> Pretrained:
        """The table's own source of values, or the top-level one."""
        return self.tables[table].pretrained or self.pretrained

    def freeze_of(self, table: str) -> Freeze:
        """The table's own policy, or the top-level one."""
        return self.tables[table].freeze or self.freeze

    def init_of(self, table: str) -> Init:
        """How the table is filled: its own way in, or the top-level one.

        A top-level `memory_map` has no effect on a table that is not both frozen, in part at least, and pretrained, or
        that asks for another storage: it is assigned.
        """
        settings = self.tables[table]
        if settings.init is not None:
            return settings.init
        if isinstance(self.init, MemoryMap) and not (
            self.mappable(table) and settings.storage in (Storage.AUTO, Storage.MEMORY_MAP)
        ):
            return Assign()
        return self.init

    def frozen(self, table: str) -> bool:
        """Whether no row of a table moves."""
        return isinstance(self.freeze_of(table), FreezeTable)

    def mappable(self, table: str) -> bool:
        """Whether a table may have frozen rows of a pretrained file, which can stay in that file."""
        frozen = not isinstance(self.freeze_of(table), NoFreeze)
        return frozen and not isinstance(self.pretrained_of(table), NoPretrained)

    def kept_by_reference(self, table: str) -> bool:
        """Whether a table is frozen whole and pretrained, so that no checkpoint needs its values."""
        return self.frozen(table) and not isinstance(self.pretrained_of(table), NoPretrained)

    def dense_from(self) -> dict[str, Checkpoint]:
        """By config path, the settings that take over the dense part of their checkpoint."""
        found = {"pretrained": self.pretrained} if getattr(self.pretrained, "dense", None) is not False else {}
        for name, table in self.tables.items():
            if isinstance(table.pretrained, Checkpoint) and table.pretrained.dense:
                found[f"tables.{name}.pretrained"] = table.pretrained
        return {path: setting for path, setting in found.items() if isinstance(setting, Checkpoint)}

    def settled(self, dims: Mapping[str, int], unfilled: Collection[str] = ()) -> RunSpec:
        """The spec with what only pretrained files tell.

        Args:
            dims: of tables whose own is null.
            unfilled: tables for which the top-level file has nothing; they count as not pretrained from here on.
        """
        tables = {}
        for name, table in self.tables.items():
            updates: dict[str, object] = {}
            if table.dim is None and name in dims:
                updates["dim"] = dims[name]
            if name in unfilled:
                updates["pretrained"] = NoPretrained()
            tables[name] = table.model_copy(update=updates) if updates else table
        return self.model_copy(update={"tables": tables})

    def freeze_path(self, table: str) -> str:
        """Config path of what `freeze_of` gives."""
        return f"tables.{table}.freeze" if self.tables[table].freeze is not None else "freeze"

    def pretrained_path(self, table: str) -> str:
        """Config path of what `pretrained_of` gives."""
        return f"tables.{table}.pretrained" if self.tables[table].pretrained is not None else "pretrained"

    @property
    def fixed_batch(self) -> bool:
        """Whether every batch must have the size of a training batch: an `output_shape` names it, or a TPU needs it."""
        return self.strategy.fixed_batch or any(feature.output_shape is not None for feature in self.features.values())

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
