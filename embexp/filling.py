"""The tables of a run and how first values get into each: eagerly, in a session, under an Estimator."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, assert_never

import numpy as np

from embexp.errors import RunError
from embexp.initialization import constant, placeholder_feed, variable_load
from embexp.initialization.assign import Assign
from embexp.initialization.assign_in_session import InSession
from embexp.initialization.rows import RowSource
from embexp.pretrained.aligned import Pretrained, PretrainedTable
from embexp.pretrained.rows import row_source
from embexp.specs import inits
from embexp.specs.pretrained import Project
from embexp.specs.run import RunSpec
from embexp.tables import optimizers
from embexp.tables.mapped import MappedTable
from embexp.tables.table import EmbeddingTable
from embexp.vectors.aligned_rows import AlignedRows

Table = EmbeddingTable | MappedTable
Fill = Callable[[Any], None]
"""Gives a table its values in the session that it is called with."""


def sources(spec: RunSpec, sizes: Mapping[str, int], given: Pretrained) -> dict[str, RowSource]:
    """First values of every table: those of its file, or else what follows from the seed, its name and the row."""
    return {
        name: row_source(name, table, sizes[name], spec.seed, given.tables.get(name))
        for name, table in spec.tables.items()
    }


def by_reference(spec: RunSpec, given: Pretrained, name: str) -> bool:
    """Whether a table is kept out of checkpoints: none of its rows moves, and its file has them."""
    return spec.frozen(name) and name in given.tables


def way_in(spec: RunSpec, given: Pretrained, name: str) -> inits.Init:
    """How a table is filled; a `memory_map` meant for all tables has no effect on one that the file does not fit."""
    init = spec.init_of(name)
    return inits.Assign() if isinstance(init, inits.MemoryMap) and name not in given.tables else init


def tables(spec: RunSpec, given: Pretrained, rows: Mapping[str, RowSource]) -> dict[str, Table]:
    """Makes the variables of every table in the graph that is current; only `memory_map` and `constant` fill them.

    Args:
        spec: what the user asked for.
        given: what files have for which table.
        rows: first values of each table, see `sources`.

    Raises:
        RunError: constants would be more than a graph can hold, or rows can't be used as they lie in their file.
    """
    ways = {name: way_in(spec, given, name) for name in spec.tables}
    in_graph = [name for name, way in ways.items() if isinstance(way, inits.ConstantInGraph)]
    constant.check({name: (rows[name].rows, rows[name].dim) for name in in_graph})
    made: dict[str, Table] = {}
    for name, table in spec.tables.items():
        init = ways[name]
        if isinstance(init, inits.MemoryMap):
            file = given.tables[name]
            of_file = rows[name]
            lacking = of_file.missing if isinstance(of_file, AlignedRows) else of_file
            mapping, file_rows = _mapping(name, file), file.alignment.file_rows
            made[name] = MappedTable(name, mapping, file_rows, lacking, combiner=table.combiner)
            continue
        still = spec.frozen(name)
        made[name] = EmbeddingTable(
            name,
            rows[name].rows,
            rows[name].dim,
            combiner=table.combiner,
            slots={} if still else optimizers.slots_of(spec.optimizer_of(name)),
            track_touched=not still,
            frozen=still,
            by_reference=by_reference(spec, given, name),
            initial_value=constant.initial_value(rows[name]) if isinstance(init, inits.ConstantInGraph) else None,
        )
    return made


def fill(made: Mapping[str, Table], spec: RunSpec, given: Pretrained, rows: Mapping[str, RowSource]) -> None:
    """Fills tables that were made eagerly."""
    for name, table in made.items():
        if isinstance(table, MappedTable):
            continue
        init = way_in(spec, given, name)
        match init:
            case inits.Assign():
                Assign(init.chunk_bytes).apply(table, rows[name])
            case inits.VariableLoad():
                variable_load.assign_whole(table.variable, rows[name])
            case inits.ConstantInGraph() | inits.PlaceholderFeed() | inits.Scaffold() | inits.MemoryMap():
                raise ValueError(f"init={init.kind} does not work in the function runtime")
            case _:
                assert_never(init)


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
    scaffold: list[tuple[Any, RowSource]] = field(default_factory=list)
    whole: list[Any] = field(default_factory=list)


def in_sessions(
    made: Mapping[str, Table], spec: RunSpec, given: Pretrained, rows: Mapping[str, RowSource]
) -> SessionFills:
    """What fills tables that were made in a graph; adds to that graph what it needs."""
    fills = SessionFills()
    for name, table in made.items():
        if isinstance(table, MappedTable):
            fills.always.append(_feeding(table.feeds()))
            fills.whole.extend(variable for variable, _ in table.feeds())
            continue
        init, source = way_in(spec, given, name), rows[name]
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
    way: Callable[[Any, list[tuple[Any, RowSource]]], None], variable: Any, rows: RowSource, session: Any
) -> None:
    way(session, [(variable, rows)])


def _mapping(name: str, file: PretrainedTable) -> np.ndarray:
    """The file of a table as a mapping.

    Raises:
        RunError: its rows can't be used as they lie in the file.
    """
    mapping = file.source.memory_map()
    if mapping is None or file.setting.project is not Project.NONE:
        raise RunError(
            f"tables.{name}.init = memory_map: rows of {file.setting.path} must be projected"
            f" (pretrained.project={file.setting.project.value}) before they fit, so they can't stay in the file;"
            " write them to a file first with embexp vectors convert, or choose init=assign"
        )
    return mapping
