"""Trainable rows that never moved, by cause."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np


class Cause(StrEnum):
    """Why a row never moved."""

    LEARNING_RATE_ZERO = "learning_rate_zero"
    """At no step that was done was its learning rate above 0."""
    NO_GRADIENT = "no_gradient"
    """Steps looked it up to move it, and left it as it was."""
    NEVER_MET = "never_met"
    """No step looked it up to move it."""


@dataclass(frozen=True, eq=False)
class NeverMoved:
    """The trainable rows of a table, by whether they moved and why not.

    Attributes:
        moved: how many have other bits than before the first step.
        rows: bool [rows] for each cause of any, the rows that never moved.
        special: how many rows without a token never moved because they were never met, which is no fault.
    """

    moved: int
    rows: dict[Cause, np.ndarray]
    special: int

    @property
    def counts(self) -> dict[Cause, int]:
        """How many rows never moved, by cause."""
        return {cause: int(np.count_nonzero(self.rows[cause])) if cause in self.rows else 0 for cause in Cause}

    @property
    def count(self) -> int:
        """How many rows never moved, without special ones that were never met."""
        return sum(self.counts.values())


def by_cause(
    changed: np.ndarray,
    *,
    frozen: np.ndarray | None,
    looked_up: np.ndarray | None,
    idle: np.ndarray | None,
    special: np.ndarray,
) -> NeverMoved:
    """Sorts the rows of a table that never moved by cause. A learning rate of 0 comes before other causes.

    Args:
        changed: bool [rows], whether a row's bits are others than before the first step.
        frozen: bool [rows], rows that must not move; None: none.
        looked_up: bool [rows], rows that steps looked up to move them; None: none was.
        idle: bool [rows], rows whose learning rate was 0 at every step; None: none.
        special: integers, the numbers of rows without a token: the OOV row and free ones.
    """
    trainable = np.ones(len(changed), np.bool_) if frozen is None else ~frozen
    unmoved = trainable & ~changed
    met = np.zeros(len(changed), np.bool_) if looked_up is None else looked_up
    spared = special[unmoved[special] & ~met[special]]
    moved = int(np.count_nonzero(trainable)) - int(np.count_nonzero(unmoved))
    unmoved[spared] = False
    found = {}
    if idle is not None:
        found[Cause.LEARNING_RATE_ZERO] = unmoved & idle
        unmoved = unmoved & ~idle
    found |= {Cause.NO_GRADIENT: unmoved & met, Cause.NEVER_MET: unmoved & ~met}
    return NeverMoved(moved, {cause: rows for cause, rows in found.items() if rows.any()}, len(spared))


def most_frequent(rows: np.ndarray, frequencies: np.ndarray | None, *, shown: int = 5) -> np.ndarray:
    """The rows of a mask that were seen most often in the training split, most frequent first: int64, at most `shown`.

    Args:
        rows: bool [rows].
        frequencies: integers [n], n ≤ rows, how often each row was seen; None, and rows beyond them: not counted.
        shown: how many.
    """
    numbers = np.flatnonzero(rows)
    if frequencies is not None and len(numbers):
        counts = np.zeros(len(numbers), np.int64)
        counted = numbers < len(frequencies)
        counts[counted] = frequencies[numbers[counted]]
        if len(numbers) > shown:  # rows that are as common as the last of them, or more
            kept = counts >= np.partition(counts, len(counts) - shown)[len(counts) - shown]
            numbers, counts = numbers[kept], counts[kept]
        numbers = numbers[np.argsort(-counts, kind="stable")]
    return numbers[:shown]
