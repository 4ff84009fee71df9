"""How far rows have moved from their initial values, in bounded memory: pretrained rows, a sample of trained ones."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from embexp.errors import RunError
from embexp.freezing.policies import TablePolicy
from embexp.specs.base import summarize_names
from embexp.specs.optimizers import FTRL, Adagrad, TableOptimizer
from embexp.system import digests
from embexp.system.arrays import Rows, SomeRows
from embexp.tables.variables import ReadableTable

MOST_SAMPLED = 65_536
"""Rows of a table whose drift is measured during the training."""
_ROWS_AT_ONCE, _BYTES_AT_ONCE = 8_192, 4 << 20

Mask = Callable[[int, int], np.ndarray]
"""Whether each of the rows [start, stop) is watched: bool [stop - start]."""
MOST_ROWS = 2_048
"""Rows of a table that are compared."""
_HARDLY = 0.01
"""Share of its initial norm by which a row of a model that has learned moves at least."""
_SHORT = 0.1
"""The same where small steps are explained by the accumulator, also if the model has learned something."""
_FAR_BELOW = 0.1
"""Share of its initial value by which an accumulator grows at least where it does what it is for."""
_ERRORS_LEFT = 0.5
"""Share of a constant's training loss below which gradients are small because the errors are: then nothing shows that
the accumulator made steps short, and longer ones would have had little to learn."""


@dataclass(frozen=True)
class Drift:
    """Distances ‖w − w₀‖₂ of rows w from their pretrained values w₀."""

    mean: float
    largest: float
    start_norm: float
    rows: int

    @property
    def relative(self) -> float | None:
        """The mean distance divided by the mean ‖w₀‖₂; None if that is 0."""
        return self.mean / self.start_norm if self.start_norm else None

    def as_json(self) -> dict[str, float | int | None]:
        """The numbers in metrics.jsonl and summary.json."""
        return {
            "mean": self.mean,
            "largest": self.largest,
            "relative": self.relative,
            "start_norm": self.start_norm,
            "rows": self.rows,
        }


def measure(pairs: Iterator[tuple[np.ndarray, np.ndarray]]) -> Drift:
    """The drift of rows that come as pieces (rows now, rows at first), both float32 [n, dim]; sums are float64."""
    total = largest = norms = 0.0
    rows = 0
    for now, first in pairs:
        start = first.astype(np.float64)
        distances = _norms(now - start)
        total += float(distances.sum())
        largest = max(largest, float(distances.max(initial=0.0)), key=lambda x: (np.isnan(x), x))
        norms += float(_norms(start).sum())
        rows += len(distances)
    return Drift(total / max(rows, 1), largest, norms / max(rows, 1), rows)


def _norms(rows: np.ndarray) -> np.ndarray:
    found: np.ndarray = np.sqrt(np.einsum("ij,ij->i", rows, rows))
    return found


def draw_sample(mask: Mask, rows: int, seed: int, *, most: int = MOST_SAMPLED) -> np.ndarray:
    """Numbers of some watched rows, drawn without repetition: int64, rising; all of them if they are few.

    Args:
        mask: which rows are watched.
        most: how many at most.
    """
    ranges = [(start, min(start + MOST_SAMPLED, rows)) for start in range(0, rows, MOST_SAMPLED)]
    counts = [int(np.count_nonzero(mask(start, stop))) for start, stop in ranges]
    count = sum(counts)
    generator = np.random.Generator(np.random.Philox(key=seed))
    ranks = np.arange(count) if count <= most else np.sort(generator.choice(count, most, replace=False, shuffle=False))
    found, before = [], 0
    for (start, stop), here in zip(ranges, counts, strict=True):
        low, high = np.searchsorted(ranks, [before, before + here])
        if high > low:
            found.append(start + np.flatnonzero(mask(start, stop))[ranks[low:high] - before])
        before += here
    return np.concatenate(found) if found else np.zeros(0, np.int64)


class Origin:
    """Initial values of the watched rows of a table, of which a sample is kept in a temporary file."""

    def __init__(self, source: Rows, mask: Mask, seed: int) -> None:
        """Draws the sample and writes its initial values.

        Args:
            mask: which rows are watched.

        Raises:
            RunError: the file can't be written.
        """
        self._source, self._mask = source, mask
        self._numbers = draw_sample(mask, source.rows, seed)
        first = SomeRows(source, self._numbers)
        try:
            self._file = tempfile.TemporaryFile(prefix="embexp-")  # noqa: SIM115 - lives as long as this
            for some in self._pieces():
                self._file.write(np.ascontiguousarray(first.read(some.start, some.stop)).data)
            self._file.flush()
        except OSError as error:
            raise RunError(
                f"pretrained rows can't be written to {tempfile.gettempdir()}: {error.strerror or error}; set TMPDIR to"
                " a folder with more room"
            ) from error

    @property
    def sample(self) -> np.ndarray:
        """Numbers of the rows in the sample: int64, rising."""
        return self._numbers

    def sample_drift(self, table: ReadableTable) -> Drift:
        """The drift of the sample."""

        def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            self._file.seek(0)
            for some in self._pieces():
                now = table.take(self._numbers[some])
                yield now, np.frombuffer(self._file.read(now.nbytes), np.float32).reshape(now.shape)

        return measure(pairs())

    def full_drift(self, table: ReadableTable) -> Drift:
        """The drift of all watched rows."""

        def pairs() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            start = 0
            for block in table.blocks():
                for low in range(0, len(block), _ROWS_AT_ONCE):
                    piece = block[low : low + _ROWS_AT_ONCE]
                    rows = start + low, start + low + len(piece)
                    mask = self._mask(*rows)
                    if mask.any():
                        yield piece[mask], self._source.read(*rows)[mask]
                start += len(block)

        return measure(pairs())

    def close(self) -> None:
        """Deletes the temporary file."""
        self._file.close()

    def _pieces(self) -> Iterator[slice]:
        step = min(_ROWS_AT_ONCE, max(1, _BYTES_AT_ONCE // (4 * self._source.dim)))
        for start in range(0, len(self._numbers), step):
            yield slice(start, min(start + step, len(self._numbers)))


def origin_of(name: str, seed: int, source: Rows, pretrained: np.ndarray, policy: TablePolicy) -> Origin | None:
    """Initial values of the pretrained rows of a table that may move; None if there are none.

    Args:
        pretrained: bool [rows], whether a row came from a file.
    """
    if policy.fully_frozen:
        return None
    frozen = policy.frozen

    def mask(start: int, stop: int) -> np.ndarray:
        found: np.ndarray = pretrained[start:stop]
        return found if frozen is None else found & ~frozen[start:stop]

    origin = Origin(source, mask, digests.seed_of(seed, "drift", name)[0])
    if len(origin.sample):
        return origin
    origin.close()
    return None


def as_json(found: Mapping[str, Drift]) -> dict[str, Any]:
    """By table, as it stands in metrics.jsonl and summary.json."""
    return {name: drift.as_json() for name, drift in found.items()}


@dataclass(frozen=True)
class Movement:
    """How far a sample of the rows that were trained has moved.

    Attributes:
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


