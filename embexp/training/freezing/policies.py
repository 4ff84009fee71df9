"""Freeze policies: the rows that each one names, the groups of rows that phases make, and the layout of each table."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import ConfigError, DataError, Fault
from embexp.specs.base import implementation
from embexp.specs.freezing import (
    CustomFreeze,
    Freeze,
    FreezeOldRows,
    FreezePretrainedRows,
    FreezeRows,
    FreezeTable,
    NoFreeze,
    Phase,
    TableRule,
)
from embexp.specs.inits import Init, MemoryMap
from embexp.specs.run import RunSpec
from embexp.specs.running import RuntimeKind
from embexp.specs.tables import Storage, Table
from embexp.system import arrays, files
from embexp.system.user_code import NamedFunction, kind_of

_INDEX_BYTES = 4
_WORTH_BYTES = 1 << 20
_WORTH_PART = 0.1
MOST_GROUPS = 256
"""A row's group is a byte."""


@dataclass(frozen=True)
class RowFacts:
    """Facts about a table's rows.

    Attributes:
        vocabulary: what they stand for; None: it is not at hand.
        pretrained: bool [rows], whether a row came from a file or a checkpoint; None: the table has none.
        old: bool [rows], whether a row came from a checkpoint as a trained one; None: the table has none.
    """

    rows: int
    vocabulary: Vocabulary | None = None
    pretrained: np.ndarray | None = None
    old: np.ndarray | None = None

    def rows_of(self, tokens: Sequence[str]) -> np.ndarray:
        """int64 row of each token; -1 for one without a row of its own, such as those of the OOV row or a hash bucket.

        Raises:
            ValueError: no vocabulary is at hand.
        """
        if self.vocabulary is None:
            raise ValueError("a rule about tokens needs the table's vocabulary")
        rows = self.vocabulary.rows(list(tokens))
        return np.where(rows < self.vocabulary.first, -1, rows)


@dataclass(frozen=True)
class NamedRows:
    """The rows of a table that a rule names, bool [rows], and why they are fewer than the config lists, or ""."""

    mask: np.ndarray
    shortfall: str = ""


@dataclass(frozen=True)
class TablePolicy:
    """Which rows of a table move, and how they are kept.

    Attributes:
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


@dataclass(frozen=True)
class _Setting:
    """How the config freezes and stores a table. `slot_bytes` is the size of a row's slots."""

    name: str
    table: Table
    freeze: Freeze
    path: str
    init: Init
    slot_bytes: int

    def rule_path(self, phase: int, rule: int) -> str:
        """The config path of a rule."""
        return f"{self.path}.phases.{phase}.rules.{rule}" if self.freeze.kind == "schedule" else self.path


def settle(
    spec: RunSpec,
    facts: Mapping[str, RowFacts],
    *,
    steps_per_epoch: float,
    runtime: RuntimeKind,
) -> dict[str, TablePolicy]:
    """Applies every table's policy to its rows and chooses its layout.

    Args:
        spec: with every dim settled.
        steps_per_epoch: examples of the training split / batch size.

    Raises:
        ConfigError: a table's own rule takes no row, or an inherited one takes none anywhere; with all of them.
        DataError: a file that a rule names is malformed.
    """
    settings = [
        _Setting(
            name,
            table,
            spec.freeze_of(name),
            spec.freeze_path(name),
            spec.init_of(name),
            table.slot_bytes(spec.optimizer_of(name), table.width),
        )
        for name, table in spec.tables.items()
    ]
    found: dict[str, TablePolicy] = {}
    faults: list[Fault] = []
    for setting in settings:
        splits = setting.init.fills_parts and runtime is not RuntimeKind.ESTIMATOR
        try:
            found[setting.name] = _table_policy(
                setting, facts[setting.name], steps_per_epoch, splits=splits, must_split=spec.strategy.own_memory
            )
        except ValueError as error:
            faults.append(Fault(setting.path, setting.freeze.kind, str(error)))
    faults += [] if faults else [*_idle(settings, found), *_layouts(settings, found)]
    if faults:
        raise ConfigError(list(dict.fromkeys(faults)))
    return found


