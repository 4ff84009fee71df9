"""The freeze policies of a run on its tables: groups of rows, and the layout of each table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from embexp.errors import ConfigError, Fault
from embexp.freezing import whole_table
from embexp.freezing.grouping import Grouping, Taken, group
from embexp.freezing.row_facts import RowFacts
from embexp.freezing.schedule import first_steps
from embexp.specs.freezing import FreezeTable, NoFreeze, phases_of
from embexp.specs.inits import MemoryMap
from embexp.specs.optimizers import slot_count
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage

_FLOAT_BYTES = 4
_INDEX_BYTES = 4
_WORTH_BYTES = 1 << 20
_WORTH_PART = 0.1


@dataclass(frozen=True)
class TablePolicy:
    """Which rows of a table move, and how they are kept.

    Attributes:
        rows: vocabulary size.
        storage: how they are kept.
        grouping: which rows move when, and how fast; None where all rows are treated alike: all move, or none.
        fully_frozen: no row ever moves.
        taken: the rows that each rule of the policy takes.
    """

    rows: int
    storage: Storage
    grouping: Grouping | None = None
    fully_frozen: bool = False
    taken: tuple[Taken, ...] = ()

    @property
    def frozen_rows(self) -> int:
        """Number of rows that never move."""
        if self.fully_frozen:
            return self.rows
        return 0 if self.grouping is None else self.grouping.frozen_rows

    @property
    def frozen(self) -> np.ndarray | None:
        """Bool [rows], whether a row never moves; None: all rows are alike, see `fully_frozen`."""
        return None if self.grouping is None else self.grouping.frozen

    def as_json(self) -> list[dict[str, Any]]:
        """The rows that each rule takes, for summary.json."""
        return [
            {
                "phase": each.phase,
                "kind": each.kind,
                "multiplier": each.multiplier,
                "rows_named": each.named,
                "rows_taken": each.rows,
                **({"misfit": each.shortfall} if each.shortfall else {}),
            }
            for each in self.taken
        ]


def settle(
    spec: RunSpec,
    facts: Mapping[str, RowFacts],
    *,
    steps_per_epoch: float,
    runtime: RuntimeKind,
) -> dict[str, TablePolicy]:
    """Applies every table's policy to its rows and chooses its layout.

    Args:
        spec: of the run, with every dim settled.
        facts: of each table's rows.
        steps_per_epoch: examples of the training split / batch size.
        runtime: in which the run is executed.

    Raises:
        ConfigError: a table's own rule takes no row, or an inherited one takes none anywhere; with all of them.
        DataError: a file that a rule names is malformed.
    """
    found: dict[str, TablePolicy] = {}
    faults: list[Fault] = []
    for name in spec.tables:
        try:
            found[name] = _table_policy(spec, name, facts[name], steps_per_epoch, runtime)
        except ValueError as error:
            faults.append(Fault(spec.freeze_path(name), spec.freeze_of(name).kind, str(error)))
    faults += [] if faults else [*_idle(spec, found), *_layouts(spec, found)]
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    return found


def _table_policy(
    spec: RunSpec, name: str, facts: RowFacts, steps_per_epoch: float, runtime: RuntimeKind
) -> TablePolicy:
    """Applies one table's policy. What concerns all rows alike makes no groups, which would take a byte a row.

    Raises:
        ValueError: the policy does not fit the table; says why.
    """
    freeze = spec.freeze_of(name)
    mapped = isinstance(spec.init_of(name), MemoryMap) and facts.pretrained is not None
    match freeze:
        case NoFreeze():
            return TablePolicy(facts.rows, Storage.VARIABLE)
        case FreezeTable():
            whole_table.check_random(name, freeze.random, facts)
            storage = Storage.MEMORY_MAP if mapped else Storage.VARIABLE
            taken = (Taken(0, 0, freeze.kind, 0.0, facts.rows, facts.rows),)
            return TablePolicy(facts.rows, storage, fully_frozen=True, taken=taken)
    phases = phases_of(freeze)
    grouping = group(phases, first_steps(phases, steps_per_epoch), facts)
    if mapped and np.any(grouping.frozen & facts.pretrained):
        storage = Storage.MEMORY_MAP
    else:
        storage = _unmapped_storage(spec, name, grouping, runtime)
    fully_frozen = grouping.frozen_rows == facts.rows
    alike = fully_frozen or grouping.inert
    return TablePolicy(facts.rows, storage, None if alike else grouping, fully_frozen, grouping.taken)


def _unmapped_storage(spec: RunSpec, name: str, grouping: Grouping, runtime: RuntimeKind) -> Storage:
    """The layout of a table whose rows are all in memory: as its setting says, or as the strategy or `auto` choose."""
    setting, frozen = spec.tables[name].storage, grouping.frozen_rows
    splits_always = setting is Storage.SPLIT or spec.strategy.own_memory
    if 0 < frozen < grouping.rows and splits_always:
        return Storage.SPLIT
    if setting is not Storage.AUTO:
        return Storage.VARIABLE
    return automatic_layout(
        rows=grouping.rows,
        dim=spec.tables[name].width,
        slots=slot_count(spec.optimizer_of(name)),
        frozen_rows=frozen,
        splits=spec.init_of(name).fills_parts and runtime is not RuntimeKind.ESTIMATOR,
    )


def saved_by_split(*, rows: int, dim: int, slots: int, frozen_rows: int) -> int:
    """Bytes that a split table takes less than a variable: slots of frozen rows, less the index that finds each row."""
    return _FLOAT_BYTES * dim * slots * frozen_rows - _INDEX_BYTES * rows


def automatic_layout(*, rows: int, dim: int, slots: int, frozen_rows: int, splits: bool) -> Storage:
    """The layout of a table that is not mapped: split where that saves a tenth of its memory, and a megabyte.

    Args:
        rows: vocabulary size.
        dim: length of a row.
        slots: numbers that the optimizer keeps for each parameter.
        frozen_rows: rows that never move.
        splits: whether the init method and the runtime allow it.
    """
    saved = saved_by_split(rows=rows, dim=dim, slots=slots, frozen_rows=frozen_rows)
    whole = _FLOAT_BYTES * rows * dim * (1 + slots)
    worth = saved >= _WORTH_BYTES and saved >= _WORTH_PART * whole
    return Storage.SPLIT if splits and 0 < frozen_rows < rows and worth else Storage.VARIABLE


def _idle(spec: RunSpec, found: Mapping[str, TablePolicy]) -> Iterator[Fault]:
    """Rules that take no row: of a table's own policy, or of the inherited one on every table that has it."""
    heirs = [name for name in spec.tables if spec.tables[name].freeze is None]
    for name, policy in found.items():
        if name not in heirs:
            yield from (_no_row(spec, name, [name], each) for each in policy.taken if not each.rows)
    if heirs:
        for rules in zip(*(found[name].taken for name in heirs), strict=True):
            if not any(each.rows for each in rules):
                yield _no_row(spec, heirs[0], heirs, rules[0])


