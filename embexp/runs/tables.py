"""Plans the tables of a run from its spec, its pretrained rows and its freeze policies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from embexp.freezing.policies import TablePolicy
from embexp.initialization.filling import FileRows, TablePlan
from embexp.pretrained.tables import PretrainedTable, beside_file, mapping_of, row_source, slot_sources
from embexp.runs.prepare import PreparedTables
from embexp.specs.run import RunSpec
from embexp.specs.tables import Storage
from embexp.system.arrays import MappableRows
from embexp.tables import optimizers
from embexp.tables.learning_rates import RowGroups


def initial_rows(tables: PreparedTables) -> dict[str, MappableRows]:
    """Initial values of every table: pretrained, or drawn by its initializer from the seed, its name and the row."""
    spec = tables.spec
    return {
        name: row_source(name, table, tables.rows[name], spec.seed, tables.pretrained.tables.get(name))
        for name, table in spec.tables.items()
    }


def plans(tables: PreparedTables, initial: Mapping[str, MappableRows]) -> dict[str, TablePlan]:
    """Plans how every table is created and filled, without creating it.

    Args:
        tables: prepared.
        initial: initial values of each table, see `initial_rows`.

    Raises:
        RunError: rows of a file can't be mapped.
    """
    files = tables.pretrained.tables
    return {
        name: _plan(tables.spec, name, files.get(name), rows, tables.policies[name]) for name, rows in initial.items()
    }


def _plan(
    spec: RunSpec, name: str, pretrained: PretrainedTable | None, rows: MappableRows, policy: TablePolicy
) -> TablePlan:
    optimizer = None if policy.fully_frozen else spec.optimizer_of(name)
    grouping, file, slots = policy.grouping, None, {}
    if policy.storage is Storage.MEMORY_MAP and pretrained is not None:
        file = FileRows(mapping_of(name, pretrained), pretrained.alignment.file_rows, beside_file(rows))
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
        frozen_rows=policy.frozen if policy.frozen_rows and not policy.fully_frozen else None,
        file=file,
        slots=slots,
    )
