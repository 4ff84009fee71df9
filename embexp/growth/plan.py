"""Where each row of a checkpoint goes when its vocabularies grow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np

from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import DataError
from embexp.growth import vocabularies
from embexp.pretrained import succession
from embexp.pretrained.earlier import EarlierCheckpoint
from embexp.specs.pretrained import Match
from embexp.vectors.alignment import Alignment, RowKind

_FLOAT_BYTES = 4


class Gone(StrEnum):
    """Whether rows stay whose token the new vocabulary lacks."""

    DROP = "drop"
    """They are removed."""
    KEEP = "keep"
    """They stay, behind the tokens of the new vocabulary, in their old order."""


@dataclass(frozen=True)
class TableGrowth:
    """A table before and after.

    Attributes:
        name: of the table.
        dim: numbers per row.
        slots: names of its slots.
        rows_before: how many there are.
        vocabulary: the new one.
        alignment: which old row each row is.
    """

    name: str
    dim: int
    slots: tuple[str, ...]
    rows_before: int
    vocabulary: Vocabulary
    alignment: Alignment
    _counts: dict[str, int] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Counts the rows."""
        places = self.alignment.file_rows
        kept = places >= 0
        stayed = int(np.count_nonzero(places == np.arange(len(places))))
        taken = np.zeros(self.rows_before, bool)
        taken[places[kept]] = True
        counts = {
            "kept_in_place": stayed,
            "moved": int(np.count_nonzero(kept)) - stayed,
            "new": int(np.count_nonzero(~kept)),
            "dropped": self.rows_before - int(np.count_nonzero(taken)),
        }
        object.__setattr__(self, "_counts", counts)

    @property
    def rows(self) -> int:
        """How many rows there will be."""
        return len(self.alignment.file_rows)

    @property
    def unchanged(self) -> bool:
        """Whether every row stays where it is."""
        return self.rows == self.rows_before == self._counts["kept_in_place"]

    @property
    def bytes_before(self) -> int:
        """Of the table and its slots."""
        return _FLOAT_BYTES * self.dim * self.rows_before * (1 + len(self.slots))

    @property
    def bytes_after(self) -> int:
        """Of the table and its slots, after the growth."""
        return _FLOAT_BYTES * self.dim * self.rows * (1 + len(self.slots))

    def as_json(self) -> dict[str, Any]:
        """The counts in growth.json."""
        return {
            "rows_before": self.rows_before,
            "rows": self.rows,
            "dim": self.dim,
            "slots": list(self.slots),
            **self._counts,
            "bytes_before": self.bytes_before,
            "bytes": self.bytes_after,
        }


def growths(
    source: EarlierCheckpoint, paths: Mapping[str, Path], *, match: Match, gone: Gone
) -> dict[str, TableGrowth]:
    """The growth of every table.

    Args:
        source: the run, or checkpoint, that is grown.
        paths: file of the new vocabulary, by table; others stay as they are.
        match: when two tokens are the same.
        gone: whether rows stay whose token a new vocabulary lacks.

    Raises:
        DataError: a vocabulary is malformed, or has nothing in common with the old one.
    """
    return {name: _table_growth(source, name, paths.get(name), match, gone) for name in source.tables}


def _table_growth(source: EarlierCheckpoint, name: str, path: Path | None, match: Match, gone: Gone) -> TableGrowth:
    rows, dim = source.shape(name)
    before = source.vocabulary(name)
    free = rows - before.size
    new = before if path is None else vocabularies.read(path, before)
    aligned = succession.aligned(new, new.size + free, before, rows, match)
    if path is not None and not aligned.count(RowKind.PRETRAINED):
        raise DataError(
            f"{path}: not one of its {new.size - new.first} tokens is in the vocabulary of table {name!r}, so that no"
            " row would be kept; compare their spelling, or try --match lower or normalised"
        )
    if gone is Gone.KEEP:
        lacking = np.ones(rows, bool)
        lacking[aligned.file_rows[aligned.file_rows >= 0]] = False
        lacking[: before.first] = lacking[before.size :] = False
        if lacking.any():
            kept = np.flatnonzero(lacking)
            new = vocabularies.with_gone(new, before, kept)
            aligned = _with_rows(aligned, kept, behind=new.size - len(kept))
    return TableGrowth(name, dim, source.slots(name), rows, new, aligned)


def _with_rows(aligned: Alignment, rows: np.ndarray, *, behind: int) -> Alignment:
    """An alignment with more old rows, put in before row `behind`, where the free rows begin."""
    kinds = np.full(len(rows), RowKind.PRETRAINED, np.uint8)
    return Alignment(np.insert(aligned.file_rows, behind, rows), np.insert(aligned.kinds, behind, kinds), aligned.by)
