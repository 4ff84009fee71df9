"""Rows of interactions as histories of users, in arrays of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from embexp.data.examples import Layout, ListColumn
from embexp.data.files.arrow_columns import chunks_of_files
from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import DataError, VocabularyError
from embexp.system.arrays import ArrayWriter
from embexp.system.parallel import Progress
from embexp_sequences.specs import HISTORY, LENGTH

if TYPE_CHECKING:
    from embexp_sequences.source import SequenceSource

_MOST_ITEMS = 1 << 24  # float32, in which labels are kept, holds every whole number up to this


@dataclass(frozen=True)
class Histories:
    """What users had.

    Attributes:
        users: their names, in the order of the file.
        tokens: of the different items.
        items: places in `tokens`, of each user in the order of time.
    """

    users: list[str]
    tokens: pa.Array
    items: ListColumn


def read(source: SequenceSource, path: str, progress: Progress) -> Histories:
    """Reads the rows of a file.

    Raises:
        DataError: a row can't be read, or lacks its user or item.
    """
    data, reading = source.data, source.rows(path).reading(source.read)
    parts: dict[str, list[pa.Array]] = {data.user: [], data.item: []}
    times = [np.empty(0)]
    for chunk in chunks_of_files(reading.located, reading.needed):
        for name, columns in parts.items():
            columns.append(chunk.tokens[name].values.cast(pa.large_string()))
        times.append(chunk.numbers[data.timestamp].values if data.timestamp else np.zeros(chunk.count))
        progress("reading the data", chunk.done)
    users, items = (pa.chunked_array(column).combine_chunks().dictionary_encode() for column in parts.values())
    for name, column in ((data.user, users), (data.item, items)):
        if column.null_count or "" in column.dictionary.to_pylist():
            raise DataError(f"{path}: a row has no {name}, expected a user and an item in each")
    who = users.indices.to_numpy()
    order = np.lexsort((np.concatenate(times), who))  # stable: at one time, rows keep their order
    splits = np.concatenate([[0], np.cumsum(np.bincount(who))])
    names = users.dictionary.to_pylist()
    return Histories(names, items.dictionary, ListColumn(items.indices.to_numpy()[order].astype(np.int64), splits))


def write(found: Histories, folder: Path) -> None:
    """Writes the examples of a run into an empty folder: those that train, then those that validate and test.

    Raises:
        DataError: there is nothing to learn from.
    """
    values, starts, stops = found.items.values, found.items.splits[:-1], found.items.splits[1:]
    evaluated = stops - starts >= 4  # two train, one validates, one tests
    trains = stops - 2 * evaluated
    known = trains - starts >= 2
    parts = {
        "train": (starts[known], trains[known]),
        "validation": (starts[evaluated], stops[evaluated] - 2),
        "test": (starts[evaluated], stops[evaluated] - 1),
    }
    if not known.any() or not 2 <= len(found.tokens) <= _MOST_ITEMS:
        raise DataError(
            f"found {len(found.tokens):,} items and {int(known.sum()):,} users with two or more of them, expected 2 to"
            f" {_MOST_ITEMS:,} items and a user at least"
        )
    counts = np.bincount(values[_places(starts[known], trains[known])], minlength=len(found.tokens))
    tokens = np.asarray(found.tokens.to_pylist())
    order = np.lexsort((tokens, -counts))
    rows = np.empty(len(order), np.int64)
    rows[order] = np.arange(len(order))
    TokenVocabulary(pa.array(tokens[order], pa.large_string()), counts[order].astype(np.int64), oov=False).write(
        folder / "items"
    )
    _write(rows[values], parts, folder)


def write_known(found: Histories, vocabulary: Vocabulary, folder: Path, *, labelled: bool) -> None:
    """Writes the histories of another file, without unknown items.

    Args:
        labelled: whether the last item of each is its answer.

    Raises:
        VocabularyError: an answer is unknown.
    """
    rows = vocabulary.rows(found.tokens)[found.items.values]
    before = np.concatenate([[0], np.cumsum(rows >= 0)])
    starts, stops = before[found.items.splits[:-1]], before[found.items.splits[1:]]
    if labelled:
        unknown = np.flatnonzero(rows[found.items.splits[1:] - 1] < 0)
        if len(unknown):
            raise VocabularyError(
                f"the last items of {len(unknown):,} users, such as {found.users[unknown[0]]!r}, are none of the run's"
            )
        stops = stops - 1
    _write(rows[rows >= 0], {"other": (starts, stops)}, folder, labelled=labelled)


def _write(
    rows: np.ndarray, parts: dict[str, tuple[np.ndarray, np.ndarray]], folder: Path, *, labelled: bool = True
) -> None:
    """Writes examples whose histories are rows[start:stop], and whose answers follow; the last item in training."""
    starts, stops = (np.concatenate([part[place] for part in parts.values()]) for place in range(2))
    trained = len(parts["train"][0]) if "train" in parts else 0
    answers = stops - (np.arange(len(stops)) < trained)
    columns = {
        "ids": (np.int32, np.empty((len(starts), 0), np.int32)),
        "list.0.values": (np.int32, rows[_places(starts, stops)]),
        "list.0.splits": (np.int64, np.concatenate([[0], np.cumsum(stops - starts)])),
        "dense": (np.float32, (stops - starts)[:, None]),
        **({"labels": (np.float32, rows[answers])} if labelled else {}),
    }
    with ExitStack() as stack:
        for name, (kind, values) in columns.items():
            width = values.shape[1] if values.ndim == 2 else None
            stack.enter_context(ArrayWriter(folder / f"{name}.npy", kind, width)).append(values)
    files = [(name, len(part[0])) for name, part in parts.items()]
    Layout(count=len(starts), ids=[], lists=[HISTORY], dense=[LENGTH], label=labelled, files=files).write(folder)


def _places(starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    """start..stop of each, one after the other."""
    lengths = stops - starts
    return np.arange(lengths.sum()) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
