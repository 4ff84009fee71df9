"""How far pretrained rows have moved from their initial values, in bounded memory."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from embexp.errors import RunError
from embexp.freezing.policies import TablePolicy
from embexp.system import digests
from embexp.system.arrays import Rows, SomeRows
from embexp.tables.reading import ReadableTable

MOST_SAMPLED = 65_536
"""Rows of a table whose drift is measured during the training."""
_ROWS_AT_ONCE = 8_192

Mask = Callable[[int, int], np.ndarray]
"""Whether each of the rows [start, stop) is watched: bool [stop - start]."""


@dataclass(frozen=True)
class Drift:
    """Distances ‖w − w₀‖₂ of rows w from their pretrained values w₀.

    Attributes:
        mean: of the distances.
        largest: of the distances.
        start_norm: mean of ‖w₀‖₂.
        rows: how many were measured.
    """

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
        rows: of the table.
        seed: decides which are drawn.
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
            source: the table's initial values.
            mask: which rows are watched.
            seed: of the sample.

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
        for start in range(0, len(self._numbers), _ROWS_AT_ONCE):
            yield slice(start, min(start + _ROWS_AT_ONCE, len(self._numbers)))


def origin_of(name: str, seed: int, source: Rows, pretrained: np.ndarray, policy: TablePolicy) -> Origin | None:
    """Initial values of the pretrained rows of a table that may move; None if there are none.

    Args:
        name: of the table.
        seed: of the run.
        source: the table's initial values.
        pretrained: bool [rows], whether a row came from a file.
        policy: which rows may move.
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
