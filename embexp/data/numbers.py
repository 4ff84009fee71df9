"""What a model gets of numeric columns: filled, transformed, with indicators of missing values, or as buckets.

Transforms and buckets are fitted to the training split, in bounded memory, and cached. Means and variances are those of
one pass in float64, merged block by block by the formula of Chan, Golub and LeVeque (1983). Medians and quantiles are
exact: a column is sorted in a file that is mapped into memory. All arithmetic is float64; what comes out is float32.
`embexp.runs.serving` has the same in TensorFlow's operations, for exported models.

Columns without a transform that are heavy-tailed, or of a scale that learns badly, lead to a warning. The inputs of a
network are best of about the size 1: its initial weights and learning rates are made for that (LeCun et al. 1998,
Efficient BackProp). Raw counts and amounts outweigh everything else, and their few largest values the rest.
"""

from __future__ import annotations

import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter

from embexp.data.columns import BucketColumn
from embexp.data.sources.source import FORMAT
from embexp.data.vocabularies.vocabulary import BucketVocabulary, Vocabulary
from embexp.errors import DataError
from embexp.specs.base import summarize_names
from embexp.specs.data import Fill, NumericColumn, Transform
from embexp.system import caching, digests, files
from embexp.system.arrays import ArrayWriter, mapped_array
from embexp.system.files import write_text
from embexp.system.parallel import Progress, ahead, at_once, quiet

_ROWS, _ROWS_SORTED = 65_536, 262_144
_LARGEST_FILE = 1 << 28
_DENSE = "dense.npy"
_FITTED = 2
"""Version of what is fitted, beside that of all data; raised when its meaning changes."""
QUANTILES = 1_000
"""As many as scikit-learn's `QuantileTransformer` keeps by default."""
SAMPLE = 262_144
"""Training examples, evenly spaced, that the figures are of."""
HEAVY = 10.0
"""Excess kurtosis above which a column is heavy-tailed: that of a normal distribution is 0, of an exponential one 6."""
LARGE = 10.0
"""Values up to this size do no harm, however they are distributed: a rare 1 among zeros has a large kurtosis too."""
_LONG = 1 << 22
"""Values that take about a second to fit and transform."""
_FEWEST = 30
Blocks = Callable[[], Iterable[np.ndarray]]
"""The values of a column that are not missing, float64 [n] block by block, from the start at each call."""


@dataclass(frozen=True)
class FittedColumn:
    """A numeric column, and what was fitted on the training split.

    Attributes:
        transforms: in their order.
        fill: what a missing value counts as, before the transforms; None: none may be missing.
        indicator: whether a column follows that is 1 where the value is missing, else 0.
        mean: that `standardize` subtracts.
        scale: that `standardize` divides by.
        quantiles: float64 [n], rising, of transform `quantile`; empty without it.
    """

    name: str
    transforms: tuple[Transform, ...] = ()
    fill: float | None = None
    indicator: bool = False
    mean: float = 0.0
    scale: float = 1.0
    quantiles: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """How many columns the model gets."""
        return 1 + self.indicator

    @property
    def plain(self) -> bool:
        """Whether the model gets the values as they are."""
        return not self.transforms and self.fill is None

    def apply(self, values: np.ndarray) -> np.ndarray:
        """float32 [n], NaN where missing → float32 [n, width]."""
        missing = np.isnan(values)
        found = values.astype(np.float64)
        if self.fill is not None:
            found[missing] = self.fill
        for transform in self.transforms:
            found = self.transformed(found, transform)
        columns = [found.astype(np.float32), *([missing.astype(np.float32)] if self.indicator else [])]
        return np.stack(columns, axis=1)

    def transformed(self, values: np.ndarray, transform: Transform) -> np.ndarray:
        """float64 [n] → float64 [n], by one transform."""
        match transform:
            case Transform.NONE:
                return values
            case Transform.LOG1P:
                return np.asarray(np.sign(values) * np.log1p(np.abs(values)))
            case Transform.STANDARDIZE:
                return np.asarray((values - self.mean) / self.scale)
            case Transform.QUANTILE:
                return ranks(values, np.array(self.quantiles))

    def as_json(self) -> dict[str, Any]:
        """What `read` reads."""
        return {key.replace("transforms", "transform"): value for key, value in asdict(self).items()}


