"""The tables of a run and how first values get into each: eagerly, in a session, under an Estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

import numpy as np

from embexp.errors import RunError
from embexp.freezing.policies import TablePolicy
from embexp.initialization import constant, placeholder_feed, variable_load
from embexp.initialization.assign import Assign
from embexp.initialization.assign_in_session import InSession
from embexp.pretrained.rows import row_source, slot_sources
from embexp.pretrained.tables import Pretrained, PretrainedTable
from embexp.specs import inits
from embexp.specs.pretrained import Checkpoint, Project
from embexp.specs.run import RunSpec
from embexp.specs.tables import Storage
from embexp.system.rows import MappableRows
from embexp.tables import optimizers
from embexp.tables.groups import RowGroups
from embexp.tables.mapped import MappedTable
from embexp.tables.split import Part, SplitTable
from embexp.tables.table import EmbeddingTable
from embexp.tables.tpu_tables import TPUTable
from embexp.vectors.aligned_rows import AlignedRows

Table = EmbeddingTable | SplitTable | MappedTable
Fill = Callable[[Any], None]
"""Gives a table its values in the session that it is called with."""


def sources(spec: RunSpec, sizes: Mapping[str, int], given: Pretrained) -> dict[str, MappableRows]:
    """First values of every table: those of its file, or else what follows from the seed, its name and the row."""
    return {
        name: row_source(name, table, sizes[name], spec.seed, given.tables.get(name))
        for name, table in spec.tables.items()
    }


def by_reference(spec: RunSpec, given: Pretrained, name: str) -> bool:
    """Whether a table is kept out of checkpoints: none of its rows moves, and its file has them."""
    return spec.frozen(name) and name in given.tables


def slot_fills(made: Mapping[str, Table], spec: RunSpec, given: Pretrained) -> list[tuple[Part, MappableRows]]:
    """What is to be filled with slots that go with their rows, and with which values."""
    found: list[tuple[Part, MappableRows]] = []
    for name, table in made.items():
        if name not in given.tables or not table.slots:
            continue
        initial = optimizers.slots_of(spec.optimizer_of(name))
        for slot, source in slot_sources(name, given.tables[name], initial).items():
            if isinstance(table, SplitTable):
                found.append(table.slot_fill(slot, source))
            else:
                found.append((Part(f"{name}/{slot}", table.slots[slot]), source))
    return found


def fill_tpu_slots(made: Mapping[str, TPUTable], spec: RunSpec, given: Pretrained) -> bool:
    """Writes slots that go with their rows where a TPU's hosts keep them; tells whether there were any."""
    filled = False
    for name, table in made.items():
        if name not in given.tables or not table.slots:
            continue
        initial = optimizers.slots_of(spec.optimizer_of(name))
        for slot, source in slot_sources(name, given.tables[name], initial).items():
            table.fill_slot(slot, source)
            filled = True
    return filled


def way_in(spec: RunSpec, policy: TablePolicy, name: str) -> inits.Init:
    """How a table is filled; a `memory_map` meant for all tables has no effect on one that it does not fit."""
    init = spec.init_of(name)
    mapped = policy.storage is Storage.MEMORY_MAP
    return inits.Assign() if isinstance(init, inits.MemoryMap) and not mapped else init


def tables(
    spec: RunSpec, given: Pretrained, rows: Mapping[str, MappableRows], policies: Mapping[str, TablePolicy]
) -> dict[str, Table]:
    """Makes the variables of every table in the graph that is current; only `memory_map` and `constant` fill them.

    Args:
        spec: what the user asked for.
        given: what files have for which table.
        rows: first values of each table, see `sources`.
        policies: which rows move, and the layout of each table.

    Raises:
        RunError: constants would be more than a graph can hold, or rows can't be used as they lie in their file.
    """
    ways = {name: way_in(spec, policies[name], name) for name in spec.tables}
    in_graph = [name for name, way in ways.items() if isinstance(way, inits.ConstantInGraph)]
    constant.check({name: (rows[name].rows, rows[name].dim) for name in in_graph})
    return {name: _table(spec, given, name, rows[name], policies[name]) for name in spec.tables}


def tpu_tables(
    spec: RunSpec,
    given: Pretrained,
    rows: Mapping[str, MappableRows],
    policies: Mapping[str, TablePolicy],
    *,
    hosts: int,
) -> dict[str, TPUTable]:
    """Says what a TPU is to hold; its backend makes and fills it. Rows that never move are kept apart, always.

    Args:
        spec: what the user asked for.
        given: what files have for which table.
        rows: first values of each table, see `sources`.
        policies: which rows move.
        hosts: machines over which the TPU spreads its tables.
    """
    return {
        name: TPUTable(
            name,
            rows[name],
            rows[name].rows,
            rows[name].dim,
            combiner=spec.tables[name].combiner,
            optimizer=None if policy.fully_frozen else spec.optimizer_of(name),
            still=policy.frozen if policy.frozen_rows and not policy.fully_frozen else None,
            by_reference=by_reference(spec, given, name),
            hosts=hosts,
            chunk_bytes=_chunk(spec.init_of(name)),
        )
        for name, policy in policies.items()
    }


