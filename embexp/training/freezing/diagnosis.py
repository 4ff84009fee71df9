"""Trainable rows that never moved in a finished training: which, why, and the warning about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, assert_never

import numpy as np
import tensorflow as tf

from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.specs.base import Note, summarize_names
from embexp.specs.optimizers import TableOptimizer
from embexp.tables import optimizers
from embexp.training.freezing.policies import Grouping, TablePolicy

_STEPS_AT_ONCE = 65_536
_WORTH_TELLING = 0.01
"""Rows that no gradient reached are worth a warning if there are this many for each that moved. A gradient may well be
0 for a few of many rows; a model without a path to them leaves many where they are."""


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


@dataclass(frozen=True)
class Training:
    """How a table was trained.

    Attributes:
        total_steps: how many there were to be, which schedules may end with.
        epochs: passes over the training split that the steps make.
    """

    optimizer: TableOptimizer
    steps: int
    total_steps: int
    epochs: float


@dataclass(frozen=True)
class Reason:
    """Why some rows of a table never moved.

    Attributes:
        explanation: as a sentence about "they".
        count: how many rows.
        examples: their most frequent tokens, or their first numbers.
    """

    explanation: str
    count: int
    examples: str


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Trainable rows of a table that never moved.

    Attributes:
        found: the rows, by cause.
        trainable: how many of its rows may move.
    """

    found: NeverMoved
    table: str = ""
    trainable: int = 0
    reasons: tuple[Reason, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The keys of the table in summary.json."""
        return {
            "trainable_rows_moved": self.found.moved,
            "trainable_rows_never_moved": self.found.count,
            "never_moved_because": {cause.value: count for cause, count in self.found.counts.items()},
            "special_rows_never_met": self.found.special,
        }


NOTHING = Diagnosis(NeverMoved(0, {}, 0)).as_json()
"""The same keys of a table that is frozen whole."""
UNKNOWN: dict[str, Any] = dict.fromkeys(NOTHING)
"""The same keys where rows were not compared."""


def diagnose(
    name: str,
    changed: np.ndarray,
    looked_up: np.ndarray | None,
    policy: TablePolicy,
    vocabulary: Vocabulary,
    training: Training,
) -> Diagnosis:
    """Finds the trainable rows of a table that never moved.

    Args:
        changed: bool [rows], whether a row's bits are others than before the first step.
        looked_up: bool [rows], rows that steps looked up to move them; None: none was.
    """
    learning = learning_steps(training, policy.grouping)
    groups = None if policy.grouping is None else policy.grouping.groups
    idle = learning == 0
    found = by_cause(
        changed,
        frozen=np.ones(policy.rows, np.bool_) if policy.fully_frozen else policy.frozen,
        looked_up=looked_up,
        idle=None if not idle.any() else np.full(policy.rows, idle[0]) if groups is None else idle[groups],
        special=special_rows(vocabulary, policy.rows),
    )
    reasons = []
    for cause, mask in found.rows.items():
        if cause is Cause.NO_GRADIENT and found.counts[cause] < _WORTH_TELLING * found.moved:
            continue
        paused = learning[np.unique(groups[mask]) if groups is not None else slice(None)] < training.steps
        explanation = _explanation(cause, mask, bool(paused.any()), policy.grouping, training)
        reasons.append(Reason(explanation, found.counts[cause], _some(mask, vocabulary)))
    return Diagnosis(found, name, policy.rows - policy.frozen_rows, tuple(reasons))


def warnings(tables: Iterable[Diagnosis]) -> list[str]:
    """A line for each reason; tables with the same one share it."""
    found: dict[str, list[tuple[Diagnosis, Reason]]] = {}
    for table in tables:
        for reason in table.reasons:
            found.setdefault(reason.explanation, []).append((table, reason))
    return [_line(explanation, alike) for explanation, alike in found.items()]


def _line(explanation: str, alike: Sequence[tuple[Diagnosis, Reason]]) -> str:
    if len(alike) == 1:
        [(table, reason)] = alike
        count = f"{reason.count:,} of {table.trainable:,} trainable rows never moved"
        return Note(f"tables.{table.table}", f"{count}: they {explanation} ({reason.examples})")
    counts = [f"tables.{table.table} {reason.count:,} of {table.trainable:,}" for table, reason in alike]
    return f"trainable rows never moved ({summarize_names(counts, 'tables')}): they {explanation}"


def learning_steps(training: Training, grouping: Grouping | None) -> np.ndarray:
    """At how many of the steps that were done each group of rows had a learning rate above 0: int64 [groups].

    Args:
        grouping: the groups and their multipliers; None: one group, its multiplier 1.
    """
    multipliers = np.ones((1, 1), np.float32) if grouping is None else grouping.multipliers
    starts = (0,) if grouping is None else grouping.starts
    rate = np.float32(training.optimizer.learning_rate)
    constant = optimizers.is_constant(training.optimizer.schedule)
    found = np.zeros(multipliers.shape[1], np.int64)
    for start, stop, factors in zip(starts, [*starts[1:], training.steps], multipliers, strict=True):
        for low in range(start, min(stop, training.steps), _STEPS_AT_ONCE):
            steps = np.arange(low, min(low + _STEPS_AT_ONCE, stop, training.steps))
            rates = np.full(len(steps), rate)
            if not constant:
                factor = optimizers.schedule_factor(
                    training.optimizer.schedule, tf.constant(steps), total_steps=training.total_steps
                )
                rates *= factor.numpy()
            found += [int(np.count_nonzero(rates * each > 0)) for each in factors]
    return found


def special_rows(vocabulary: Vocabulary, rows: int) -> np.ndarray:
    """Numbers of rows without a token of their own: the OOV row, hash buckets, and free ones."""
    first = np.arange(vocabulary.first)
    if not isinstance(vocabulary, TokenVocabulary):
        return first
    return np.concatenate([first, np.arange(vocabulary.size, rows)])


def _explanation(cause: Cause, rows: np.ndarray, paused: bool, grouping: Grouping | None, training: Training) -> str:
    match cause:
        case Cause.LEARNING_RATE_ZERO:
            if grouping is not None:
                due = _thaw(grouping, rows, training.steps)
                if due is not None:
                    return f"had a multiplier of 0 in all {training.steps:,} steps, and may move from step {due:,} on"
            return f"had a learning rate of 0 in all {training.steps:,} steps, by the schedule of their optimizer"
        case Cause.NO_GRADIENT:
            words = (
                "were looked up, but no gradient reached them: the model may have no path from them to its loss,"
                " or the gradient was 0 or too small to change a float32"
            )
            return words + (", or they were met only while their learning rate was 0" if paused else "")
        case Cause.NEVER_MET:
            words = "were never met in training" + (" at a step at which they may move" if paused else "")
            if training.epochs < 1:
                words += f", which saw {math.floor(1000 * training.epochs) / 10:g}% of its data"
            return words
        case _:
            assert_never(cause)


def _thaw(grouping: Grouping, rows: np.ndarray, steps: int) -> int | None:
    """The first step, of those not done, at which any of the rows may move by its multiplier."""
    groups = np.unique(grouping.groups[rows])
    later = [
        start
        for start, factors in zip(grouping.starts, grouping.multipliers, strict=True)
        if start >= steps and (factors[groups] > 0).any()
    ]
    return min(later, default=None)


def _some(rows: np.ndarray, vocabulary: Vocabulary) -> str:
    """The tokens of the most frequent rows, or the first row numbers."""
    tokens = isinstance(vocabulary, TokenVocabulary)
    frequencies = vocabulary.frequencies if isinstance(vocabulary, TokenVocabulary) else None
    numbers = most_frequent(rows, frequencies).tolist()
    shown = ", ".join(_name(number, vocabulary) if tokens else str(number) for number in numbers)
    more = ", …" if np.count_nonzero(rows) > len(numbers) else ""
    return f"{'' if tokens else 'row ' if len(numbers) == 1 else 'rows '}{shown}{more}"


def _name(row: int, vocabulary: Vocabulary) -> str:
    if row >= vocabulary.size:
        return f"row {row}"
    token = vocabulary.tokens(row, row + 1)[0]
    return token if row < vocabulary.first else repr(token)