def ranks(values: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """The rank of each value among quantiles, from 0 to 1, as scikit-learn's `QuantileTransformer` (uniform) has it.

    Linear between two quantiles. A value that several quantiles have gets the middle of their ranks, unless it is the
    least or the greatest, whose ranks are 0 and 1; so are those of values beyond.

    Args:
        quantiles: float64 [q], rising, q at least 2, evenly spaced in rank.
    """
    steps = len(quantiles) - 1
    left = np.searchsorted(quantiles, values, "left")
    right = np.searchsorted(quantiles, values, "right")
    low = np.clip(right - 1, 0, steps - 1)
    below, above = quantiles[low], quantiles[low + 1]
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        between = (low + (values - below) / (above - below)) / steps
    found = np.where(right > left, (left + right - 1) / 2 / steps, between)
    found = np.where(values >= quantiles[-1], 1.0, found)
    return np.where(values <= quantiles[0], 0.0, found)


def apply(raw: np.ndarray, columns: Sequence[FittedColumn], path: Path) -> None:
    """Writes what the model gets, float32 [n, sum of widths], in bounded memory.

    Args:
        raw: float32 [n, len(columns)], NaN where a value is missing.
        columns: in the order of `raw`.
    """
    ends = np.cumsum([column.width for column in columns])

    def of_block(start: int) -> np.ndarray:
        block = raw[start : start + _ROWS]
        return np.concatenate([column.apply(block[:, number]) for number, column in enumerate(columns)], axis=1)

    with ArrayWriter(path, np.float32, int(ends[-1])) as writer:
        for found in ahead(of_block(start) for start in range(0, len(raw), _ROWS)):
            writer.append(found)


def write(columns: Sequence[FittedColumn], path: Path) -> None:
    """Writes what was fitted as JSON, with a digest of it."""
    written = [column.as_json() for column in columns]
    write_text(path, json.dumps({"columns": written, "digest": digests.of_json(written)}, indent=2) + "\n")


def read(path: Path) -> tuple[FittedColumn, ...]:
    """Reads what `write` wrote.

    Raises:
        DataError: there is no such file, or it was changed.
    """
    if not path.exists():
        raise DataError(f"{path}: there is no such file; it holds what the run fitted to its numeric columns")
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    try:
        with files.opened(path) as file:
            content = json.loads(file.read(_LARGEST_FILE))
        unchanged = digests.of_json(content["columns"]) == content["digest"]
        columns = [{**column, "transforms": column["transform"]} for column in content["columns"]]
        found = TypeAdapter(tuple[FittedColumn, ...]).validate_python(columns)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        said = str(error).partition("\n")[0]
        raise DataError(f"{path} is damaged: expected the numeric columns of a run ({said})") from error
    if not unchanged:
        raise DataError(f"{path} was changed: its digest does not match its content; restore the run's own file")
    return found


@dataclass(frozen=True)
class Figures:
    """Of a numeric column, on the sample of the training split, without missing values.

    Attributes:
        kurtosis: excess kurtosis; 0 for a constant.
    """

    name: str
    count: int
    mean: float
    deviation: float
    kurtosis: float
    median: float
    largest: float

    @property
    def heavy(self) -> bool:
        """Whether a few values outweigh the others."""
        return self.count >= _FEWEST and self.kurtosis > HEAVY and abs(self.largest) > LARGE

    @property
    def badly_scaled(self) -> bool:
        """Whether the values are spread widely, or lie far from 0."""
        return self.count > 0 and (self.deviation > LARGE or abs(self.mean) > LARGE * max(1.0, self.deviation))


def tail_figures(raw: np.ndarray, train: np.ndarray, names: Sequence[str]) -> tuple[Figures, ...]:
    """The figures of each column of `raw`, float32 [examples, columns], on the training split."""
    places = train if len(train) <= SAMPLE else train[np.linspace(0, len(train) - 1, SAMPLE).astype(np.int64)]

    def of_column(number: int) -> Figures:
        values = raw[places, number].astype(np.float64)
        values = values[~np.isnan(values)]
        if not len(values):
            return Figures(names[number], 0, 0.0, 0.0, 0.0, 0.0, 0.0)
        mean, deviation = float(values.mean()), float(values.std())
        kurtosis = float((((values - mean) / deviation) ** 4).mean()) - 3 if deviation else 0.0
        largest = float(values[np.abs(values).argmax()])
        return Figures(names[number], len(values), mean, deviation, kurtosis, float(np.median(values)), largest)

    return tuple(at_once(of_column, range(len(names))))


def column_warnings(found: Sequence[Figures], settings: Mapping[str, NumericColumn]) -> list[str]:
    """A warning of the columns without a transform that are heavy-tailed, and of those that are badly scaled.

    And one of all columns with a single value.
    """
    raw = [each for each in found if each.name not in settings or not settings[each.name].transforms]
    heavy = {each.name: f"median {each.median:,.4g}, largest {each.largest:,.4g}" for each in raw if each.heavy}
    scaled = {
        each.name: f"mean {each.mean:,.4g}, standard deviation {each.deviation:,.4g}"
        for each in raw
        if each.badly_scaled and not each.heavy
    }
    lines = []
    if single := {each.name: f"{each.median:g}" if each.count else "none" for each in found if not each.deviation}:
        shown = summarize_names([f"{name} ({value})" for name, value in single.items()])
        lines.append(
            f"numeric columns with a single value, or none, in a sample of up to {SAMPLE:,} training examples: {shown}:"
            " models can't learn from them; leave them out of data.dense_features"
        )
    for columns, what, why, transform in (
        (heavy, "with heavy tails", "a few large values outweigh the others", "log1p"),
        (scaled, "with a large scale", "models learn best from values of magnitude 1", "standardize"),
    ):
        if columns:
            shown = summarize_names([f"{name} ({figures})" for name, figures in columns.items()])
            remedy = f"set data.dense_features.{next(iter(columns))}.transform={transform}"
            more = " and so on" if len(columns) > 1 else ""
            lines.append(f"numeric columns {what}: {shown}: {why}; {remedy}{more}")
    return lines


def bucket_warnings(vocabularies: Mapping[str, Vocabulary]) -> list[str]:
    """A warning of the tables, which `vocabularies` has by name, whose quantiles are one bucket."""
    single = [name for name, each in vocabularies.items() if isinstance(each, BucketVocabulary) and not each.boundaries]
    if not single:
        return []
    return [
        f"tables with a single bucket: {summarize_names(single)}: their numbers do not differ in the training split, so"
        " there are no quantiles; leave the features out, or set buckets.boundaries"
    ]


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
    raw: np.ndarray,
    train: np.ndarray,
    settings: Mapping[str, NumericColumn],
    *,
    cache: Path,
    key: str,
    fitted: Sequence[FittedColumn] = (),
    progress: Progress = quiet,
) -> PreparedNumbers:
    """Fits the columns to the training split and transforms all examples, unless the cache has it.

    Args:
        raw: float32 [examples, columns], NaN where a value is missing.
        train: int64, the examples of the training split.
        settings: of the columns, in the order of `raw`.
        fitted: what was fitted before, and is used instead; empty: nothing.
    """
    if not settings:
        return PreparedNumbers()
    written = [[name, setting.model_dump(mode="json")] for name, setting in settings.items()]
    place = digests.of_json({"format": [FORMAT, _FITTED], "scan": key, "columns": written})
    folder = caching.folder(cache, "numbers", place, partial(_make, raw, train, settings, fitted, progress))
    columns = read(folder / "fitted.json")
    figures = tuple(Figures(**load) for load in json.loads((folder / "figures.json").read_text("utf-8")))
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
    folder = caching.folder(cache, "numbers", place, lambda made: apply(raw, columns, made / _DENSE))
    return mapped_array(folder / _DENSE)


