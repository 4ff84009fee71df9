"""Rows in groups that are treated alike throughout a run: a small number per row, a multiplier per group and phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from embexp.freezing import factory
from embexp.freezing.row_facts import RowFacts
from embexp.specs.freezing import Phase

MOST_GROUPS = 256
"""A row's group is a byte."""


@dataclass(frozen=True)
class Taken:
    """The rows of a table that a rule takes.

    Attributes:
        phase: number of its phase, from 0.
        rule: its place in the phase, from 0.
        kind: of the rule.
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


def group(phases: Sequence[Phase], starts: Sequence[int], facts: RowFacts) -> Grouping:
    """Groups the rows of a table.

    Args:
        phases: rules of each; the first rule that names a row decides.
        starts: the step at which each begins, see `schedule.first_steps`.
        facts: about the rows.

    Raises:
        DataError: a file is malformed.
        ValueError: there are more than 256 groups; or the rules are about tokens and no vocabulary is at hand.
    """
    groups = np.zeros(facts.rows, np.uint8)
    histories: list[tuple[float, ...]] = [()]
    taken: list[Taken] = []
    for number, phase in enumerate(phases):
        deciding, of_phase = _deciding(number, phase, facts)
        taken += of_phase
        factors = [*(rule.multiplier for rule in phase.rules), 1.0]
        groups, histories = _refined(groups, histories, deciding, factors)
    multipliers = np.array(histories, np.float32).T
    return Grouping(groups, multipliers, tuple(starts), tuple(taken))


def _deciding(number: int, phase: Phase, facts: RowFacts) -> tuple[np.ndarray, list[Taken]]:
    """uint8 [rows], the rule that takes each row (one behind the last: none does), and what each rule takes."""
    none = len(phase.rules)
    if none >= MOST_GROUPS:
        raise ValueError(f"phase {number} has {none} rules; there may be {MOST_GROUPS - 1}")
    deciding = np.full(facts.rows, none, np.uint8)
    taken = []
    for place, rule in enumerate(phase.rules):
        found = factory.build(rule)(facts)
        mine = found.mask & (deciding == none)
        deciding[mine] = place
        counts = int(np.count_nonzero(found.mask)), int(np.count_nonzero(mine))
        taken.append(Taken(number, place, rule.kind, rule.multiplier, *counts, found.shortfall))
    return deciding, taken


def _refined(
    groups: np.ndarray, histories: list[tuple[float, ...]], deciding: np.ndarray, factors: Sequence[float]
) -> tuple[np.ndarray, list[tuple[float, ...]]]:
    """Groups whose rows also share a factor in one more phase; numbered by first use of (group, rule)."""
    pairs = groups.astype(np.uint16) * np.uint16(len(factors)) + deciding
    numbers: dict[tuple[float, ...], int] = {}
    renumbered = np.zeros(len(histories) * len(factors), np.uint8)
    for pair in np.flatnonzero(np.bincount(pairs, minlength=len(renumbered))):
        before, rule = divmod(int(pair), len(factors))
        number = numbers.setdefault((*histories[before], factors[rule]), len(numbers))
        if number >= MOST_GROUPS:
            raise ValueError(f"the rules make more than {MOST_GROUPS} groups of rows that are treated alike")
        renumbered[pair] = number
    return renumbered[pairs], list(numbers)
