"""Buckets of numbers: by boundaries of the config, or equally frequent in the training split."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from embexp.data import fitting
from embexp.data.bucket_vocabulary import BucketVocabulary
from embexp.data.columns import BucketColumn
from embexp.errors import DataError


def fit_buckets(
    raw: np.ndarray, names: Sequence[str], train: np.ndarray, buckets: Mapping[str, BucketColumn], folder: Path
) -> dict[str, BucketVocabulary]:
    """The buckets of each table; several columns of one table share them.

    Args:
        raw: float32 [examples, len(names)], NaN where a value is missing.
        names: of the columns of `raw`.
        train: int64, rising, the examples of the training split.
        buckets: see `Columns`.
        folder: for temporary files.

    Raises:
        DataError: there is no number from which to make quantiles.
    """
    found = {}
    for table in dict.fromkeys(each.table for each in buckets.values()):
        mine = [each for each in buckets.values() if each.table == table]
        boundaries, count = mine[0].settings.boundaries, mine[0].settings.quantiles
        if boundaries is None:
            assert count is not None  # a rule between the settings
            columns = [names.index(each.column) for each in mine]
            boundaries = _quantiles(raw, train, columns, count, folder)
            if not boundaries:
                listed = ", ".join(each.column for each in mine)
                raise DataError(
                    f"tables.{table}: its buckets are quantiles of {listed}, and the training split has no two numbers"
                    " there that differ; leave the feature out, or set buckets.boundaries"
                )
        found[table] = BucketVocabulary(tuple(float(np.float32(each)) for each in boundaries))
    return found


def _quantiles(
    raw: np.ndarray, train: np.ndarray, columns: Sequence[int], count: int, folder: Path
) -> tuple[float, ...]:
    """The boundaries of `count` buckets, each once; none is the least number, as no number would lie below it."""

    def blocks() -> Iterator[np.ndarray]:
        for column in columns:
            yield from fitting.known(raw, train, column)()

    marks = np.array(fitting.quantiles(blocks(), count + 1, folder), np.float32)
    return tuple(np.unique(marks[1:-1][marks[1:-1] > marks[0]]).tolist()) if len(marks) else ()
