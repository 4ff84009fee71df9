"""What a model gets of numeric columns: filled, transformed, and with indicators of missing values.

All arithmetic is float64, and what comes out is float32. `embexp.runs.exports.numbers` has the same in TensorFlow's
operations, for exported models.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embexp.data.ahead import ahead
from embexp.data.arrays import ArrayWriter
from embexp.errors import DataError
from embexp.specs.numbers import Transform
from embexp.system import digests, regular
from embexp.system.files import write_text

_ROWS = 65_536
_LARGEST_FILE = 1 << 28


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
    if fault := regular.fault_of(path):
        raise DataError(f"{path}: {fault}")
    try:
        with regular.opened(path) as file:
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
