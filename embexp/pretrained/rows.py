"""The first values of a table: rows of its file, and of its initializer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import assert_never

import numpy as np

from embexp.initialization import random
from embexp.initialization.rows import RowSource
from embexp.pretrained.aligned import PretrainedTable
from embexp.specs.pretrained import MissingRows
from embexp.specs.tables import Constant, Initializer, Normal, Table, Uniform
from embexp.system.readable import ReadableRows
from embexp.vectors import missing, projection
from embexp.vectors.aligned_rows import AlignedRows


def row_source(name: str, table: Table, rows: int, seed: int, given: PretrainedTable | None) -> RowSource:
    """The first values of a table.

    Args:
        name: of the table.
        table: its settings.
        rows: how many it has.
        seed: of the run.
        given: its part in a file, or None.
    """
    if given is None:
        return random.source(table.initializer, rows=rows, dim=table.width, seed=seed, table=name)
    projected = projection.fitted(given.setting.project, given.source, table.width)
    fill = given.setting.missing
    if not np.any(given.alignment.file_rows < 0):
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
    others: ReadableRows = random.source(drawn, rows=rows, dim=table.width, seed=seed, table=name)
    if fill in (MissingRows.MEAN, MissingRows.NORMAL, MissingRows.UNIFORM):
        others = missing.like_the_file(others, given.source, projected)
    return AlignedRows(given.source, given.alignment, others, projected)


def beside_file(rows: RowSource) -> ReadableRows:
    """What gives those of a table's initial values that are not in its file, without reading the others."""
    return rows.missing if isinstance(rows, AlignedRows) else rows


def slot_sources(name: str, given: PretrainedTable, initial: Mapping[str, float]) -> dict[str, RowSource]:
    """First values of the slots that go with their rows; those of other rows begin at the initial value.

    Args:
        name: of the table.
        given: its part in an earlier checkpoint.
        initial: value of each slot of the table's optimizer before the first step.
    """
    return {
        slot: AlignedRows(
            source,
            given.alignment,
            random.source(Constant(value=initial[slot]), rows=given.rows, dim=source.dim, seed=0, table=name),
        )
        for slot, source in given.slots.items()
    }
