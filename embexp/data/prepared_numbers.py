"""The numeric columns of a scan: fitted to the training split, and written as the model gets them. Cached."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from embexp.data import fitting, numbers, tails
from embexp.data.arrays import mapped
from embexp.data.numbers import FittedColumn
from embexp.data.source import FORMAT
from embexp.data.tails import Figures
from embexp.specs.numbers import NumericColumn
from embexp.system import caching, digests

_DENSE = "dense.npy"


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
        cache: folder for encoded data.
        key: of the scan.

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
    return PreparedNumbers(columns, figures, mapped(folder / _DENSE) if changed else None)


def applied(raw: np.ndarray, columns: Sequence[FittedColumn], *, cache: Path, key: str) -> np.ndarray:
    """Other examples as the model gets them, by columns that were fitted before.

    Args:
        raw: float32 [examples, columns], NaN where a value is missing.
        columns: in the order of `raw`.
        cache: folder for encoded data.
        key: of the raw examples.
    """
    if all(column.plain for column in columns):
        return raw
    written = [column.as_json() for column in columns]
    place = digests.of_json({"format": FORMAT, "raw": key, "columns": written})
    return mapped(caching.folder(cache, "numbers", place, partial(_apply, raw, columns)) / _DENSE)


def _make(raw: np.ndarray, train: np.ndarray, settings: Mapping[str, NumericColumn], folder: Path) -> None:
    columns = fitting.fit(raw, train, settings, folder)
    numbers.write(columns, folder / "fitted.json")
    figures = [each.as_json() for each in tails.figures(raw, train, list(settings))]
    (folder / "figures.json").write_text(json.dumps(figures), "utf-8")
    if not all(column.plain for column in columns):
        _apply(raw, columns, folder)


def _apply(raw: np.ndarray, columns: Sequence[FittedColumn], folder: Path) -> None:
    numbers.apply(raw, columns, folder / _DENSE)