def _no_row(spec: RunSpec, name: str, tables: Sequence[str], rule: Taken) -> Fault:
    path = spec.freeze_path(name)
    if spec.freeze_of(name).kind == "schedule":
        path += f".phases.{rule.phase}.rules.{rule.rule}"
    why = rule.shortfall or "it names none"
    if rule.named:
        why = "rules before it take all that it names"
    where = f"table {tables[0]}" if len(tables) == 1 else f"the tables {', '.join(tables)}"
    return Fault(path, rule.kind, f"this rule takes no row of {where}: {why}", "correct it, or leave it out")


def _layouts(spec: RunSpec, found: Mapping[str, TablePolicy]) -> Iterator[Fault]:
    """Layouts that a table asks for itself and whose parts would be empty."""
    for name, policy in found.items():
        table, path = spec.tables[name], f"tables.{name}"
        count = f"{policy.frozen_rows} of its {policy.rows} rows never move"
        if table.storage is Storage.SPLIT and policy.storage is not Storage.SPLIT:
            yield Fault(
                f"{path}.storage",
                "'split'",
                f"a table is split into rows that never move and rows that may, and {count}",
                "leave it auto",
            )
        own = isinstance(table.init, MemoryMap)
        if (own or table.storage is Storage.MEMORY_MAP) and policy.storage is not Storage.MEMORY_MAP:
            yield Fault(
                f"{path}.{'init' if own else 'storage'}",
                "memory_map",
                f"rows that never move and came from the file are mapped, and there are none ({count})",
                f"choose init@{path}.init=assign" if own else "leave it auto",
            )
