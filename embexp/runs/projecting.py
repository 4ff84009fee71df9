"""The final tables of a run for TensorBoard's projector, beside its events: the most frequent rows of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.runs.execute import Started
from embexp.runs.prepare import Prepared
from embexp.tables.reading import ReadableTable
from embexp.vectors.write import write_projector_config, write_projector_table

_MOST_VALUES = 1_000_000
"""Of all tables together: some 10 MB of text, written in about a second, however large the tables are."""


def write(prepared: Prepared, started: Started, directory: Path) -> None:
    """Writes rows, tokens, frequencies, and whether a row is pretrained or frozen, where that differs by row.

    Args:
        prepared: the run; `output.projector_rows` limits the rows of a table.
        started: its tables, with their final values.
        directory: of the events.

    Raises:
        OSError: a file can't be written.
    """
    tables, shapes = started.execution.tables, {}
    for name, table in tables.items():
        vocabulary, policy = prepared.data.vocabularies[name], prepared.tables.policies[name]
        limit = min(prepared.spec.output.projector_rows, _MOST_VALUES // (len(tables) * table.dim))
        rows = shown_rows(vocabulary, limit)
        columns: dict[str, Iterable[str]] = {}
        if isinstance(vocabulary, TokenVocabulary):
            columns["frequency"] = map(str, vocabulary.frequencies[rows])
        for label, mask in (
            ("pretrained", prepared.tables.pretrained.pretrained_rows(name)),
            ("frozen", policy.frozen),
        ):
            if mask is not None:
                columns[label] = ("yes" if each else "no" for each in mask[rows])
        tokens = [vocabulary.tokens(row, row + 1)[0] for row in rows.tolist()]
        write_projector_table(_Taken(table, rows), tokens, columns, directory, name)
        shapes[name] = (len(rows), table.dim)
    write_projector_config(shapes, directory)


@dataclass(frozen=True)
class _Taken:
    """Chosen rows of a table; `Rows`."""

    table: ReadableTable
    numbers: np.ndarray

    @property
    def rows(self) -> int:
        return len(self.numbers)

    @property
    def dim(self) -> int:
        return self.table.dim

    def read(self, start: int, stop: int) -> np.ndarray:
        return self.table.take(self.numbers[start:stop])


def shown_rows(vocabulary: Vocabulary, limit: int) -> np.ndarray:
    """The rows to show, rising: those in front, which are the most frequent, or else evenly spaced ones.

    Args:
        vocabulary: of the table.
        limit: the most rows.
    """
    count = max(1, min(limit, vocabulary.size))
    if isinstance(vocabulary, TokenVocabulary):
        return np.arange(count)
    return np.arange(count) * vocabulary.size // count
