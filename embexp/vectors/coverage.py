"""How much of a vocabulary a file covers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from embexp.vectors.alignment import Alignment, RowKind, RowTokens


@dataclass(frozen=True)
class Coverage:
    """What a file has for a table.

    Attributes:
        pretrained: rows that it fills.
        missing: rows whose token it lacks.
        special: rows that stand for no token.
        by: rows found by each comparison of tokens.
        occurrences: how often the tokens were seen in the training split; None where that was not counted.
        occurrences_pretrained: how often those that it has.
        commonest_missing: tokens that it lacks and how often each was seen (None where that was not counted), the
            most frequent first.
    """

    pretrained: int
    missing: int
    special: int
    by: dict[str, int]
    occurrences: int | None
    occurrences_pretrained: int | None
    commonest_missing: tuple[tuple[str, int | None], ...]

    def summary(self, where: str = "file") -> str:
        """The counts in a line; `where` is the word for what has the rows."""
        named = self.pretrained + self.missing
        counts = f"{self.pretrained:,} of {named:,} rows found in the {where}"
        if self.occurrences:
            counts += f", {(self.occurrences_pretrained or 0) / self.occurrences:.1%} of what the training split holds"
        return counts

    def as_json(self) -> dict[str, Any]:
        """The counts in coverage.json."""
        return {
            "rows_pretrained": self.pretrained,
            "rows_missing": self.missing,
            "rows_special": self.special,
            "matched": self.by,
            "occurrences": self.occurrences,
            "occurrences_pretrained": self.occurrences_pretrained,
            "commonest_missing": [{"token": token, "frequency": count} for token, count in self.commonest_missing],
        }


def coverage(alignment: Alignment, words: RowTokens, *, shown: int = 20) -> Coverage:
    """Counts what an alignment found.

    Args:
        alignment: of a table.
        words: what its rows stand for.
        shown: how many of the missing tokens are named.
    """
    kinds = alignment.kinds[words.first : words.first + len(words.tokens)]
    lacking = np.flatnonzero(kinds == RowKind.MISSING)
    counts = words.frequencies
    if counts is not None:
        lacking = lacking[np.argsort(-counts[lacking], kind="stable")]
    lacking = lacking[:shown]
    names = words.tokens.take(pa.array(lacking)).to_pylist()
    return Coverage(
        pretrained=alignment.count(RowKind.PRETRAINED),
        missing=alignment.count(RowKind.MISSING),
        special=alignment.count(RowKind.SPECIAL),
        by={how.value: count for how, count in alignment.by.items()},
        occurrences=None if counts is None else int(counts.sum()),
        occurrences_pretrained=None if counts is None else int(counts[kinds == RowKind.PRETRAINED].sum()),
        commonest_missing=tuple(
            (name, None if counts is None else int(counts[place])) for name, place in zip(names, lacking, strict=True)
        ),
    )
