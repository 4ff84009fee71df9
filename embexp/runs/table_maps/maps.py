"""Maps of tables: rows of the best runs by their principal components, read from checkpoints without TensorFlow."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import EmbexpError
from embexp.pretrained import earlier
from embexp.pretrained.aligned import earlier_rows
from embexp.pretrained.earlier import EarlierCheckpoint
from embexp.reports.record import Record
from embexp.runs.table_maps import marks, projection
from embexp.system import caching
from embexp.training.metric_names import Direction
from embexp.vectors import checkpoint

MOST_RUNS, MOST_TABLES = 3, 8
"""Runs, and tables in all, that have maps: each takes some 100 kB of the page."""
_LONGEST_TOKEN = 60
_UNREADABLE = (EmbexpError, OSError, KeyError, ValueError, TypeError, AttributeError)
"""What reading a run can raise whose files are damaged, or from another version: then the page has no map of it."""


def of_best(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Maps of the tables of the best finished runs; none of runs without a checkpoint.

    Args:
        records: the runs; a map names its run by the place here.
    """
    found: list[dict[str, Any]] = []
    shown = 0
    for place in _best_first(records):
        of_run = list(itertools.islice(_of_run(records[place].directory, place), MOST_TABLES - len(found)))
        found += of_run
        shown += bool(of_run)
        if shown == MOST_RUNS or len(found) == MOST_TABLES:
            break
    return found


def _best_first(records: Sequence[Record]) -> list[int]:
    def rank(place: int) -> tuple[bool, float]:
        record = records[place]
        value = record.validation
        if value is None or value != value:
            return True, 0.0
        return False, -value if record.direction is Direction.HIGHER else value

    done = [place for place, record in enumerate(records) if record.status.has_results and record.directory]
    return sorted(done, key=rank)


def _of_run(directory: Path | None, place: int) -> Iterator[dict[str, Any]]:
    """The maps of a run, the largest tables first; it stops at what can't be read."""
    if directory is None:
        return
    try:
        run = earlier.open_run(directory, cache=caching.cache_folder(None))
        run = replace(run, cache=caching.cache_folder(run.spec.output.cache))  # where its files were converted to
        tables = [name for name in run.tables if run.shape(name)[1] >= 2 and run.shape(name)[0] >= 3]
        tables.sort(key=lambda name: -run.shape(name)[0])
    except _UNREADABLE:
        return
    for table in tables:
        try:
            found = _of_table(run, table)
        except _UNREADABLE:
            continue
        if found is not None:
            yield {"run": place, "table": table, **found}


def _of_table(run: EarlierCheckpoint, table: str) -> dict[str, Any] | None:
    """The map of a table; None if it has too few rows of finite numbers.

    Raises:
        EmbexpError: its rows can't be read.
    """
    rows, dim = run.shape(table)
    vocabulary = run.vocabulary(table)
    ranked = isinstance(vocabulary, TokenVocabulary)
    numbers = projection.sampled(rows, ranked=ranked)
    values = _read(_reader(run, table), numbers, rows)
    finite = np.isfinite(values).all(axis=1)
    if finite.sum() < 3:
        return None
    lost = int((~finite).sum())
    numbers, values = numbers[finite], values[finite]
    scores, shares = projection.principal_components(values)
    if scores.shape[1] < 2:
        return None
    packed, scale = projection.packed(scores)
    known = marks.of_table(run, table, vocabulary)
    return {
        "total": rows,
        "dim": dim,
        "count": len(numbers),
        "sampling": "half of them the most frequent, the others at random" if ranked else "taken at random",
        "rows": numbers.tolist(),
        "tokens": _tokens(vocabulary, numbers),
        "components": scores.shape[1],
        "packed": packed,
        "scale": float(f"{scale:.6g}"),
        "shares": [float(f"{share:.4g}") for share in shares],
        "marks": [mark.of_rows(numbers) for mark in marks.in_order(known.found)],
        "notes": [*([f"{lost} rows with numbers that are not finite are left out."] if lost else []), *known.notes],
    }


def _reader(run: EarlierCheckpoint, table: str) -> Callable[[int, int], np.ndarray]:
    """What reads rows start to stop of a table: from the checkpoint or, of a frozen table, from its pretrained file."""
    if run.holds(table):
        return checkpoint.stored_tensor(run.index, run.tensors, f"embedding/{table}").read
    return earlier_rows(run, table).read


def _read(read: Callable[[int, int], np.ndarray], numbers: np.ndarray, rows: int) -> np.ndarray:
    """float32 [numbers, dim]: runs of neighbouring rows are read at once."""
    if len(numbers) == rows:
        return np.array(read(0, rows), np.float32)
    breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
    runs = np.split(numbers, breaks)
    return np.concatenate([np.array(read(int(each[0]), int(each[-1]) + 1), np.float32) for each in runs])


def _tokens(vocabulary: Vocabulary, numbers: np.ndarray) -> list[str]:
    """What rows stand for; those behind the last token stand for nothing."""
    found = []
    for number in numbers.tolist():
        tokens = vocabulary.tokens(number, number + 1) if number < vocabulary.size else []
        text = tokens[0] if tokens else f"free row {number}"
        found.append(text if len(text) <= _LONGEST_TOKEN else f"{text[: _LONGEST_TOKEN - 1]}…")
    return found