def _table(spec: RunSpec, given: Pretrained, name: str, rows: MappableRows, policy: TablePolicy) -> Table:
    combiner, file = spec.tables[name].combiner, given.tables.get(name)
    mapping = file_rows = None
    if policy.storage is Storage.MEMORY_MAP and file is not None:
        mapping, file_rows = _mapping(name, file), file.alignment.file_rows
    if mapping is not None and policy.fully_frozen:
        lacking = rows.missing if isinstance(rows, AlignedRows) else rows
        return MappedTable(name, mapping, file_rows, lacking, combiner=combiner)
    slots = {} if policy.fully_frozen else optimizers.slots_of(spec.optimizer_of(name))
    groups = None
    if (grouping := policy.grouping) is not None:
        groups = RowGroups(name, grouping.groups, grouping.multipliers, grouping.starts)
        if policy.storage in (Storage.SPLIT, Storage.MEMORY_MAP):
            return SplitTable(
                name, groups, rows.dim, mapping=mapping, file_rows=file_rows, combiner=combiner, slots=slots
            )
    init = way_in(spec, policy, name)
    return EmbeddingTable(
        name,
        rows.rows,
        rows.dim,
        combiner=combiner,
        slots=slots,
        track_touched=not policy.fully_frozen,
        frozen=policy.fully_frozen,
        by_reference=by_reference(spec, given, name),
        initial_value=constant.initial_value(rows) if isinstance(init, inits.ConstantInGraph) else None,
        groups=groups,
    )


def fill(
    made: Mapping[str, Table],
    spec: RunSpec,
    policies: Mapping[str, TablePolicy],
    rows: Mapping[str, MappableRows],
    given: Pretrained,
) -> None:
    """Fills tables that were made eagerly, and those of their slots that come from an earlier checkpoint."""
    for part, some in slot_fills(made, spec, given):
        Assign().apply(part, some)
    for name, table in made.items():
        if isinstance(table, MappedTable):
            continue
        init = way_in(spec, policies[name], name)
        if isinstance(table, SplitTable):
            for part, some in table.fills(rows[name]):
                Assign(_chunk(init)).apply(part, some)
            continue
        match init:
            case inits.Assign():
                Assign(init.chunk_bytes).apply(table, rows[name])
            case inits.VariableLoad():
                variable_load.assign_whole(table.variable, rows[name])
            case inits.ConstantInGraph() | inits.PlaceholderFeed() | inits.Scaffold() | inits.MemoryMap():
                raise ValueError(f"init={init.kind} does not work in the function runtime")
            case _:
                assert_never(init)


def _chunk(init: inits.Init) -> int:
    """Largest piece of a split table's parts that is in flight at once, in bytes."""
    return init.chunk_bytes if isinstance(init, inits.Assign) else inits.Assign().chunk_bytes


@dataclass(frozen=True)
class SessionFills:
    """What gives tables their values in sessions of a graph.

    Attributes:
        once: to be called with the first session.
        always: to be called with every session that is made.
        scaffold: variables that a Scaffold is to fill, and from where.
        whole: variables that need no other initial value, as they are filled by one.
    """

    once: list[Fill] = field(default_factory=list)
    always: list[Fill] = field(default_factory=list)
    scaffold: list[tuple[Any, MappableRows]] = field(default_factory=list)
    whole: list[Any] = field(default_factory=list)


def in_sessions(
    made: Mapping[str, Table],
    spec: RunSpec,
    policies: Mapping[str, TablePolicy],
    rows: Mapping[str, MappableRows],
    given: Pretrained,
) -> SessionFills:
    """What fills tables that were made in a graph, and their slots; adds to that graph what it needs."""
    fills = SessionFills()
    if of_slots := [(part.variable, some) for part, some in slot_fills(made, spec, given)]:
        fills.once.append(InSession(of_slots).fill)
    for name, table in made.items():
        if feeds := table.feeds():
            fills.always.append(_feeding(feeds))
            fills.whole.extend(variable for variable, _ in feeds)
        if isinstance(table, MappedTable):
            continue
        init, source = way_in(spec, policies[name], name), rows[name]
        if isinstance(table, SplitTable):
            parts = [(part.variable, some) for part, some in table.fills(source)]
            fills.once.append(InSession(parts, _chunk(init)).fill)
            continue
        chosen = fills.always if table.by_reference else fills.once
        match init:
            case inits.ConstantInGraph():
                pass
            case inits.PlaceholderFeed():
                chosen.append(partial(_filled_by, placeholder_feed.fill, table.variable, source))
                fills.whole.append(table.variable)
            case inits.VariableLoad():
                chosen.append(partial(_filled_by, variable_load.fill, table.variable, source))
                fills.whole.append(table.variable)
            case inits.Assign():
                chosen.append(InSession([(table.variable, source)], init.chunk_bytes).fill)
            case inits.Scaffold():
                fills.scaffold.append((table.variable, source))
            case inits.MemoryMap():
                raise ValueError(f"table {name!r} is not a mapped one")
            case _:
                assert_never(init)
    return fills


def _feeding(feeds: list[tuple[Any, np.ndarray]]) -> Fill:
    def feed(session: Any) -> None:
        for variable, values in feeds:
            session.run(variable.initializer, {variable.initial_value: values})

    return feed


def _filled_by(
    way: Callable[[Any, list[tuple[Any, MappableRows]]], None], variable: Any, rows: MappableRows, session: Any
) -> None:
    way(session, [(variable, rows)])


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
