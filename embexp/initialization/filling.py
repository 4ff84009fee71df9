"""Tables made from their plans, and filled by their init methods: eagerly, or in the sessions of a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from embexp.errors import ConfigError, Fault
from embexp.initialization.method import AssignInSession, InitMethod, SessionFills, assign_rows, chunks
from embexp.specs.base import implementation
from embexp.specs.inits import CHUNK_BYTES, Init
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.tables import Combiner, Storage
from embexp.system import arrays
from embexp.system.arrays import MappableRows, Rows
from embexp.tables import optimizers
from embexp.tables.optimizers import DecayShares, RowGroups
from embexp.tables.row_engine import AnyTable
from embexp.tables.table import EmbeddingTable, MappedTable, SplitTable
from embexp.tables.variables import SINGLE, Precision

if TYPE_CHECKING:
    from embexp.tables.tpu_tables import TPUTable


@dataclass(frozen=True)
class FileRows:
    """A mapped file that holds frozen rows of a table.

    Attributes:
        mapping: [file rows, dim], see `MappedTable`.
        rows: integers [rows], the file's row for each row of the table, -1 where it has none.
        others: the table's rows; only those that the file lacks are read.
        scales: of a mapping of int8, see `MappedTable`.
    """

    mapping: np.ndarray
    rows: np.ndarray
    others: Rows
    scales: np.ndarray | None = None

    def of(self, own: Callable[[Any], MappableRows], of_array: Callable[[np.ndarray], np.ndarray]) -> FileRows:
        """That of some of the rows, see `TablePlan.part`."""
        arrays.read_single_pages(self.mapping)
        return replace(self, rows=of_array(self.rows), others=own(self.others))


@dataclass(frozen=True)
class Grouped:
    """What makes the groups of a table's rows, in any graph; see `RowGroups`."""

    name: str
    groups: np.ndarray
    multipliers: np.ndarray
    starts: Sequence[int]

    def __call__(self) -> RowGroups:
        """Makes them in the current graph."""
        return RowGroups(self.name, self.groups, self.multipliers, self.starts)

    def of(self, of_array: Callable[[np.ndarray], np.ndarray]) -> Grouped:
        """Those of some of the rows, see `TablePlan.part`."""
        return replace(self, groups=of_array(self.groups))


@dataclass(frozen=True)
class Shared:
    """What makes the rows' shares of a weight decay, in any graph; see `DecayShares`."""

    name: str
    occurrences: np.ndarray
    steps_per_epoch: float

    def __call__(self) -> DecayShares:
        """Makes them in the current graph."""
        return DecayShares(self.name, self.occurrences, self.steps_per_epoch)

    def of(self, of_array: Callable[[np.ndarray], np.ndarray]) -> Shared:
        """Those of some of the rows, see `TablePlan.part`."""
        return replace(self, occurrences=of_array(self.occurrences))


