"""Fits the transforms and the buckets of numeric columns to the training split, in bounded memory. Cached.

Means and variances are those of one pass in float64, merged block by block by the formula of Chan, Golub and LeVeque
(1983). Medians and quantiles are exact: a column is sorted in a file that is mapped into memory, so that its pages can
leave the memory again.
"""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from embexp.data import numbers
from embexp.data.columns import BucketColumn
from embexp.data.numbers import Figures, FittedColumn
from embexp.data.sources.source import FORMAT
from embexp.data.vocabularies.buckets import BucketVocabulary
from embexp.errors import DataError
from embexp.specs.sources import Fill, NumericColumn, Transform
from embexp.system import caching, digests
from embexp.system.arrays import mapped_array
from embexp.system.parallel import at_once

_DENSE = "dense.npy"
QUANTILES = 1_000
"""As many as scikit-learn's `QuantileTransformer` keeps by default."""
_ROWS = 262_144

Blocks = Callable[[], Iterable[np.ndarray]]
"""The values of a column that are not missing, float64 [n] block by block, from the start at each call."""


@dataclass(frozen=True)
class PreparedNumbers:
    """Numeric columns as a model gets them.

    Attributes:
        columns: what was fitted, in the order of the columns.
        figures: of the columns as the files have them.
        dense: float32 [examples, width]; None: the columns are used as the files have them.
    """

    columns: tuple[FittedColumn, ...] = ()
    figures: tuple[Figures, ...] = ()
    dense: np.ndarray | None = None


def prepare(
    raw: np.ndarray, train: np.ndarray, settings: Mapping[str, NumericColumn], *, cache: Path, key: str
) -> PreparedNumbers:
    """Fits the columns to the training split and transforms all examples, unless the cache has it.

    Args:
        raw: float32 [examples, columns], NaN where a value is missing.
        train: int64, the examples of the training split.
        settings: of the columns, in the order of `raw`.

    Raises:
        DataError: a column has no value from which to fit what it needs.
    """
    if not settings:
        return PreparedNumbers()
    written = [[name, each.model_dump(mode="json")] for name, each in settings.items()]
    place = digests.of_json({"format": FORMAT, "scan": key, "columns": written})
    folder = caching.folder(cache, "numbers", place, partial(_make, raw, train, settings))
    columns = numbers.read(folder / "fitted.json")
    figures = tuple(Figures(**each) for each in json.loads((folder / "figures.json").read_text("utf-8")))
    changed = not all(column.plain for column in columns)
    return PreparedNumbers(columns, figures, mapped_array(folder / _DENSE) if changed else None)


def applied(raw: np.ndarray, columns: Sequence[FittedColumn], *, cache: Path, key: str) -> np.ndarray:
    """Other examples as the model gets them, by columns that were fitted before.

    Args:
        raw: float32 [examples, columns], NaN where a value is missing.
        columns: in the order of `raw`.
    """
    if all(column.plain for column in columns):
        return raw
    written = [column.as_json() for column in columns]
    place = digests.of_json({"format": FORMAT, "raw": key, "columns": written})
    return mapped_array(caching.folder(cache, "numbers", place, partial(_apply, raw, columns)) / _DENSE)


def _make(raw: np.ndarray, train: np.ndarray, settings: Mapping[str, NumericColumn], folder: Path) -> None:
    columns = fit(raw, train, settings, folder)
    numbers.write(columns, folder / "fitted.json")
    figures = [each.as_json() for each in numbers.tail_figures(raw, train, list(settings))]
    (folder / "figures.json").write_text(json.dumps(figures), "utf-8")
    if not all(column.plain for column in columns):
        _apply(raw, columns, folder)


def _apply(raw: np.ndarray, columns: Sequence[FittedColumn], folder: Path) -> None:
    numbers.apply(raw, columns, folder / _DENSE)


@dataclass(frozen=True)
class Moments:
    """Of numbers.

    Attributes:
        deviation: their standard deviation, that of the whole (divided by `count`).
    """

    count: int
    mean: float
    deviation: float


def fit(
    raw: np.ndarray, train: np.ndarray, settings: Mapping[str, NumericColumn], folder: Path
) -> tuple[FittedColumn, ...]:
    """Fits each column to the training split.

    Args:
        raw: float32 [examples, columns], NaN where a value is missing.
        train: int64, rising, the examples of the training split.
        settings: of the columns, in the order of `raw`.

    Raises:
        DataError: a column has no value in the training split from which to fit what it needs.
    """
    names = list(settings)

    def fitted(number: int) -> FittedColumn:
        return _fitted(names[number], settings[names[number]], _known_values(raw, train, number), folder)

    return tuple(at_once(fitted, range(len(names))))