def _table_policy(
    setting: _Setting, facts: RowFacts, steps_per_epoch: float, *, splits: bool, must_split: bool
) -> TablePolicy:
    """Applies a table's policy. Rules for all rows make no groups, because groups would take a byte per row.

    Args:
        splits: whether `auto` may split the table.
        must_split: whether frozen rows are always stored separately, as on a TPU.

    Raises:
        ValueError: the policy does not fit the table; the message says why.
    """
    freeze, table = setting.freeze, setting.table
    mapped = isinstance(setting.init, MemoryMap) and facts.pretrained is not None
    match freeze:
        case NoFreeze():
            return TablePolicy(facts.rows, Storage.VARIABLE)
        case FreezeTable():
            if freeze.random is False and not np.any(facts.pretrained):
                raise ValueError(
                    f"random is false, but the pretrained file has no rows for table {setting.name}, so random "
                    f"values would be frozen"
                )
            storage = Storage.MEMORY_MAP if mapped else Storage.VARIABLE
            taken = (Taken(0, 0, freeze.kind, 0.0, facts.rows, facts.rows),)
            return TablePolicy(facts.rows, storage, fully_frozen=True, taken=taken)
    phases = freeze.as_phases
    grouping = group(phases, first_steps(phases, steps_per_epoch), facts, setting.rule_path)
    frozen = grouping.frozen_rows
    if mapped and np.any(grouping.frozen & facts.pretrained):
        storage = Storage.MEMORY_MAP
    elif 0 < frozen < facts.rows and (table.storage is Storage.SPLIT or must_split):
        storage = Storage.SPLIT
    elif table.storage is Storage.AUTO:
        size = table.row_bytes(table.width)
        storage = automatic_layout(
            rows=facts.rows, row_bytes=size, slot_bytes=setting.slot_bytes, frozen_rows=frozen, splits=splits
        )
    else:
        storage = Storage.VARIABLE
    alike = frozen == facts.rows or grouping.inert
    return TablePolicy(facts.rows, storage, None if alike else grouping, frozen == facts.rows, grouping.taken)


def automatic_layout(*, rows: int, row_bytes: int, slot_bytes: int, frozen_rows: int, splits: bool) -> Storage:
    """The layout of a table that is not mapped: split where that saves a tenth of its memory, and a megabyte.

    A split table lacks the slots of frozen rows, and needs an index that finds each row.

    Args:
        row_bytes: of a row.
        slot_bytes: of the slots of a row.
        frozen_rows: rows that never move.
        splits: whether the init method and the runtime allow it.
    """
    saved = slot_bytes * frozen_rows - _INDEX_BYTES * rows
    whole = rows * (row_bytes + slot_bytes)
    worth = saved >= _WORTH_BYTES and saved >= _WORTH_PART * whole
    return Storage.SPLIT if splits and 0 < frozen_rows < rows and worth else Storage.VARIABLE


def _idle(settings: Sequence[_Setting], found: Mapping[str, TablePolicy]) -> Iterator[Fault]:
    """Rules that match no row, in a table's own policy or in the policy that all other tables inherit."""
    heirs = [setting for setting in settings if setting.table.freeze is None]
    for users in [*([setting] for setting in settings if setting not in heirs), *([heirs] if heirs else [])]:
        yield from _idle_rules(users, found)


def _idle_rules(users: Sequence[_Setting], found: Mapping[str, TablePolicy]) -> Iterator[Fault]:
    """Rules of one policy that match no row in any of its tables."""
    where = f"table {users[0].name}" if len(users) == 1 else f"the tables {', '.join(user.name for user in users)}"
    for rules in zip(*(found[user.name].taken for user in users), strict=True):
        if any(rule.rows for rule in rules):
            continue
        why = (
            "earlier rules match all rows that it names" if rules[0].named else rules[0].shortfall or "it names no rows"
        )
        path = users[0].rule_path(rules[0].phase, rules[0].rule)
        yield Fault(path, rules[0].kind, f"this rule matches no row of {where}: {why}", "correct it or remove it")


def _layouts(settings: Sequence[_Setting], found: Mapping[str, TablePolicy]) -> Iterator[Fault]:
    """Layouts that a table asks for although a part of them would be empty."""
    for setting in settings:
        table, path, policy = setting.table, f"tables.{setting.name}", found[setting.name]
        count = f"{policy.frozen_rows} of its {policy.rows} rows never move"
        if table.storage is Storage.SPLIT and policy.storage is not Storage.SPLIT:
            rule = f"a split table needs both rows that never move and rows that may, but {count}"
            yield Fault(f"{path}.storage", "'split'", rule, "leave it auto")
        own = isinstance(table.init, MemoryMap)
        if (own or table.storage is Storage.MEMORY_MAP) and policy.storage is not Storage.MEMORY_MAP:
            key, remedy = ("init", f"choose init@{path}.init=assign") if own else ("storage", "leave it auto")
            rule = f"only file rows that never move can be mapped, but there are none ({count})"
            yield Fault(f"{path}.{key}", "memory_map", rule, remedy)


