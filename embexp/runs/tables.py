"""The tables of a run, planned: from its spec, its pretrained files and its freeze policies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np

from embexp.errors import RunError
from embexp.freezing.policies import TablePolicy
from embexp.initialization.plan import FileRows, TablePlan
from embexp.initialization.rows import RowSource
from embexp.pretrained.aligned import Pretrained, PretrainedTable
from embexp.pretrained.rows import beside_file, row_source, slot_sources
from embexp.specs.pretrained import Checkpoint, Project
from embexp.specs.run import RunSpec
from embexp.specs.tables import Storage
from embexp.tables import optimizers
from embexp.tables.groups import RowGroups


def sources(spec: RunSpec, sizes: Mapping[str, int], given: Pretrained) -> dict[str, RowSource]:
    """Initial values of every table: those of its file, or else what follows from the seed, its name and the row."""
    return {
        name: row_source(name, table, sizes[name], spec.seed, given.tables.get(name))
        for name, table in spec.tables.items()
    }


def plans(
    spec: RunSpec, given: Pretrained, rows: Mapping[str, RowSource], policies: Mapping[str, TablePolicy]
) -> dict[str, TablePlan]:
    """What every table is made and filled from; makes nothing.

    Args:
        spec: what the user asked for, settled: no table counts as pretrained for which its file has nothing.
        given: what files have for which table.
        rows: initial values of each table, see `sources`.
        policies: which rows move, and the layout of each table.

    Raises:
        RunError: rows can't be used as they lie in their file.
    """
    return {name: _plan(spec, name, given.tables.get(name), rows[name], policies[name]) for name in spec.tables}


def _plan(
    spec: RunSpec, name: str, pretrained: PretrainedTable | None, rows: RowSource, policy: TablePolicy
) -> TablePlan:
    optimizer = None if policy.still else spec.optimizer_of(name)
    grouping, file, slots = policy.grouping, None, {}
    if policy.storage is Storage.MEMORY_MAP and pretrained is not None:
        file = FileRows(_mapping(name, pretrained), pretrained.alignment.file_rows, beside_file(rows))
    if optimizer is not None and pretrained is not None:
        slots = slot_sources(name, pretrained, optimizers.slots_of(optimizer))
    return TablePlan(
        name=name,
        source=rows,
        init=spec.init_of(name),
        combiner=spec.tables[name].combiner,
        optimizer=optimizer,
        storage=policy.storage,
        by_reference=spec.kept_by_reference(name),
        groups=None
        if grouping is None
        else partial(RowGroups, name, grouping.groups, grouping.multipliers, grouping.starts),
        frozen_rows=policy.frozen if policy.frozen_rows and not policy.still else None,
        file=file,
        slots=slots,
    )


def _mapping(name: str, file: PretrainedTable) -> np.ndarray:
    """The file of a table as a mapping.

    Raises:
        RunError: its rows can't be used as they lie in the file.
    """
    mapping = file.source.memory_map()
    if mapping is None and isinstance(file.setting, Checkpoint):
        raise RunError(
            f"tables.{name}.init = memory_map: the rows of {file.setting.path} are not in its checkpoint but in the"
            " file that the table was made from, and not as they lie there; choose init=assign"
        )
    if mapping is None or file.setting.project is not Project.NONE:
        raise RunError(
            f"tables.{name}.init = memory_map: rows of {file.setting.path} must be projected"
            f" (pretrained.project={file.setting.project.value}) before they fit, so they can't stay in the file;"
            " write them to a file first with embexp vectors convert, or choose init=assign"
        )
    return mapping
