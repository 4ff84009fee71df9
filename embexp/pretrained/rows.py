"""The initial values of a table: rows of its file, and of its initializer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import assert_never

import numpy as np

from embexp.errors import RunError
from embexp.pretrained.tables import PretrainedTable
from embexp.specs.pretrained import Checkpoint, MissingRows, Project
from embexp.specs.tables import Constant, Initializer, Normal, Table, Uniform
from embexp.system.arrays import MappableRows, Rows
from embexp.vectors import projection
from embexp.vectors.initial_rows import AlignedRows, InitializerRows, like_the_file


def row_source(name: str, table: Table, rows: int, seed: int, pretrained: PretrainedTable | None) -> MappableRows:
    """The initial values of a table.

    Args:
        name: of the table.
        table: its settings.
        rows: how many it has.
        seed: of the run.
        pretrained: the rows that it takes from a file; None: none.
    """
    if pretrained is None:
        return InitializerRows(table.initializer, rows=rows, dim=table.width, seed=seed, table=name)
    projected = projection.fit(pretrained.setting.project, pretrained.source, table.width)
    fill = pretrained.setting.missing
    if not np.any(pretrained.alignment.file_rows < 0):
        fill = MissingRows.ZEROS  # nothing is missing: nothing to take a mean for
    drawn: Initializer
    match fill:
        case MissingRows.INITIALIZER:
            drawn = table.initializer
        case MissingRows.ZEROS | MissingRows.MEAN:
            drawn = Constant(value=0.0)
        case MissingRows.NORMAL:
            drawn = Normal(stddev=1.0)
        case MissingRows.UNIFORM:
            drawn = Uniform(scale=math.sqrt(3))  # of variance 1
        case _:
            assert_never(fill)
    others: Rows = InitializerRows(drawn, rows=rows, dim=table.width, seed=seed, table=name)
    if fill in (MissingRows.MEAN, MissingRows.NORMAL, MissingRows.UNIFORM):
        others = like_the_file(others, pretrained.source, projected)
    return AlignedRows(pretrained.source, pretrained.alignment, others, projected)


def beside_file(rows: MappableRows) -> Rows:
    """The initial values that are not in a table's file; reads nothing of the file."""
    return rows.missing if isinstance(rows, AlignedRows) else rows


def slot_sources(name: str, pretrained: PretrainedTable, initial: Mapping[str, float]) -> dict[str, MappableRows]:
    """Initial values of the slots that go with their rows; slots of other rows begin at the optimizer's value.

    Args:
        name: of the table.
        pretrained: the rows that it takes from an earlier checkpoint.
        initial: value of each slot of the table's optimizer before the first step.
    """
    return {
        slot: AlignedRows(
            source,
            pretrained.alignment,
            InitializerRows(Constant(value=initial[slot]), rows=pretrained.rows, dim=source.dim, seed=0, table=name),
        )
        for slot, source in pretrained.slots.items()
    }


def mapping_of(name: str, pretrained: PretrainedTable) -> np.ndarray:
    """The rows of a table as one mapping of its file, float32 [rows of the file, dim].

    Raises:
        RunError: its rows can't be mapped from the file.
    """
    mapping, setting = pretrained.source.memory_map(), pretrained.setting
    if mapping is None and isinstance(setting, Checkpoint):
        raise RunError(
            f"tables.{name}.init = memory_map: the rows of {setting.path} are not in its checkpoint but in the"
            " file that the table was made from, in another form; choose init=assign"
        )
    if mapping is None or setting.project is not Project.NONE:
        raise RunError(
            f"tables.{name}.init = memory_map: rows of {setting.path} must be projected"
            f" (pretrained.project={setting.project.value}) before they fit, so they can't stay in the file;"
            " write them to a file first with embexp vectors convert, or choose init=assign"
        )
    return mapping