def moments(blocks: Iterable[np.ndarray]) -> Moments:
    """Count, mean and standard deviation of float64 blocks, in one pass."""
    count, mean, squares = 0, 0.0, 0.0
    for block in blocks:
        if not len(block):
            continue
        here = float(block.mean())
        added = float(np.square(block - here).sum())
        step, total = here - mean, count + len(block)
        squares += added + step * step * (count * len(block) / total)
        mean += step * (len(block) / total)
        count = total
    return Moments(count, mean, math.sqrt(squares / count) if count else 0.0)


def quantiles(blocks: Iterable[np.ndarray], count: int, folder: Path) -> tuple[float, ...]:
    """`count` quantiles of float32 values, evenly spaced in rank, linear between the two nearest values; () of none.

    Args:
        count: how many quantiles, at least 2; or 1, the median.
        folder: for a temporary file of 4 bytes a value.
    """
    handle, path = tempfile.mkstemp(dir=folder, prefix="sorted.")
    try:
        with os.fdopen(handle, "wb") as file:
            for block in blocks:
                file.write(block.astype(np.float32).data)
        size = os.path.getsize(path) // 4
        if not size:
            return ()
        values = np.memmap(path, np.float32, "r+", shape=(size,))
        values.sort()  # in place: nothing is held beside the pages of the file
        # In whole numbers: rounded places would part values from those that are equal to them.
        steps = 2 if count == 1 else count - 1
        places = np.array([1] if count == 1 else range(count)) * (size - 1)
        low, rest = places // steps, places % steps
        below, above = values[low].astype(np.float64), values[np.minimum(low + 1, size - 1)].astype(np.float64)
        return tuple((below + (above - below) * (rest / steps)).tolist())
    finally:
        os.unlink(path)


def _known_values(raw: np.ndarray, train: np.ndarray, number: int) -> Blocks:
    """The values of a column of `raw`, float32 [examples, columns], in the training split, without missing ones."""

    def blocks() -> Iterator[np.ndarray]:
        for start in range(0, len(train), _ROWS):
            values = raw[train[start : start + _ROWS], number].astype(np.float64)
            yield values[~np.isnan(values)]

    return blocks


def _fitted(name: str, setting: NumericColumn, known: Blocks, folder: Path) -> FittedColumn:
    column = FittedColumn(name, setting.transforms, None, setting.indicator)
    if setting.may_be_missing:
        column = replace(column, fill=_fill(name, setting.missing, known, folder))
    if Transform.STANDARDIZE in setting.transforms:
        before = setting.transforms[: setting.transforms.index(Transform.STANDARDIZE)]
        found = moments(_after(column, before, known))
        _check(name, "transform: standardize", found.count)
        # A column of one value becomes 0 everywhere.
        column = replace(column, mean=found.mean, scale=found.deviation or 1.0)
    if Transform.QUANTILE in setting.transforms:
        marks = quantiles(known(), max(2, min(QUANTILES, moments(known()).count)), folder)
        _check(name, "transform: quantile", len(marks))
        column = replace(column, quantiles=marks)
    return column


def _after(column: FittedColumn, transforms: Iterable[Transform], known: Blocks) -> Iterator[np.ndarray]:
    for block in known():
        for transform in transforms:
            block = column.transformed(block, transform)
        yield block


def _fill(name: str, missing: Fill | float, known: Blocks, folder: Path) -> float:
    match missing:
        case Fill.ZERO | Fill.ERROR:
            return 0.0
        case Fill.MEAN:
            found = moments(known())
            _check(name, "missing: mean", found.count)
            return found.mean
        case Fill.MEDIAN:
            median = quantiles(known(), 1, folder)
            _check(name, "missing: median", len(median))
            return median[0]
        case _:
            return float(missing)


def _check(name: str, needs: str, count: int) -> None:
    """Raises DataError where there was nothing to fit to."""
    if not count:
        raise DataError(
            f"data.dense_features.{name}: {needs} needs a value in the training split, and all of this column are"
            " missing there; leave the column out, or set missing to a number and transform to none or log1p"
        )


def fit_buckets(
    raw: np.ndarray, names: Sequence[str], train: np.ndarray, buckets: Mapping[str, BucketColumn], folder: Path
) -> dict[str, BucketVocabulary]:
    """The buckets of each table; several columns of one table share them.

    Args:
        raw: float32 [examples, len(names)], NaN where a value is missing.
        names: of the columns of `raw`.
        train: int64, rising, the examples of the training split.
        buckets: see `Columns`.

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
            yield from _known_values(raw, train, column)()

    marks = np.array(quantiles(blocks(), count + 1, folder), np.float32)
    return tuple(np.unique(marks[1:-1][marks[1:-1] > marks[0]]).tolist()) if len(marks) else ()
