"""Reads rows of interactions, and writes the histories of users as arrays in a folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from embexp.data import splits
from embexp.data.columns import Columns
from embexp.data.examples import Encoded, Examples, Layout, ListColumn, examples
from embexp.data.files.arrow_columns import chunks_of_files
from embexp.data.sources import csv
from embexp.data.sources.columnar import ColumnarSource
from embexp.data.sources.source import Description, OtherFile, Source, cached, single_columns, unknown_columns
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import DataError, Fault, VocabularyError
from embexp.specs.tasks import CANDIDATES
from embexp.system.arrays import ArrayWriter
from embexp.system.parallel import Progress, quiet
from embexp_sequences.specs import HISTORY, LENGTH, Sequences

_MOST_ITEMS = 1 << 24  # labels are float32, which is exact for whole numbers up to this
Spans = tuple[np.ndarray, np.ndarray]
"""Where each history starts and stops among all interactions, sorted by user and time, int64 [n] each."""


@dataclass(frozen=True)
class SequenceSource(Source):
    """Histories of users, and the items that follow them."""

    data: Sequences
    answers = True

    def head_faults(self, columns: Columns) -> list[Fault]:
        """Errors for columns that histories do not have, and for the first rows of the file."""
        unknown = unknown_columns(columns, (HISTORY, CANDIDATES, LENGTH), f"histories have only {HISTORY}")
        single, rows = single_columns(columns, (CANDIDATES,), "no lists"), self._rows(self.data.path)
        return [*unknown, *single, *rows.head_faults(self._read)]

    def description(self) -> Description:
        """The file and the split."""
        text = f"sequences {self.data.path}; each user's last item tests, the one before validates"
        return Description(text, ids_per_example={CANDIDATES: "all"})

    def digest(self, columns: Columns, *, cache: Path) -> str:
        """The digest of the bytes of the file."""
        return self._rows(self.data.path).digest(self._read, cache=cache)

    def encode(self, columns: Columns, *, cache: Path, progress: Progress) -> Encoded:
        """A history for each user and split. Ids are already rows of the table."""

        def make(folder: Path) -> None:
            _, tokens, items = self._interactions(self.data.path, progress)
            _write_splits(tokens, items, folder)

        return cached("sequences", self.digest(columns, cache=cache), self._form, make, cache=cache)

    def division_key(self) -> dict[str, Any]:
        """Empty: the histories themselves determine the splits."""
        return {}

    def divide(self, encoded: Encoded, folder: Path) -> dict[str, Any]:
        """Writes the splits."""
        splits.write(splits.in_order([count for _, count in encoded.layout.files]), encoded.layout.count, folder)
        return {}

    def vocabularies(self, columns: Columns, encoded: Encoded, folder: Path) -> dict[str, Vocabulary]:
        """The vocabulary of items."""
        return dict.fromkeys(columns.ids.values(), Vocabulary.read(encoded.folder / "items"))

    def encode_file(self, file: OtherFile, columns: Columns, *, cache: Path, progress: Progress) -> Examples:
        """The histories of another file, without unknown items. With labels, the last items are the answers.

        Raises:
            VocabularyError: the run does not know an answer.
        """
        known, labelled = file.vocabularies[columns.ids[HISTORY]], columns.label is not None

        def make(folder: Path) -> None:
            users, tokens, items = self._interactions(str(file.path), progress)
            rows = known.rows(tokens)[items.values]
            unknown = np.flatnonzero(rows[items.splits[1:] - 1] < 0)
            if labelled and len(unknown):
                user = f"user {users[unknown[0]]!r} and {len(unknown) - 1:,} others"
                raise VocabularyError(f"{file.path}: the run does not know the last item of {user}")
            ends = np.concatenate([[0], np.cumsum(rows >= 0)])[items.splits]
            _write(rows[rows >= 0], {"all": (ends[:-1], ends[1:] - labelled)}, folder, labelled=labelled)

        content = self._rows(str(file.path)).digest(self._read, cache=cache)
        settings = {**self._form, "vocabulary": known.digest, "labelled": labelled}
        made = cached("sequences", content, settings, make, cache=cache).folder
        return examples(made, made)

    def read_columns(self, path: Path, names: Sequence[str]) -> dict[str, list[str]]:
        """The users of another file."""
        if set(names) != {self.data.user}:
            return super().read_columns(path, names)
        return {self.data.user: self._interactions(str(path), quiet)[0]}

    def _interactions(self, path: str, progress: Progress) -> tuple[list[str], pa.Array, ListColumn]:
        """The users in the order of the file, the distinct items, and each user's items, as places among these.

        Items of a user are in order of time.

        Raises:
            DataError: a row can't be read, or has no user or no item.
        """
        reading, time = self._rows(path).reading(self._read), self.data.timestamp
        parts: dict[str, list[pa.Array]] = {self.data.user: [], self.data.item: []}
        times = [np.empty(0)]
        for chunk in chunks_of_files(reading.located, reading.needed):
            for name, columns in parts.items():
                columns.append(chunk.tokens[name].values.cast(pa.large_string()))
            times.append(np.zeros(chunk.count) if time is None else chunk.numbers[time].values)
            progress("reading the data", chunk.done)
        users, items = (pa.chunked_array(columns).combine_chunks().dictionary_encode() for columns in parts.values())
        if any(each.null_count or "" in each.dictionary.to_pylist() for each in (users, items)):
            raise DataError(f"{path}: found a row without user or item, expected both in each")
        who = users.indices.to_numpy()
        order = np.lexsort((np.concatenate(times), who))  # stable: rows with the same time keep their order
        column = ListColumn(items.indices.to_numpy()[order], np.concatenate([[0], np.cumsum(np.bincount(who))]))
        return users.dictionary.to_pylist(), items.dictionary, column

    def _rows(self, path: str) -> ColumnarSource:
        return csv.source(self.data.rows(path))

    @property
    def _read(self) -> Columns:
        """The columns that are read from each row, in addition to the time."""
        named = {self.data.user: "data.user", self.data.item: "data.item"}
        return Columns(ids={name: name for name in named}, asked_by=named)

    @property
    def _form(self) -> dict[str, Any]:
        return self.data.model_dump(mode="json", exclude={"path", "rank_seen", "shuffle", "window"})


def _write_splits(tokens: pa.Array, items: ListColumn, folder: Path) -> None:
    """Writes the examples of a run, training examples first, and its vocabulary into an empty folder.

    Raises:
        DataError: the data have fewer than two items, too many, or no user with two items to train on.
    """
    starts, stops = items.splits[:-1], items.splits[1:]
    evaluated = stops - starts >= 4  # two for training, one for validation, one for the test
    trains = stops - 2 * evaluated
    known = trains - starts >= 2
    if not known.any() or not 2 <= len(tokens) <= _MOST_ITEMS:
        some = f"{len(tokens):,} items and {np.count_nonzero(known):,} users with two or more"
        raise DataError(f"found {some}, expected 2 to {_MOST_ITEMS:,} items and a user")
    counts = np.bincount(items.values[_places(starts[known], trains[known])], minlength=len(tokens))
    names = np.asarray(tokens.to_pylist())
    order = np.lexsort((names, -counts))
    vocabulary = TokenVocabulary(pa.array(names[order], pa.large_string()), counts[order], oov=False)
    vocabulary.write(folder / "items")
    parts = {"train": (starts[known], trains[known])}
    parts |= {name: (starts[evaluated], stops[evaluated] - less) for name, less in (("validation", 2), ("test", 1))}
    _write(np.argsort(order)[items.values], parts, folder)


def _write(rows: np.ndarray, parts: Mapping[str, Spans], folder: Path, *, labelled: bool = True) -> None:
    """Writes examples whose histories are spans of `rows`. The answer is the row after its span, or the last row."""
    starts, stops = (np.concatenate([part[side] for part in parts.values()]) for side in range(2))
    arrays: dict[str, tuple[type, np.ndarray]] = {
        "ids": (np.int32, np.empty((len(starts), 0))),
        "list.0.values": (np.int32, rows[_places(starts, stops)]),
        "list.0.splits": (np.int64, np.concatenate([[0], np.cumsum(stops - starts)])),
        "dense": (np.float32, (stops - starts)[:, None]),
        **({"labels": (np.float32, rows[np.minimum(stops, len(rows) - 1)])} if labelled else {}),
    }
    for name, (kind, values) in arrays.items():
        with ArrayWriter(folder / f"{name}.npy", kind, values.shape[1] if values.ndim == 2 else None) as writer:
            writer.append(values)
    files = [(name, len(part[0])) for name, part in parts.items()]
    Layout(count=len(starts), ids=[], lists=[HISTORY], dense=[LENGTH], label=labelled, files=files).write(folder)


def _places(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """The places start..stop - 1 of each span, one span after another, int64."""
    lengths = stops - starts
    return np.asarray(np.arange(lengths.sum()) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths))
