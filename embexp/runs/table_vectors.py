"""What the vectors of tables are worth: by tests in files, and by what runs with other seeds have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from embexp.data.vocabularies.vocabulary import IdentityVocabulary, Vocabulary, stands_for_tokens
from embexp.errors import EmbexpError
from embexp.records.folder import RunFolder
from embexp.reports.groups import Group
from embexp.system import caching, digests
from embexp.system.arrays import Rows, SomeRows
from embexp.system.parallel import Progress, part, quiet
from embexp.vectors import comparison, quality
from embexp.vectors.comparison import Vectors
from embexp.vectors.pretrained import earlier
from embexp.vectors.pretrained.aligned import earlier_rows
from embexp.vectors.pretrained.earlier import EarlierCheckpoint

UNREADABLE = (EmbexpError, OSError, KeyError, ValueError, TypeError, AttributeError)
"""What reading a run can raise whose files are damaged, or from another version."""

_MOST_SETTINGS, _MOST_SEEDS = 3, 5
"""Settings whose runs are compared over seeds, and runs of each."""
_MOST_NUMBERS, _FEWEST_ROWS = 8_000_000, 20
"""In a table of which runs are compared, and its fewest rows."""
_NEAREST, _SAMPLE = 10, 500


def read_table(folder: RunFolder, table: str, *, cache: str | None) -> np.ndarray:
    """The final rows of a table, float32 [vocabulary_size, dim], in memory.

    Args:
        cache: see `output.cache` of the config.

    Raises:
        NotARunError: the run left no checkpoint.
        DataError: the checkpoint is damaged.
        RunError: the rows are in a pretrained file, which has changed.
    """
    source = earlier_rows(earlier.open_run(folder.path, cache=caching.cache_folder(cache)), table)
    values = np.empty((source.rows, source.dim), np.float32)
    for start in range(0, source.rows, digests.ROWS_PER_BLOCK):
        stop = min(start + digests.ROWS_PER_BLOCK, source.rows)
        values[start:stop] = source.read(start, stop)
    return values


def with_tokens(table: Rows, vocabulary: Vocabulary) -> tuple[Rows, pa.LargeStringArray] | None:
    """The rows of a table that have a token, and the tokens; None where ids are row numbers, or share rows."""
    if isinstance(vocabulary, IdentityVocabulary) or not stands_for_tokens(vocabulary):
        return None
    # A table may have more rows than its vocabulary: the rest have no token.
    numbers = np.arange(vocabulary.first, min(vocabulary.size, table.rows))
    tokens = vocabulary.tokens(vocabulary.first, vocabulary.first + len(numbers))
    return SomeRows(table, numbers), pa.array(tokens, pa.large_string())


def evaluated(
    tables: Mapping[str, tuple[Rows, Vocabulary]], tests: Mapping[str, Sequence[Any]], progress: Progress = quiet
) -> dict[str, Any]:
    """The figures of tables by tests: what `vectors` is in summary.json.

    Args:
        tables: by name, each with what its rows stand for.
        tests: see `quality.read_tests`.

    Returns:
        By kind of test, table and name of the test; what has no words in common is left out.
    """
    found: dict[str, Any] = {}
    for number, (name, (table, vocabulary)) in enumerate(tables.items()):
        of_table = part(progress, number / len(tables), (number + 1) / len(tables))
        if (named := with_tokens(table, vocabulary)) is not None:
            for kind, figures in quality.by_test(quality.evaluate(name, *named, tests, progress=of_table)).items():
                found.setdefault(kind, {})[name] = figures
    return found


def opened(directory: Path) -> EarlierCheckpoint:
    """A finished run, with the cache to which its files were converted.

    Raises:
        EmbexpError: it has not ended, left no checkpoint, or is damaged.
    """
    run = earlier.open_run(directory, cache=caching.cache_folder(None))
    return replace(run, cache=caching.cache_folder(run.spec.output.cache))


def over_seeds(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """How many nearest rows of a token two runs share that differ in the seed: of the first settings, by table.

    Tables of which all rows are frozen, and those that are too large for a report, are left out.

    Returns:
        The place of each setting, table, runs, `count` nearest, the mean share with its 95% interval, and the share of
        unrelated rows.
    """
    found = []
    for place, group in enumerate(groups[:_MOST_SETTINGS]):
        directories = [record.directory for record in group.runs[:_MOST_SEEDS] if record.directory is not None]
        try:
            runs = [opened(directory) for directory in directories]
            tables = [name for name in runs[0].tables if all(map(partial(_is_compared, name), runs))]
        except (*UNREADABLE, IndexError):
            continue
        for name in tables if len(runs) > 1 else ():
            try:
                compared = comparison.stable([_vectors(run, name) for run in runs], count=_NEAREST, sample=_SAMPLE)
            except UNREADABLE:
                continue
            facts = {"setting": place, "table": name, "runs": len(runs), "count": compared.count}
            found.append({**facts, **asdict(compared.mean), "chance": compared.chance})
    return found


def _is_compared(table: str, run: EarlierCheckpoint) -> bool:
    rows, dim = run.shape(table)
    trained = run.summary["freeze"][table].get("trainable_rows") != 0
    return trained and dim > 1 and rows >= _FEWEST_ROWS and rows * dim <= _MOST_NUMBERS


def _vectors(run: EarlierCheckpoint, table: str) -> Vectors:
    source, vocabulary = earlier_rows(run, table), run.vocabulary(table)
    named = with_tokens(source, vocabulary)
    rows, tokens = (source, None) if named is None else named
    return Vectors(str(run.folder.path), np.array(rows.read(0, rows.rows), np.float32), tokens)
