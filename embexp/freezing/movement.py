"""How far trained rows have moved at the end of a run: a sample of them, compared with their initial values."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from embexp.specs.base import few
from embexp.specs.optimizers import FTRL, Adagrad, TableOptimizer
from embexp.system.arrays import Rows, SomeRows
from embexp.tables.reading import ReadableTable

MOST_ROWS = 2_048
"""Rows of a table that are compared."""
_HARDLY = 0.01
"""Share of its initial norm by which a row of a model that has learned moves at least."""
_SHORT = 0.1
"""The same where small steps are explained by the accumulator, also if the model has learned something."""
_FAR_BELOW = 0.1
"""Share of its initial value by which an accumulator grows at least where it does what it is for."""


@dataclass(frozen=True)
class Movement:
    """How far a sample of the rows that were trained has moved.

    Attributes:
        rows: how many were compared.
        median: over the rows w, of ‖w − w₀‖₂ / ‖w₀‖₂; None where all initial values are 0.
        accumulated: median over their elements of the squared gradients that were added to an accumulator; None: the
            optimizer has none, or it can't be read.
    """

    rows: int
    median: float | None
    accumulated: float | None = None

    def as_json(self) -> dict[str, float | int | None]:
        """The numbers in summary.json."""
        return {"rows": self.rows, "median": self.median, "accumulated": self.accumulated}


def measure(table: ReadableTable, source: Rows, trained: np.ndarray, optimizer: TableOptimizer) -> Movement | None:
    """The movement of a sample of rows; None if no row was trained. Reads no more than the sample.

    Args:
        table: with its final values.
        source: its initial values.
        trained: bool [rows], trainable rows that steps have looked up.
        optimizer: of the table.
    """
    numbers = np.flatnonzero(trained)
    if not len(numbers):
        return None
    numbers = numbers[np.unique(np.linspace(0, len(numbers) - 1, min(len(numbers), MOST_ROWS)).astype(np.int64))]
    first = SomeRows(source, numbers).read(0, len(numbers)).astype(np.float64)
    norms = np.linalg.norm(first, axis=1)
    moved = np.linalg.norm(table.take(numbers) - first, axis=1)
    known = norms > 0
    median = float(np.median(moved[known] / norms[known])) if known.any() else None
    return Movement(len(numbers), median, _accumulated(table, numbers, optimizer))


def _accumulated(table: ReadableTable, numbers: np.ndarray, optimizer: TableOptimizer) -> float | None:
    if not isinstance(optimizer, Adagrad | FTRL):
        return None
    try:
        values = table.take(numbers, "accumulators").astype(np.float64)
    except KeyError:  # a table in a session shows no slots
        return None
    return float(np.median(values)) - float(np.float32(optimizer.initial_accumulator_value))


def warnings(
    movements: Mapping[str, Movement],
    optimizer_of: Callable[[str], tuple[str, TableOptimizer]],
    *,
    learned: bool,
) -> list[str]:
    """A line for the tables whose rows hardly moved for the same reason, each with figures and the remedy.

    With Adagrad and FTRL, that is an initial accumulator far above the squared gradients, so that no step was as long
    as the learning rate allows. With any optimizer, it is a training that has not learned and whose rows moved by
    less than 1%.

    Args:
        movements: by table.
        optimizer_of: the config path of a table's optimizer, and its settings.
        learned: whether the run is better than a constant prediction.
    """
    alike: dict[tuple[str, str], list[tuple[str, Movement]]] = {}
    for name, each in movements.items():
        path, optimizer = optimizer_of(name)
        cause = _cause(each, optimizer, learned)
        if cause is not None:
            alike.setdefault((cause, path), []).append((name, each))
    return [_line(cause, path, tables, optimizer_of(tables[0][0])[1]) for (cause, path), tables in alike.items()]


def _cause(movement: Movement, optimizer: TableOptimizer, learned: bool) -> str | None:
    if movement.median is None or not math.isfinite(movement.median):
        return None
    throttled = (
        isinstance(optimizer, Adagrad | FTRL)
        and movement.accumulated is not None
        and movement.accumulated < _FAR_BELOW * optimizer.initial_accumulator_value
    )
    if throttled and movement.median < _SHORT:
        return "accumulator"
    return "steps" if not learned and movement.median < _HARDLY else None


def _line(cause: str, path: str, tables: list[tuple[str, Movement]], optimizer: Any) -> str:
    names = few([f"tables.{name}" for name, _ in tables])
    shares = few([f"{each.median:.2g}" for _, each in tables])
    line = f"{names}: trained rows hardly moved, by {shares} of their initial norm in the median"
    if cause == "steps":
        return f"{line}: a larger {path}.learning_rate, now {optimizer.learning_rate:g}, is the usual remedy"
    added = max(each.accumulated or 0.0 for _, each in tables)
    start = optimizer.initial_accumulator_value
    remedy = 10.0 ** (math.floor(math.log10(added)) - 1) if added > 0 else 1e-12
    return (
        f"{line}: {path}.initial_accumulator_value = {start:g} is far above the squared gradients that were added to"
        f" it, {added:.2g}, and makes every step short; set it to {max(remedy, 1e-12):g} or less"
    )
