"""Settles dims that the config leaves to the pretrained files."""

from __future__ import annotations

from collections.abc import Callable

from embexp.errors import ConfigError, Fault
from embexp.pretrained.tables import Pretrained
from embexp.specs.rules import combination_faults
from embexp.specs.run import RunSpec

ModelFaults = Callable[[RunSpec], list[Fault]]
"""What keeps the model of a run, whose dims are settled, from taking its vectors."""


def with_dims(spec: RunSpec, pretrained: Pretrained, model_faults: ModelFaults) -> RunSpec:
    """The spec with every dim settled, and without the top-level file on tables that it does not fit.

    Args:
        spec: what the user asked for.
        pretrained: what files have for which table.
        model_faults: what is wrong between a spec's vectors and its model; asked only where dims were open, as the
            config alone did not show it.

    Raises:
        ConfigError: a dim stays open, or what is settled now doesn't go with the rest of the config.
    """
    settled = spec.settled(
        {name: table.source.dim for name, table in pretrained.tables.items()}, tuple(pretrained.unfit)
    )
    faults = [
        Fault(
            f"tables.{name}.dim",
            "null",
            "null stands for the length of a pretrained file's rows, and none fits this table: "
            + pretrained.unfit.get(name, "it has none"),
            "set a number",
        )
        for name, table in settled.tables.items()
        if table.dim is None
    ]
    if not faults:
        faults = [*combination_faults(settled), *(model_faults(settled) if _open(spec) else ())]
    if faults:
        raise ConfigError(faults)
    return settled


def _open(spec: RunSpec) -> bool:
    return any(table.dim is None for table in spec.tables.values())
