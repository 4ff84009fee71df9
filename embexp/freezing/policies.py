"""The freeze policies of a run on its tables: groups of rows, and the layout of each table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from embexp.data.vocabulary import Vocabulary
from embexp.errors import ConfigError, Fault
from embexp.freezing import layout
from embexp.freezing.grouping import Grouping, Taken, first_steps, group
from embexp.freezing.selection import RowFacts
from embexp.pretrained.aligned import Pretrained, PretrainedTable
from embexp.specs.freezing import FreezeTable, NoFreeze, phases_of
from embexp.specs.inits import MemoryMap
from embexp.specs.optimizers import slot_count
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage
from embexp.vectors.alignment import RowKind


@dataclass(frozen=True)
class TablePolicy:
    """What becomes of a table's rows.

    Attributes:
        rows: vocabulary size.
        storage: how they are kept.
        grouping: which rows move when, and how fast; None where all rows are treated alike: all move, or none.
        still: no row ever moves.
        taken: what each rule of the policy came to.
    """

    rows: int
    storage: Storage
    grouping: Grouping | None = None
    still: bool = False
    taken: tuple[Taken, ...] = ()

    @property
    def frozen_rows(self) -> int:
        """Number of rows that never move."""
        if self.still:
            return self.rows
        return 0 if self.grouping is None else self.grouping.frozen_rows

    @property
    def frozen(self) -> np.ndarray | None:
        """Bool [rows], whether a row never moves; None: none does, if the table is still, and else all do."""
        return None if self.grouping is None else self.grouping.frozen

    def as_json(self) -> list[dict[str, Any]]:
        """What each rule took, for summary.json."""
        return [
            {
                "phase": each.phase,
                "kind": each.kind,
                "multiplier": each.multiplier,
                "rows_named": each.named,
                "rows_taken": each.rows,
                **({"misfit": each.misfit} if each.misfit else {}),
            }
            for each in self.taken
        ]


def row_facts(vocabulary: Vocabulary | None, rows: int, given: PretrainedTable | None) -> RowFacts:
    """What rules ask about a table's rows.

    Args:
        vocabulary: what they stand for; None: nobody has looked.
        rows: how many there are.
        given: the table's part in a file.
    """
    pretrained = None if given is None else given.alignment.kinds == RowKind.PRETRAINED
    old = None if given is None else given.old
    return RowFacts(rows, None if vocabulary is None else partial(_own_rows, vocabulary), pretrained, old)


def _own_rows(vocabulary: Vocabulary, tokens: Sequence[str]) -> np.ndarray:
    """Row of each token; -1 also for those that share the row of unknown values."""
    rows = vocabulary.rows(list(tokens))
    return np.where(rows < int(vocabulary.oov), -1, rows)


def settle(
    spec: RunSpec,
    facts: Mapping[str, RowFacts],
    given: Pretrained,
    *,
    steps_per_epoch: float,
    runtime: RuntimeKind,
) -> dict[str, TablePolicy]:
    """Applies every table's policy to its rows and chooses its layout.

    Args:
        spec: what the user asked for, with every dim settled.
        facts: of each table's rows.
        given: what files have for which table.
        steps_per_epoch: examples of the training part / batch size.
        runtime: in which the run is executed.

    Raises:
        ConfigError: a table's own rule takes no row, or an inherited one takes none anywhere; with all of them.
        DataError: a file that a rule names is not what it should be.
    """
    found: dict[str, TablePolicy] = {}
    faults: list[Fault] = []
    for name in spec.tables:
        try:
            found[name] = _of_table(spec, name, facts[name], given.tables.get(name), steps_per_epoch, runtime)
        except ValueError as error:
            faults.append(Fault(spec.freeze_path(name), spec.freeze_of(name).kind, str(error)))
    faults += [] if faults else [*_idle(spec, found), *_layouts(spec, found)]
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    return found


def _of_table(
    spec: RunSpec,
    name: str,
    facts: RowFacts,
    given: PretrainedTable | None,
    steps_per_epoch: float,
    runtime: RuntimeKind,
) -> TablePolicy:
    freeze, init = spec.freeze_of(name), spec.init_of(name)
    mapped = isinstance(init, MemoryMap) and given is not None
    if isinstance(freeze, FreezeTable | NoFreeze):
        still = isinstance(freeze, FreezeTable)
        if isinstance(freeze, FreezeTable) and freeze.random is False and not np.any(facts.pretrained):
            raise ValueError(
                f"random is false, and the pretrained file has nothing for table {name}, so that random values would"
                " stay as they are"
            )
        storage = Storage.MEMORY_MAP if mapped and still else Storage.VARIABLE
        kind = (Taken(0, 0, "table", 0.0, facts.rows, facts.rows),) if still else ()
        return TablePolicy(facts.rows, storage, still=still, taken=kind)
    phases = phases_of(freeze)
    grouping = group(phases, first_steps(phases, steps_per_epoch), facts)
    frozen = grouping.frozen_rows
    if mapped and facts.pretrained is not None and np.any(grouping.frozen & facts.pretrained):
        storage = Storage.MEMORY_MAP
    elif 0 < frozen < facts.rows and (spec.tables[name].storage is Storage.SPLIT or spec.strategy.own_memory):
        storage = Storage.SPLIT
    elif spec.tables[name].storage is Storage.AUTO:
        storage = layout.automatic(
            rows=facts.rows,
            dim=spec.tables[name].width,
            slots=slot_count(spec.optimizer_of(name)),
            frozen_rows=frozen,
            splits=init.fills_parts and runtime is not RuntimeKind.ESTIMATOR,
        )
    else:
        storage = Storage.VARIABLE
    still = frozen == facts.rows
    alike = still or grouping.inert
    return TablePolicy(facts.rows, storage, None if alike else grouping, still, grouping.taken)


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
    why = rule.misfit or "it names none"
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