def measure_movement(
    table: ReadableTable, source: Rows, trained: np.ndarray, optimizer: TableOptimizer
) -> Movement | None:
    """The movement of a sample of rows; None if no row was trained. Reads no more than the sample.

    Args:
        trained: bool [rows], trainable rows that steps have looked up.
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


def movement_warnings(
    movements: Mapping[str, Movement],
    optimizers: Mapping[str, tuple[str, TableOptimizer]],
    *,
    learned: bool,
    loss_left: float | None = None,
) -> list[str]:
    """A line for the tables whose rows hardly moved for the same reason, each with figures and the remedy.

    With Adagrad and FTRL, that is an initial accumulator far above the squared gradients, so that no step was as long
    as the learning rate allows, in a run that has not learned most of what there is by other means. With any optimizer,
    it is a training that has not learned and whose rows moved by less than 1%.

    Args:
        optimizers: the config path of each table's optimizer, and its settings.
        learned: whether the run is better than a constant prediction.
        loss_left: its training loss divided by that of a constant prediction; None: not known.
    """
    alike: dict[tuple[str, str], list[tuple[str, Movement]]] = {}
    for name, movement in movements.items():
        path, optimizer = optimizers[name]
        cause = _cause(movement, optimizer, learned, loss_left)
        if cause is not None:
            alike.setdefault((cause, path), []).append((name, movement))
    return [_line(cause, path, tables, optimizers[tables[0][0]][1]) for (cause, path), tables in alike.items()]


def _cause(movement: Movement, optimizer: TableOptimizer, learned: bool, loss_left: float | None) -> str | None:
    if movement.median is None or not math.isfinite(movement.median):
        return None
    throttled = (
        isinstance(optimizer, Adagrad | FTRL)
        and movement.accumulated is not None
        and movement.accumulated < _FAR_BELOW * optimizer.initial_accumulator_value
        and (loss_left is None or loss_left >= _ERRORS_LEFT)
    )
    if throttled and movement.median < _SHORT:
        return "accumulator"
    return "steps" if not learned and movement.median < _HARDLY else None


def _line(cause: str, path: str, tables: list[tuple[str, Movement]], optimizer: Any) -> str:
    names = summarize_names([f"tables.{name}" for name, _ in tables])
    shares = summarize_names([f"{each.median:.2g}" for _, each in tables])
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
