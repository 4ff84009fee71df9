"""The vectors of the tables of runs: as they are read, and what they are worth by tests in files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from embexp.data.vocabularies.vocabulary import IdentityVocabulary, Vocabulary, stands_for_tokens
from embexp.errors import EmbexpError
from embexp.records.folder import RunFolder
from embexp.system import caching, digests
from embexp.system.arrays import Rows, SomeRows
from embexp.system.parallel import Progress, part, quiet
from embexp.vectors import quality
from embexp.vectors.pretrained import earlier
from embexp.vectors.pretrained.aligned import earlier_rows
from embexp.vectors.pretrained.earlier import EarlierCheckpoint

UNREADABLE = (EmbexpError, OSError, KeyError, ValueError, TypeError, AttributeError)
"""What reading a run can raise whose files are damaged, or from another version."""


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
