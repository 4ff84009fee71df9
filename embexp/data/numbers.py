"""What a model gets of numeric columns: filled, transformed, and with indicators of missing values.

All arithmetic is float64, and what comes out is float32. `embexp.runs.serving_inputs` has the same in TensorFlow's
operations, for exported models.

Numeric columns that a model gets as they are, though they are heavy-tailed or of a scale that learns badly. The inputs
of a network are best of about the size 1: its initial weights and learning rates are made for that (LeCun et al. 1998,
Efficient BackProp). Raw counts and amounts outweigh everything else, and their few largest values the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embexp.errors import DataError
from embexp.specs.base import summarize_names
from embexp.specs.sources import NumericColumn, Transform
from embexp.system import digests, files
from embexp.system.arrays import ArrayWriter
from embexp.system.files import write_text
from embexp.system.parallel import ahead, at_once

_ROWS = 65_536
_LARGEST_FILE = 1 << 28
SAMPLE = 262_144
"""Training examples, evenly spaced, that the figures are of."""
HEAVY = 10.0
"""Excess kurtosis above which a column is heavy-tailed: that of a normal distribution is 0, of an exponential one 6."""
LARGE = 10.0
"""Values up to this size do no harm, however they are distributed: a rare 1 among zeros has a large kurtosis too."""
_FEWEST = 30


@dataclass(frozen=True)
class FittedColumn:
    """A numeric column, and what was fitted on the training split.

    Attributes:
        name: of the column.
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
        """What `columns_of` reads."""
        return {
            "name": self.name,
            "transform": [str(each) for each in self.transforms],
            "fill": self.fill,
            "indicator": self.indicator,
            "mean": self.mean,
            "scale": self.scale,
            "quantiles": list(self.quantiles),
        }


def ranks(values: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """The rank of each value among quantiles, from 0 to 1, as scikit-learn's `QuantileTransformer` (uniform) has it.

    Linear between two quantiles. A value that several quantiles have gets the middle of their ranks, unless it is the
    least or the greatest, whose ranks are 0 and 1; so are those of values beyond.

    Args:
        values: float64 [n].
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
        path: of the `.npy` file to write.
    """
    ends = np.cumsum([column.width for column in columns])

    def of_block(start: int) -> np.ndarray:
        block = raw[start : start + _ROWS]
        found: np.ndarray = np.empty((len(block), int(ends[-1])), np.float32)
        for number, (column, end) in enumerate(zip(columns, ends.tolist(), strict=True)):
            found[:, end - column.width : end] = column.apply(block[:, number])
        return found

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
        raise DataError(f"{path}: there is no such file, which has what was fitted to the numeric columns of the run")
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    try:
        with files.opened(path) as file:
            content = json.loads(file.read(_LARGEST_FILE))
        columns = content["columns"]
        unchanged = digests.of_json(columns) == content["digest"]
        found = tuple(_read(columns))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: expected the numeric columns of a run ({error})") from error
    if not unchanged:
        raise DataError(f"{path} was changed: its digest is not that of its content; put the run's own back")
    return found


def _read(columns: Sequence[dict[str, Any]]) -> Iterator[FittedColumn]:
    for each in columns:
        yield FittedColumn(
            name=str(each["name"]),
            transforms=tuple(Transform(one) for one in each["transform"]),
            fill=None if each["fill"] is None else float(each["fill"]),
            indicator=bool(each["indicator"]),
            mean=float(each["mean"]),
            scale=float(each["scale"]),
            quantiles=tuple(map(float, each["quantiles"])),
        )


@dataclass(frozen=True)
class Figures:
    """Of a numeric column, on the sample of the training split, without missing values.

    Attributes:
        name: of the column.
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

    def as_json(self) -> dict[str, Any]:
        """Its figures by name."""
        return asdict(self)


def tail_figures(raw: np.ndarray, train: np.ndarray, names: Sequence[str]) -> tuple[Figures, ...]:
    """The figures of each column of `raw`, float32 [examples, columns], on the training split."""
    places = train if len(train) <= SAMPLE else train[np.linspace(0, len(train) - 1, SAMPLE).astype(np.int64)]

    def of_column(number: int) -> Figures:
        return _figures(names[number], raw[places, number].astype(np.float64))

    return tuple(at_once(of_column, range(len(names))))


def _figures(name: str, values: np.ndarray) -> Figures:
    values = values[~np.isnan(values)]
    if not len(values):
        return Figures(name, 0, 0.0, 0.0, 0.0, 0.0, 0.0)
    mean, deviation = float(values.mean()), float(values.std())
    kurtosis = float((((values - mean) / deviation) ** 4).mean()) - 3 if deviation else 0.0
    largest = float(values[np.abs(values).argmax()])
    return Figures(name, len(values), mean, deviation, kurtosis, float(np.median(values)), largest)


def tail_warnings(found: Iterable[Figures], settings: Mapping[str, NumericColumn]) -> list[str]:
    """A warning of the columns without a transform that are heavy-tailed, and one of those that are badly scaled."""
    raw = [each for each in found if each.name not in settings or not settings[each.name].transforms]
    heavy = [each for each in raw if each.heavy]
    scaled = [each for each in raw if each.badly_scaled and not each.heavy]
    lines = []
    if heavy:
        shown = [f"{each.name} (median {each.median:,.4g}, largest {each.largest:,.4g})" for each in heavy]
        what = "a few large values outweigh the others"
        lines.append(f"numeric columns with heavy tails: {summarize_names(shown)}: {what}; {_remedy(heavy, 'log1p')}")
    if scaled:
        shown = [f"{each.name} (mean {each.mean:,.4g}, standard deviation {each.deviation:,.4g})" for each in scaled]
        what = "models learn best from values of about the size 1"
        lines.append(
            f"numeric columns of a large scale: {summarize_names(shown)}: {what}; {_remedy(scaled, 'standardize')}"
        )
    return lines


def _remedy(columns: Sequence[Figures], transform: str) -> str:
    more = " and so on" if len(columns) > 1 else ""
    return f"set data.dense_features.{columns[0].name}.transform={transform}{more}"
