"""What a `TPUEmbedding` tells a simulated TPU about its tables and features."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from embexp.simulation import optimizers
from embexp.simulation.features import FeatureDescription
from embexp.simulation.pipeline import Pipeline
from embexp.simulation.sharded import ShardedTable
from embexp.specs.optimizers import TableOptimizer

Variables = Mapping[str, Mapping[str, Any]]
"""By table, then `parameters` or slot: an object whose `variables` are the shards."""


@dataclass(eq=False)
class Configuration:
    """A `TPUEmbedding` that is built.

    Attributes:
        described: its features.
        parameters: by table, `OptimizationParameters`.
        optimizers: by table, the same as rules of the row engine.
        pipelined: lookups miss the update of the step before.
        tables: by name, once they are loaded.
        variables: the memory of the TPU, once it is loaded.
        pipeline: what pipelined lookups see, once it is loaded.
    """

    described: list[FeatureDescription]
    parameters: dict[str, Any]
    optimizers: dict[str, TableOptimizer]
    pipelined: bool
    tables: dict[str, ShardedTable] = field(default_factory=dict)
    variables: Variables | None = None
    pipeline: Pipeline | None = None

    @staticmethod
    def from_proto(proto: Any) -> Configuration:
        """Reads a `TPUEmbeddingConfiguration`.

        Raises:
            NotImplementedError: the simulation does not support a setting.
        """
        tables, names = list(proto.table_descriptor), [one.name for one in proto.feature_descriptor]
        described = [
            FeatureDescription(
                name=one.name if names.count(one.name) == 1 and one.name else f"{one.name} (number {number})".lstrip(),
                table=tables[one.table_id].name,
                dim=tables[one.table_id].dimension,
                combiner="",
                shape=tuple(one.input_shape),
            )
            for number, one in enumerate(proto.feature_descriptor)
        ]
        parameters = {table.name: table.optimization_parameters for table in tables}
        rules = {name: optimizers.from_description(name, one) for name, one in parameters.items()}
        return Configuration(described, parameters, rules, bool(proto.pipeline_execution_with_tensor_core))

    def load(self, variables: Variables, table_config: Sequence[Any]) -> None:
        """Makes host variables the memory of the TPU.

        Args:
            variables: of all tables.
            table_config: their `TableConfig` objects, from which combiners come.

        Raises:
            NotImplementedError: a combiner is not one of TensorFlow's.
        """
        combiners = {}
        for one in table_config:
            if not isinstance(one.combiner, str):
                raise NotImplementedError(f"table {one.name!r}: the simulated TPU does not support custom combiners")
            combiners[one.name] = one.combiner
        self.variables = variables
        self.tables = {
            one.name: ShardedTable(one.name, one.vocabulary_size, one.dim, variables[one.name]) for one in table_config
        }
        self.described = [dataclasses.replace(one, combiner=combiners[one.table]) for one in self.described]
        self.pipeline = Pipeline(self.tables, self.optimizers) if self.pipelined else None

    def flush(self) -> None:
        """Lets the next lookup see all updates, as after loading and saving."""
        if self.pipeline is not None:
            self.pipeline.flush()


def copy(source: Variables, target: Variables) -> None:
    """Copies tables and slots by name, unless both are the same variables."""
    for table, of_table in target.items():
        for slot, sharded in of_table.items():
            for into, out in zip(sharded.variables, source[table][slot].variables, strict=True):
                if into is not out:
                    into.assign(out)