def applied_in(raw: np.ndarray, columns: Sequence[FittedColumn], folder: Path) -> np.ndarray:
    """What `applied` returns, written into a folder instead of the cache."""
    apply(raw, columns, folder / _DENSE)
    return mapped_array(folder / _DENSE)


def _make(
    raw: np.ndarray,
    train: np.ndarray,
    settings: Mapping[str, NumericColumn],
    fitted: Sequence[FittedColumn],
    progress: Progress,
    folder: Path,
) -> None:
    if raw.size >= _LONG:
        progress("fitting the numeric columns", None)
    columns = tuple(fitted) or fit(raw, train, settings, folder)
    write(columns, folder / "fitted.json")
    figures = [asdict(figure) for figure in tail_figures(raw, train, list(settings))]
    (folder / "figures.json").write_text(json.dumps(figures), "utf-8")
    if not all(column.plain for column in columns):
        apply(raw, columns, folder / _DENSE)


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


def moments(blocks: Iterable[np.ndarray]) -> tuple[int, float, float]:
    """Count, mean and standard deviation (divided by the count) of float64 blocks, in one pass."""
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
    return count, mean, math.sqrt(squares / count) if count else 0.0


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
        values.sort()  # in place: nothing is held but the pages of the file
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
        for start in range(0, len(train), _ROWS_SORTED):
            values = raw[train[start : start + _ROWS_SORTED], number].astype(np.float64)
            yield values[~np.isnan(values)]

    return blocks


