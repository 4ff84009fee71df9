"""What only the pretrained files of a run tell about its tables, put into its spec."""

from __future__ import annotations

from embexp.errors import ConfigError, Fault
from embexp.models import shapes
from embexp.pretrained.aligned import Pretrained
from embexp.specs.models import Task
from embexp.specs.rules import combination_faults
from embexp.specs.run import RunSpec


def with_dims(spec: RunSpec, given: Pretrained) -> RunSpec:
    """The spec with every dim settled, and without the top-level file on tables that it does not fit.

    Args:
        spec: what the user asked for.
        given: what files have for which table.

    Raises:
        ConfigError: a dim stays open, or what is settled now doesn't go with the rest of the config.
    """
    settled = spec.settled({name: table.source.dim for name, table in given.tables.items()}, tuple(given.unfit))
    faults = [
        Fault(
            f"tables.{name}.dim",
            "null",
            "null stands for the length of a pretrained file's rows, and none fits this table: "
            + given.unfit.get(name, "it has none"),
            "set a number",
        )
        for name, table in settled.tables.items()
        if table.dim is None
    ]
    if not faults:
        faults = [*combination_faults(settled), *(_of_model(settled) if _open(spec) else ())]
    if faults:
        raise ConfigError(faults)
    return settled


def _open(spec: RunSpec) -> bool:
    return any(table.dim is None for table in spec.tables.values())


def _of_model(spec: RunSpec) -> list[Fault]:
    """Vectors that the model can't take; where dims are open, the config alone did not tell."""
    activations = {
        name: feature.activation_shape(spec.tables[feature.table].width) for name, feature in spec.features.items()
    }
    return shapes.faults(
        spec.model,
        shapes=activations,
        dense_width=len(spec.data.dense_columns),
        classes=spec.task is Task.CLASSIFICATION,
    )
