"""What is known of each row of a table of a run: provenance, frequency, whether it was frozen, whether it was met.

A run records the tokens and frequencies of its rows, but of provenance and freezing only counts. Both follow from its
spec and its files, as they did in the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import EmbexpError
from embexp.freezing.policies import first_steps, group
from embexp.freezing.row_policies import row_facts
from embexp.pretrained.aligned import pretrained_before
from embexp.pretrained.earlier import EarlierCheckpoint
from embexp.specs.freezing import FreezeTable, NoFreeze, phases_of
from embexp.vectors.alignment import RowKind

_MOST_ALIGNED = 1_000_000
"""Rows of a table whose provenance is found again; more would take too long for a report."""
_TOUCHED = "touched.npz"


@dataclass(frozen=True)
class Mark:
    """Something that is known of each row.

    Attributes:
        name: of it.
        values: integers [rows]; where there are names, numbers of these.
        names: of the values; None: the values are counts.
    """

    name: str
    values: np.ndarray
    names: tuple[str, ...] | None = None

    def of_rows(self, rows: np.ndarray) -> dict[str, Any]:
        """The mark of some rows, as JSON."""
        return {
            "name": self.name,
            "names": None if self.names is None else list(self.names),
            "values": self.values[rows].tolist(),
        }


@dataclass(frozen=True)
class _Origin:
    """Where rows come from; None: not known."""

    pretrained: np.ndarray | None
    old: np.ndarray | None = None
    special: np.ndarray | None = None
    notes: tuple[str, ...] = ()
    known: bool = True


@dataclass(frozen=True)
class Marks:
    """What is known of the rows of a table.

    Attributes:
        found: marks in which rows differ.
        notes: what could not be found out, and what all rows share, a sentence each.
    """

    found: Sequence[Mark] = ()
    notes: Sequence[str] = field(default_factory=tuple)


def of_table(run: EarlierCheckpoint, table: str, vocabulary: Vocabulary) -> Marks:
    """What is known of the rows of a table of a finished run.

    Args:
        run: its checkpoint.
        table: name of the table.
        vocabulary: what its rows stand for.
    """
    rows, _ = run.shape(table)
    origin = _origin(run, table, rows)
    marks: list[Mark] = []
    notes = [*origin.notes]
    if origin.pretrained is not None:
        marks.append(_provenance(origin, rows))
    if isinstance(vocabulary, TokenVocabulary):
        counts = np.zeros(rows, np.int64)
        counts[: vocabulary.size] = vocabulary.frequencies
        marks.append(Mark("frequency", counts))
    try:
        frozen = _frozen(run, table, vocabulary, rows, origin)
    except (EmbexpError, ValueError, OSError) as error:
        notes.append(f"Which rows were frozen can't be told: {error}.")
    else:
        marks.append(_training(frozen, _touched(run, table, rows)))
    different = [mark for mark in marks if len(np.unique(mark.values)) > 1]
    notes += [_alike(mark) for mark in marks if mark.names and mark not in different]
    return Marks(different, notes)


def _origin(run: EarlierCheckpoint, table: str, rows: int) -> _Origin:
    """Which rows are pretrained: from the counts where all or none are, else from the file, aligned again."""
    counts: Mapping[str, Any] = run.summary["initialization"]["tables"][table]
    if not counts.get("rows_pretrained"):
        return _Origin(None, notes=("No row is pretrained.",))
    if rows > _MOST_ALIGNED:
        return _Origin(None, notes=(f"Provenance is found for tables of up to {_MOST_ALIGNED:,} rows.",), known=False)
    try:
        found = pretrained_before(run.folder, run.spec, run.summary, [table], cache=run.cache).tables[table]
    except (EmbexpError, OSError, KeyError) as error:
        return _Origin(None, notes=(f"Provenance can't be told: {error}.",), known=False)
    kinds = found.alignment.kinds
    return _Origin(np.asarray(found.alignment.pretrained), found.old, kinds == RowKind.SPECIAL)


def _provenance(origin: _Origin, rows: int) -> Mark:
    names = ("new", "pretrained", "no token of its own", "from the earlier run")
    values = np.zeros(rows, np.uint8)
    if origin.special is not None:
        values[origin.special] = 2
    values[origin.pretrained] = 1
    if origin.old is not None:
        values[origin.old] = 3
    return Mark("provenance", values, names)


def _frozen(
    run: EarlierCheckpoint, table: str, vocabulary: Vocabulary, rows: int, origin: _Origin
) -> np.ndarray | None:
    """uint8 [rows]: 0 trains throughout, 1 never moves, 2 in between, by phase or by rate; None: all rows train.

    Raises:
        ValueError: rules are about pretrained rows, and these are not known.
    """
    policy = run.spec.freeze_of(table)
    counts = run.summary["freeze"][table]
    match policy:
        case NoFreeze():
            return None
        case FreezeTable():
            return np.ones(rows, np.uint8)
    phases = phases_of(policy)
    kinds = {rule.kind for phase in phases for rule in phase.rules}
    if not origin.known and kinds & {"pretrained_rows", "old_rows"}:
        raise ValueError("the policy is about pretrained rows, whose provenance is not known")
    steps_per_epoch = run.summary["examples"]["train"] / run.summary["batch_size"]
    facts = row_facts(vocabulary, rows, origin.pretrained, origin.old)
    grouping = group(phases, first_steps(phases, steps_per_epoch), facts)
    if grouping.frozen_rows != counts["frozen_rows"]:
        raise ValueError(
            f"{grouping.frozen_rows} rows follow from its policy, and the run froze {counts['frozen_rows']}"
        )
    between = (grouping.multipliers != 1).any(0)[grouping.groups] & ~grouping.frozen
    return np.where(grouping.frozen, 1, np.where(between, 2, 0)).astype(np.uint8)


def _touched(run: EarlierCheckpoint, table: str, rows: int) -> np.ndarray | None:
    """Bool [rows], the rows that steps looked up to train them; None: not recorded."""
    try:
        with np.load(run.folder.final_checkpoint / _TOUCHED, allow_pickle=False) as stored:
            found: np.ndarray = np.unpackbits(stored[table], count=rows).astype(bool)
            return found
    except (OSError, ValueError, KeyError, EOFError):
        return None


def _training(frozen: np.ndarray | None, touched: np.ndarray | None) -> Mark:
    """Whether rows trained, as one mark: frozen rows, and of the others whether they were met."""
    names = ("trained", "frozen", "frozen or slowed for a part", "never looked up")
    size = len(frozen) if frozen is not None else len(touched) if touched is not None else 1
    values = np.zeros(size, np.uint8) if frozen is None else frozen.copy()
    if touched is not None:
        values[~touched & (values != 1)] = 3
    return Mark("training", values, names)


def _alike(mark: Mark) -> str:
    names = mark.names or ("",)
    return f"All rows share their {mark.name}: {names[int(mark.values[0])]}."


def in_order(marks: Sequence[Mark]) -> Iterator[Mark]:
    """Marks with names first."""
    yield from (mark for mark in marks if mark.names)
    yield from (mark for mark in marks if not mark.names)
