"""Whether a file fits a table, and the fault where it doesn't."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from embexp.errors import Fault
from embexp.specs.pretrained import Checkpoint, File, Pretrained, Project, Sample
from embexp.specs.tables import Table
from embexp.vectors import projection


@dataclass(frozen=True)
class Misfit:
    """Why a file can't fill a table, and what would help."""

    rule: str
    remedy: str


def width(project: Project, file_dim: int, name: str, table: Table) -> Misfit | None:
    """What is wrong between the length of a file's rows and that of a table's.

    Args:
        project: what makes the one the other.
        file_dim: numbers per row of the file.
        name: of the table.
        table: its settings; one without a pretrained of its own is not filled with projections to a single number,
            as the top-level file is meant for vectors and such a table holds biases. A dim of null fits any file.
    """
    if table.dim is None:
        return None
    if rule := projection.misfit(project, file_dim, table.dim):
        choices = "truncate or pca" if file_dim > table.dim else "zero_pad"
        return Misfit(rule, f"set tables.{name}.dim={file_dim}, or project={choices}")
    if table.pretrained is None and table.dim == 1 < file_dim:
        return Misfit(
            f"the file's rows have {file_dim} numbers, the table's 1, and only a table's own file is cut down to that",
            f"choose pretrained@tables.{name}.pretrained=file",
        )
    return None


def faults(
    inherited: Pretrained | None,
    tables: Mapping[str, Table],
    *,
    fitting: Collection[str],
    unfit: Mapping[str, Misfit],
) -> list[Fault]:
    """What is wrong with a run: a table's own file that doesn't fit, a top-level one that fits no table.

    Args:
        inherited: the top-level setting.
        tables: all of them.
        fitting: tables that a file fits.
        unfit: tables that it doesn't.
    """
    found = [
        Fault(f"tables.{name}.pretrained.path", _shown(own.path), why.rule, why.remedy)
        for name, why in unfit.items()
        if isinstance(own := tables[name].pretrained, File | Sample | Checkpoint)
    ]
    heirs = {name: why for name, why in unfit.items() if tables[name].pretrained is None}
    if (
        isinstance(inherited, File | Sample | Checkpoint)
        and heirs
        and not any(tables[name].pretrained is None for name in fitting)
    ):
        reasons = "".join(f"\n      {name}: {why.rule}" for name, why in heirs.items())
        first = next(iter(heirs.values()))
        found.append(Fault("pretrained.path", _shown(inherited.path), f"it fits no table{reasons}", first.remedy))
    return found


def _shown(path: str | None) -> str:
    return "null" if path is None else repr(path)
