"""Numeric columns that a model gets as they are, though they are heavy-tailed or of a scale that learns badly.

The inputs of a network are best of about the size 1: its initial weights and learning rates are made for that (LeCun et
al. 1998, Efficient BackProp). Raw counts and amounts outweigh everything else, and their few largest values the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from embexp.specs.alike import few
from embexp.specs.numbers import NumericColumn
from embexp.system.parallel import at_once

SAMPLE = 262_144
"""Training examples, evenly spaced, that the figures are of."""
HEAVY = 10.0
"""Excess kurtosis above which a column is heavy-tailed: that of a normal distribution is 0, of an exponential one 6."""
LARGE = 10.0
"""Values up to this size do no harm, however they are distributed: a rare 1 among zeros has a large kurtosis too."""
_FEWEST = 30


@dataclass(frozen=True)
class Figures:
    """Of a numeric column, on the sample of the training split, without missing values.

    Attributes:
        name: of the column.
        count: values.
        mean: of them.
        deviation: their standard deviation.
        kurtosis: excess kurtosis; 0 for a constant.
        median: of them.
        largest: the largest, by its size.
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


def figures(raw: np.ndarray, train: np.ndarray, names: Sequence[str]) -> tuple[Figures, ...]:
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


def warnings(found: Iterable[Figures], settings: Mapping[str, NumericColumn]) -> list[str]:
    """A warning of the columns without a transform that are heavy-tailed, and one of those that are badly scaled."""
    raw = [each for each in found if each.name not in settings or not settings[each.name].transforms]
    heavy = [each for each in raw if each.heavy]
    scaled = [each for each in raw if each.badly_scaled and not each.heavy]
    lines = []
    if heavy:
        shown = [f"{each.name} (median {each.median:,.4g}, largest {each.largest:,.4g})" for each in heavy]
        what = "a few large values outweigh the others"
        lines.append(f"numeric columns with heavy tails: {few(shown)}: {what}; {_remedy(heavy, 'log1p')}")
    if scaled:
        shown = [f"{each.name} (mean {each.mean:,.4g}, standard deviation {each.deviation:,.4g})" for each in scaled]
        what = "models learn best from values of about the size 1"
        lines.append(f"numeric columns of a large scale: {few(shown)}: {what}; {_remedy(scaled, 'standardize')}")
    return lines


def _remedy(columns: Sequence[Figures], transform: str) -> str:
    more = " and so on" if len(columns) > 1 else ""
    return f"set data.dense_features.{columns[0].name}.transform={transform}{more}"
