"""Whether a file fits a table, the fault where it doesn't, and the dims that the config leaves to the files."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from embexp.errors import ConfigError, Fault
from embexp.pretrained.tables import Pretrained as PretrainedTables
from embexp.specs.pretrained import Checkpoint, File, Pretrained, Project, Sample
from embexp.specs.run import RunSpec, combination_faults
from embexp.specs.tables import Table
from embexp.vectors import projection

ModelFaults = Callable[[RunSpec], list[Fault]]
"""What keeps the model of a run, whose dims are settled, from taking its vectors."""


@dataclass(frozen=True)
class Mismatch:
    """Why a file can't fill a table, and what would help."""

    rule: str
    remedy: str


def width(project: Project, file_dim: int, name: str, table: Table) -> Mismatch | None:
    """Compares the length of a file's rows with that of a table's.

    Args:
        project: what makes the one the other.
        file_dim: numbers per row of the file.
        table: its settings; one without a pretrained of its own is not filled with projections to a single number,
            as the top-level file is meant for vectors and such a table holds biases. A dim of null fits any file.
    """
    if table.dim is None:
        return None
    if rule := projection.mismatch(project, file_dim, table.dim):
        choices = "truncate or pca" if file_dim > table.dim else "zero_pad"
        return Mismatch(rule, f"set tables.{name}.dim={file_dim}, or project={choices}")
    if table.pretrained is None and table.dim == 1 < file_dim:
        return Mismatch(
            f"the file's rows have {file_dim} numbers, the table's 1, and only a table's own file is cut down to that",
            f"choose pretrained@tables.{name}.pretrained=file",
        )
    return None


def faults(
    inherited: Pretrained | None,
    tables: Mapping[str, Table],
    *,
    matching: Collection[str],
    mismatched: Mapping[str, Mismatch],
) -> list[Fault]:
    """Faults of a run: a table's own file that doesn't fit, a top-level one that fits no table.

    Args:
        matching: tables that a file fits.
        mismatched: tables that it doesn't.
    """
    found = [
        Fault(f"tables.{name}.pretrained.path", _shown(own.path), why.rule, why.remedy)
        for name, why in mismatched.items()
        if isinstance(own := tables[name].pretrained, File | Sample | Checkpoint)
    ]
    heirs = {name: why for name, why in mismatched.items() if tables[name].pretrained is None}
    if (
        isinstance(inherited, File | Sample | Checkpoint)
        and heirs
        and not any(tables[name].pretrained is None for name in matching)
    ):
        reasons = "".join(f"\n      {name}: {why.rule}" for name, why in heirs.items())
        first = next(iter(heirs.values()))
        found.append(Fault("pretrained.path", _shown(inherited.path), f"it fits no table{reasons}", first.remedy))
    return found


def with_dims(spec: RunSpec, pretrained: PretrainedTables, model_faults: ModelFaults) -> RunSpec:
    """The spec with every dim settled, and without the top-level file on tables that it does not fit.

    Args:
        pretrained: the rows that tables take from files.
        model_faults: what is wrong between a spec's vectors and its model; called only where dims were open, as the
            config alone did not show it.

    Raises:
        ConfigError: a dim stays open, or does not fit the rest of the config.
    """
    settled = spec.settled(
        {name: table.source.dim for name, table in pretrained.tables.items()}, tuple(pretrained.mismatches)
    )
    faults = [
        Fault(
            f"tables.{name}.dim",
            "null",
            "null stands for the length of a pretrained file's rows, and none fits this table: "
            + pretrained.mismatches.get(name, "it has none"),
            "set a number",
        )
        for name, table in settled.tables.items()
        if table.dim is None
    ]
    if not faults:
        any_open = any(table.dim is None for table in spec.tables.values())
        faults = [*combination_faults(settled), *(model_faults(settled) if any_open else ())]
    if faults:
        raise ConfigError(faults)
    return settled


def _shown(path: str | None) -> str:
    return "null" if path is None else repr(path)