@dataclass(frozen=True)
class Taken:
    """The rows of a table that a rule takes.

    Attributes:
        phase: number of its phase, from 0.
        rule: its place in the phase, from 0.
        multiplier: what their learning rate is multiplied by.
        named: rows that it names.
        rows: named ones that no earlier rule takes.
        shortfall: why it names fewer rows than the config lists, or "".
    """

    phase: int
    rule: int
    kind: str
    multiplier: float
    named: int
    rows: int
    shortfall: str = ""


@dataclass(frozen=True)
class Grouping:
    """The rows of a table by how they move.

    Attributes:
        groups: uint8 [rows], the group of each row.
        multipliers: float32 [phases, groups], what each group's learning rate is multiplied by; 0: rows do not move.
        starts: the first step of each phase, rising from 0.
        taken: the rows that each rule takes, in order.
    """

    groups: np.ndarray
    multipliers: np.ndarray
    starts: tuple[int, ...]
    taken: tuple[Taken, ...]

    @cached_property
    def frozen(self) -> np.ndarray:
        """Bool [rows]: whether a row never moves."""
        frozen: np.ndarray = (self.multipliers == 0).all(0)[self.groups]
        return frozen

    @cached_property
    def frozen_rows(self) -> int:
        """Number of rows that never move."""
        return int(np.count_nonzero(self.frozen))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.groups)

    @property
    def inert(self) -> bool:
        """Whether all rows move at the full learning rate throughout."""
        return bool((self.multipliers == 1).all())


def group(
    phases: Sequence[Phase],
    starts: Sequence[int],
    facts: RowFacts,
    path: Callable[[int, int], str] = lambda phase, rule: f"freeze.phases.{phase}.rules.{rule}",
) -> Grouping:
    """Groups the rows of a table.

    Args:
        phases: rules of each; the first rule that names a row decides.
        starts: the step at which each begins, see `first_steps`.
        path: from the numbers of a phase and of a rule in it to the config path of the rule.

    Raises:
        ConfigError: the user's own function can't be called, or returns something else than a mask.
        DataError: a file is malformed.
        ValueError: there are more than 256 groups; or the rules are about tokens and no vocabulary is at hand.
    """
    groups = np.zeros(facts.rows, np.uint8)
    histories: list[tuple[float, ...]] = [()]
    taken: list[Taken] = []
    for number, phase in enumerate(phases):
        deciding = _deciding(number, phase, facts, path, taken)
        factors = [*(rule.factor for rule in phase.rules), 1.0]
        groups, histories = _refined(groups, histories, deciding, factors)
    multipliers = np.array(histories, np.float32).T
    return Grouping(groups, multipliers, tuple(starts), tuple(taken))


def _deciding(
    number: int, phase: Phase, facts: RowFacts, path: Callable[[int, int], str], taken: list[Taken]
) -> np.ndarray:
    """The rule for each row, uint8 [rows]; the number of rules stands for none. Counts the rows of each rule."""
    none = len(phase.rules)
    if none >= MOST_GROUPS:
        raise ValueError(f"phase {number} has {none} rules; the maximum is {MOST_GROUPS - 1}")
    deciding = np.full(facts.rows, none, np.uint8)
    for place, rule in enumerate(phase.rules):
        found: NamedRows = implementation(rule)(path(number, place), facts)
        mine = found.mask & (deciding == none)
        deciding[mine] = place
        counts = int(np.count_nonzero(found.mask)), int(np.count_nonzero(mine))
        taken.append(Taken(number, place, rule.kind, rule.factor, *counts, found.shortfall))
    return deciding


def _refined(
    groups: np.ndarray, histories: list[tuple[float, ...]], deciding: np.ndarray, factors: Sequence[float]
) -> tuple[np.ndarray, list[tuple[float, ...]]]:
    """Groups whose rows also share a factor in one more phase, numbered by the first use of (group, rule)."""
    pairs = groups.astype(np.uint16) * np.uint16(len(factors)) + deciding
    numbers: dict[tuple[float, ...], int] = {}
    renumbered = np.zeros(len(histories) * len(factors), np.uint8)
    for pair in np.flatnonzero(np.bincount(pairs, minlength=len(renumbered))):
        before, rule = divmod(int(pair), len(factors))
        number = numbers.setdefault((*histories[before], factors[rule]), len(numbers))
        if number >= MOST_GROUPS:
            raise ValueError(f"the rules divide the rows into more than {MOST_GROUPS} groups")
        renumbered[pair] = number
    return renumbered[pairs], list(numbers)