@dataclass(frozen=True)
class TablePlan:
    """A table before its variables are made, in any graph and strategy.

    Attributes:
        optimizer: the optimizer of its rows; None: the whole table is frozen.
        by_reference: its rows can be read again from their file, so no checkpoint holds them.
        groups: makes the groups of rows with their freeze schedules and learning rates; None: all rows are alike.
        frozen_rows: bool [rows], rows that never move; None: all rows are alike.
        file: the file that holds its frozen rows; None: a variable does.
        mirrored: whether each worker of a cluster has all rows.
        slots: values of slots from an earlier checkpoint, by slot.
        precision: how rows and slots are stored.
        shares: makes the rows' parts of the weight decay; None: each step decays all that it touches.
        resets: returns bool [rows], rows that start again with each epoch; None: none does.
    """

    name: str
    source: MappableRows
    init: Init
    combiner: Combiner = Combiner.MEAN
    optimizer: TableOptimizer | None = None
    init_path: str = "init"
    storage: Storage = Storage.VARIABLE
    by_reference: bool = False
    groups: Grouped | None = None
    frozen_rows: np.ndarray | None = None
    file: FileRows | None = None
    mirrored: bool = False
    slots: Mapping[str, MappableRows] = field(default_factory=dict)
    precision: Precision = SINGLE
    shares: Shared | None = None
    resets: Callable[[], np.ndarray] | None = None

    def part(
        self,
        own: Callable[[Any], MappableRows],
        of_array: Callable[[np.ndarray], np.ndarray],
        numbered: Callable[[Any], Any],
    ) -> TablePlan:
        """The plan of some of the rows, of one part of the table in a cluster.

        If none of them is to be stored apart, or there is only one, they are in one variable, whatever the layout.

        Args:
            own: from all rows of the table, these.
            of_array: from one value per row of the table, those of these rows.
            numbered: from numbers of these rows, a tensor of integers [n], those that they have in the table.
        """
        resets, file = self.resets, None if self.file is None else self.file.of(own, of_array)
        frozen = None if self.frozen_rows is None else of_array(self.frozen_rows)
        apart = frozen if frozen is None or file is None else frozen & (file.rows >= 0)
        together = apart is not None and (not apart.any() or len(apart) == 1)
        return replace(
            self,
            source=own(self.source),
            groups=None if self.groups is None else self.groups.of(of_array),
            shares=None if self.shares is None else self.shares.of(of_array),
            frozen_rows=frozen,
            file=None if together else file,
            storage=Storage.VARIABLE if together else self.storage,
            precision=replace(self.precision, numbered=numbered),
            resets=None if resets is None else lambda: of_array(resets()),
        )

    @property
    def method(self) -> InitMethod:
        """Its init method.

        Raises:
            ConfigError: the user's own function can't be imported or called, or returns something else.
        """
        method: InitMethod = implementation(self.init)(self.init_path)
        return method

    def variables(self, initial_value: Callable[..., Any] | None = None) -> AnyTable:
        """Makes the table in the current graph, with untouched memory for the values to be filled.

        Args:
            initial_value: initial value of the variable instead, for a table in one part.
        """
        made = self._variables(initial_value)
        if self.shares is not None:
            made.shares = self.shares()
        return made

    def _variables(self, initial_value: Callable[..., Any] | None) -> AnyTable:
        rows, dim, file = self.source.rows, self.source.dim, self.file
        if file is not None and self.optimizer is None:
            return MappedTable(
                self.name,
                file.mapping,
                file.rows,
                file.others,
                scales=file.scales,
                combiner=self.combiner,
                precision=self.precision,
            )
        slots = {} if self.optimizer is None else optimizers.slots_of(self.optimizer)
        row_slots = frozenset() if self.optimizer is None else self.optimizer.row_slots
        groups = None if self.groups is None else self.groups()
        if groups is not None and self.storage in (Storage.SPLIT, Storage.MEMORY_MAP):
            return SplitTable(
                self.name,
                groups,
                dim,
                mapping=None if file is None else file.mapping,
                file_rows=None if file is None else file.rows,
                combiner=self.combiner,
                slots=slots,
                row_slots=row_slots,
                precision=self.precision,
            )
        return EmbeddingTable(
            self.name,
            rows,
            dim,
            combiner=self.combiner,
            slots=slots,
            row_slots=row_slots,
            frozen=self.optimizer is None,
            by_reference=self.by_reference,
            initial_value=initial_value,
            groups=groups,
            precision=self.precision,
        )

    def on_tpu(self, hosts: int, chunk_bytes: int = CHUNK_BYTES) -> TPUTable:
        """The table on a TPU, whose backend makes and fills it; rows that never move are always stored separately.

        Args:
            hosts: number of the TPU's hosts.
            chunk_bytes: largest chunk of initial values that is read at once.
        """
        from embexp.tables.tpu_tables import TPUTable  # with what only a TPU needs

        return TPUTable(
            self.name,
            self.source,
            self.source.rows,
            self.source.dim,
            combiner=self.combiner,
            optimizer=self.optimizer,
            frozen_rows=self.frozen_rows,
            by_reference=self.by_reference,
            hosts=hosts,
            chunk_bytes=chunk_bytes,
        )