def _fitted(name: str, setting: NumericColumn, known: Blocks, folder: Path) -> FittedColumn:
    column = FittedColumn(name, setting.transforms, None, setting.indicator)
    if setting.may_be_missing:
        column = replace(column, fill=_fill(setting.missing, known, folder))
    if Transform.STANDARDIZE in setting.transforms:
        before = setting.transforms[: setting.transforms.index(Transform.STANDARDIZE)]
        _, mean, deviation = moments(_after(column, before, known))
        # A column of one value, or of none, becomes 0 everywhere: no weight was trained for others.
        column = replace(column, mean=mean, scale=deviation or sys.float_info.max)
    if Transform.QUANTILE in setting.transforms:
        marks = quantiles(known(), max(2, min(QUANTILES, moments(known())[0])), folder)
        column = replace(column, quantiles=marks or (0.0, 0.0))
    return column


def _after(column: FittedColumn, transforms: Iterable[Transform], known: Blocks) -> Iterator[np.ndarray]:
    for block in known():
        for transform in transforms:
            block = column.transformed(block, transform)
        yield block


def _fill(missing: Fill | float, known: Blocks, folder: Path) -> float:
    match missing:
        case Fill.ZERO | Fill.ERROR:
            return 0.0
        case Fill.MEAN:
            return moments(known())[1]
        case Fill.MEDIAN:
            return (quantiles(known(), 1, folder) or (0.0,))[0]
        case _:
            return float(missing)


def fit_buckets(
    raw: np.ndarray, names: Sequence[str], train: np.ndarray, buckets: Mapping[str, BucketColumn], folder: Path
) -> dict[str, BucketVocabulary]:
    """The buckets of each table; several columns of one table share them. Without two different numbers, there is one.

    Args:
        raw: float32 [examples, len(names)], NaN where a value is missing.
        names: of the columns of `raw`.
        train: int64, rising, the examples of the training split.
    """
    found = {}
    for table in dict.fromkeys(bucket.table for bucket in buckets.values()):
        mine = [bucket for bucket in buckets.values() if bucket.table == table]
        boundaries, count = mine[0].settings.boundaries, mine[0].settings.quantiles
        if boundaries is None:
            assert count is not None  # a rule between the settings
            known = [_known_values(raw, train, names.index(each.column)) for each in mine]
            values = (block for column in known for block in column())
            marks = np.array(quantiles(values, count + 1, folder), np.float32)
            # Each once, and none is the least number, as no number would lie below it.
            boundaries = tuple(np.unique(marks[1:-1][marks[1:-1] > marks[0]]).tolist()) if len(marks) else ()
        found[table] = BucketVocabulary(tuple(float(np.float32(boundary)) for boundary in boundaries))
    return found