def first_steps(phases: Sequence[Phase], steps_per_epoch: float) -> tuple[int, ...]:
    """The step at which each phase begins.

    An epoch's phase begins with the first step that reads an example of that epoch.

    Args:
        steps_per_epoch: examples of the training split / batch size.

    Raises:
        ValueError: a phase would begin before the one that precedes it; says which.
    """
    starts = [
        phase.step if phase.step is not None else math.floor((phase.epoch or 0.0) * steps_per_epoch + 1e-9)
        for phase in phases
    ]
    for number, (before, after) in enumerate(itertools.pairwise(starts), 1):
        if after <= before:
            raise ValueError(f"phase {number} begins at step {after}, but the one before it begins at step {before}")
    return tuple(starts)


def listed_rows(rule: FreezeRows, path: str, facts: RowFacts) -> NamedRows:
    """Rows that are listed by number, by token or by a mask.

    Raises:
        DataError: a file is malformed.
        ValueError: there are tokens, and no vocabulary is at hand.
    """
    mask = np.zeros(facts.rows, np.bool_)
    shortfalls = []
    for start, stop in rule.rows:
        mask[start:stop] = True
        if stop > facts.rows:
            shortfalls.append(f"[{start}, {stop}] goes beyond the table's {facts.rows} rows")
    tokens = [*rule.tokens, *([] if rule.tokens_file is None else _tokens(Path(rule.tokens_file)))]
    if tokens:
        found = facts.rows_of(tokens)
        mask[found[found >= 0]] = True
        lacking = [token for token, row in zip(tokens, found, strict=True) if row < 0]
        if lacking:
            some = ", ".join(map(repr, lacking[:3])) + (", …" if len(lacking) > 3 else "")
            shortfalls.append(f"{len(lacking)} of {len(tokens)} tokens are not in the vocabulary ({some})")
    if rule.mask_file is not None:
        of_file = _mask(Path(rule.mask_file))
        if len(of_file) == facts.rows:
            mask |= of_file
        else:
            shortfalls.append(f"{rule.mask_file} has {len(of_file)} values, but the table has {facts.rows} rows")
    return NamedRows(mask, "; ".join(shortfalls))


def _tokens(path: Path) -> list[str]:
    try:
        with files.opened(path) as file:
            lines = file.read().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: found no UTF-8 text with a token per line: {error}") from error
    lines = lines[:-1] if lines[-1] == "" else lines
    return [line.removesuffix("\r") for line in lines]


def _mask(path: Path) -> np.ndarray:
    try:
        mask, _ = arrays.mapped(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: found no .npy file of booleans: {error}") from error
    if mask.dtype != np.bool_ or mask.ndim != 1:
        raise DataError(f"{path}: found no .npy file of booleans, one for each row of a table")
    return mask


def old_rows(rule: FreezeOldRows, path: str, facts: RowFacts) -> NamedRows:
    """Rows that an earlier run trained; rows that are new since are not named."""
    return _of_mask(facts.old, facts.rows, "the table has no rows of a checkpoint")


def pretrained_rows(rule: FreezePretrainedRows, path: str, facts: RowFacts) -> NamedRows:
    """Rows of the pretrained file; those that it lacks are not named."""
    return _of_mask(facts.pretrained, facts.rows, "the table has no pretrained file")


def _of_mask(mask: np.ndarray | None, rows: int, shortfall: str) -> NamedRows:
    return NamedRows(np.zeros(rows, np.bool_), shortfall) if mask is None else NamedRows(mask)


def custom_rows(rule: CustomFreeze, path: str, facts: RowFacts) -> NamedRows:
    """Rows that the user's own function names: `function(facts, **args)` returns bool [rows].

    Raises:
        ConfigError: it can't be imported or called, or returns something else.
    """
    function = NamedFunction(path, rule.function, rule.args, "facts")
    mask = function(facts)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (facts.rows,):
        found = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, np.ndarray) else kind_of(mask)
        raise function.fault(f"it must return an array of bool [{facts.rows}], one for each row, but returned {found}")
    return NamedRows(mask, "" if mask.any() else f"{function.name} names none")


def whole_table(rule: FreezeTable | TableRule, path: str, facts: RowFacts) -> NamedRows:
    """Every row."""
    return NamedRows(np.ones(facts.rows, np.bool_))