Plans = Mapping[str, TablePlan]
"""By the name of the table."""


def make_tables(plans: Plans) -> dict[str, AnyTable]:
    """Makes the variables of every table in the current graph; only `memory_map` and `constant` fill them.

    Raises:
        RunError: constants would be more than a graph can hold.
    """
    methods = {name: plan.method for name, plan in plans.items()}
    for check in {method.check for method in methods.values()}:
        sources = {name: plans[name].source for name, method in methods.items() if method.check is check}
        check({name: (source.rows, source.dim) for name, source in sources.items()})
    return {
        name: plan.variables(None if (value := methods[name].initial_value) is None else value(plan.source))
        for name, plan in plans.items()
    }


def make_on_tpu(plans: Plans, *, hosts: int) -> dict[str, TPUTable]:
    """The tables of a TPU with `hosts` hosts; its backend makes and fills them."""
    return {name: plan.on_tpu(hosts, plan.method.chunk_bytes) for name, plan in plans.items()}


def fill_tables(tables: Mapping[str, AnyTable | TPUTable], plans: Plans) -> bool:
    """Fills tables that were made eagerly, and slots that come from an earlier checkpoint.

    Returns:
        Whether there was anything to fill.
    """
    filled = False
    for name, table in tables.items():
        for slot, values in table.slot_fills(plans[name].slots):
            assign_rows(slot, values)
            filled = True
    for name, table in tables.items():
        for part, rows in table.fills(plans[name].source):
            if (eagerly := plans[name].method.eagerly) is None:
                raise _unfit(plans[name], "it does not work in the function runtime", "choose runtime=session")
            eagerly(part, rows)
            filled = True
    return filled


def reset_rows(tables: Mapping[str, AnyTable], plans: Plans) -> dict[str, int]:
    """Gives rows that start again, and their slots, their initial values, in tables that were made eagerly.

    Returns:
        How many rows, by table that has some.
    """
    counts: dict[str, int] = {}
    for name, plan in plans.items():
        table = tables[name]
        if plan.resets is None or plan.optimizer is None or isinstance(table, MappedTable):
            continue
        resets = plan.resets()
        for chunk in chunks(plan.source.rows, plan.source.dim, CHUNK_BYTES):
            chosen = np.flatnonzero(resets[chunk.start : chunk.stop])
            ids = chosen + chunk.start
            table.scatter(ids, plan.source.read(chunk.start, chunk.stop)[chosen])
            for slot, value in optimizers.slots_of(plan.optimizer).items():
                table.scatter(ids, np.full((len(ids), table.width(slot)), value, np.float32), slot)
        counts[name] = int(np.count_nonzero(resets))
        if table.touched_state is not None:
            table.touched_state.forget()
    return counts


def fill_in_sessions(tables: Mapping[str, AnyTable], plans: Plans) -> SessionFills:
    """What fills tables that were made in the current graph, and their slots; adds operations to the graph."""
    fills = SessionFills()
    slots = [fill for name, table in tables.items() for fill in table.slot_fills(plans[name].slots)]
    if slots:
        fills.add(AssignInSession([(slot.variable, values) for slot, values in slots]).fill, always=False)
    for name, table in tables.items():
        if feeds := table.feeds():
            fills.add(partial(_feed, feeds), always=True, whole=feeds)
        pairs = [(part.variable, rows) for part, rows in table.fills(plans[name].source)]
        if pairs:
            if (in_session := plans[name].method.in_session) is None:
                raise _unfit(plans[name], "it does not work in sessions", "choose runtime=function")
            in_session(pairs, fills, table.by_reference)
    return fills


def _unfit(plan: TablePlan, rule: str, remedy: str) -> ConfigError:
    return ConfigError([Fault(plan.init_path, plan.init.kind, rule, remedy)])


def _feed(feeds: list[tuple[Any, np.ndarray]], session: Any) -> None:
    for variable, values in feeds:
        session.run(variable.initializer, {variable.initial_value: values})
