"""Watches the rows of a run: hashed before the first step, their drift measured at evaluations, compared at the end.

Drift is how far rows have moved from their initial values, in bounded memory: pretrained rows, a sample of trained
ones.

Trainable rows that never moved in a finished training are diagnosed: which, why, and the warning about it.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, assert_never

import numpy as np

from embexp.data.vocabularies.vocabulary import TokenVocabulary, Vocabulary
from embexp.errors import RunError
from embexp.specs.base import Note, summarize_names
from embexp.specs.optimizers import FTRL, Adagrad, TableOptimizer
from embexp.specs.tables import Storage
from embexp.system import digests
from embexp.system.arrays import Rows, SomeRows
from embexp.system.parallel import Progress, part, quiet, reported
from embexp.tables import optimizers
from embexp.tables.variables import ReadableTable
from embexp.training.freezing.policies import Grouping, TablePolicy
from embexp.training.listeners import Listener

MOST_SAMPLED = 65_536
"""Rows of a table whose drift is measured during the training."""
_ROWS_OF_DRIFT, _BYTES_AT_ONCE = 8_192, 4 << 20

Mask = Callable[[int, int], np.ndarray]
"""Whether each of the rows [start, stop) is watched: bool [stop - start]."""
MOST_ROWS = 2_048
"""Rows of a table that are compared."""
_HARDLY = 0.01
"""If a model has learned, its rows move by at least this share of their initial norm."""
_SHORT = 0.1
"""The same share if the accumulator explains small steps, even if the model has learned something."""
_FAR_BELOW = 0.1
"""An accumulator that has an effect grows by at least this share of its initial value."""
_ERRORS_LEFT = 0.5
"""Below this share of a constant's training loss, gradients are small because errors are small. Then nothing shows that
the accumulator made the steps short, and longer steps would have had little to learn."""
_STEPS_AT_ONCE = 65_536
_WORTH_TELLING = 0.01
"""Rows that no gradient reached are worth a warning if there are this many for each row that moved. A gradient may well
be 0 for a few of many rows, but a model without a path to its rows leaves many of them unmoved."""


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
                for low in range(0, len(block), _ROWS_OF_DRIFT):
                    piece = block[low : low + _ROWS_OF_DRIFT]
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
        step = min(_ROWS_OF_DRIFT, max(1, _BYTES_AT_ONCE // (4 * self._source.dim)))
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
    except KeyError:  # tables in a session don't show their slots
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
    line = f"{names}: trained rows hardly moved (median distance: {shares} of the initial norm)"
    if cause == "steps":
        return f"{line}: increase {path}.learning_rate, which is {optimizer.learning_rate:g}"
    added = max(each.accumulated or 0.0 for _, each in tables)
    start = optimizer.initial_accumulator_value
    remedy = 10.0 ** (math.floor(math.log10(added)) - 1) if added > 0 else 1e-12
    return (
        f"{line}: {path}.initial_accumulator_value = {start:g} is far above the squared gradients that were added to"
        f" it, {added:.2g}, which makes every step small; set it to {max(remedy, 1e-12):g} or less"
    )


_ROWS_AT_ONCE = 8_192
"""So few rows that hashing before the first step adds almost nothing to the memory of a run."""

DriftListener = Callable[[int, Mapping[str, Mapping[str, Any]]], object]
"""Receives a step and the drift of each table after it, see `Drift.as_json`."""


@dataclass(frozen=True)
class Watched:
    """A table under watch.

    Attributes:
        policy: which of them may move.
        pretrained: bool [rows], whether a row came from a file; None: none did.
        optimizer_path: config path of its optimizer.
    """

    table: ReadableTable
    vocabulary: Vocabulary
    policy: TablePolicy
    source: Rows
    pretrained: np.ndarray | None
    optimizer: TableOptimizer
    optimizer_path: str

    @property
    def pieces(self) -> int:
        """How many blocks there are."""
        return -(-self.table.rows // _ROWS_AT_ONCE)

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows, a few at a time."""
        for start in range(0, self.table.rows, _ROWS_AT_ONCE):
            yield self.table.take(np.arange(start, min(start + _ROWS_AT_ONCE, self.table.rows)))


def row_hashes(rows: np.ndarray, seed: int = 0) -> np.ndarray:
    """A hash of each row's bits: uint64 [n].

    The sum over columns of bits times a random odd number, modulo 2^64 (multilinear hashing, Carter & Wegman 1979):
    a row of which one element changed always has another hash, one with several changes keeps it with
    probability 2^-32 at most.

    Args:
        rows: float32 [n, dim].
    """
    bits = np.ascontiguousarray(rows).view(np.uint32)
    generator = np.random.Generator(np.random.Philox(key=seed))
    factors = generator.integers(0, 2**63, rows.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    found = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        found[some] = bits[some].astype(np.uint64) @ factors
    return found


class RowHashes:
    """Hashes of a table's rows, to find later which have changed."""

    def __init__(self, blocks: Iterable[np.ndarray], *, folder: str | os.PathLike[str] | None = None) -> None:
        """Writes a hash of each row.

        Args:
            blocks: all rows of the table, float32, as consecutive blocks.
            folder: of the file; None: the system's folder for temporary files.

        Raises:
            RunError: the file can't be written.
        """
        folder = Path(tempfile.gettempdir() if folder is None else folder)
        try:
            self._file = tempfile.TemporaryFile(dir=folder, prefix="embexp-")  # noqa: SIM115 - lives as long as this
            for block in blocks:
                self._file.write(row_hashes(block).tobytes())
            self._file.flush()
        except OSError as error:
            raise RunError(
                f"hashes of rows can't be written to {folder}: {error.strerror or error}; set TMPDIR to a"
                " folder with more room, or output.digests=false"
            ) from error

    def changed(self, blocks: Iterable[np.ndarray]) -> np.ndarray:
        """Whether each row has changed: bool [rows].

        Args:
            blocks: all rows of the table, cut as before or not.
        """
        self._file.seek(0)
        found = []
        for block in blocks:
            now = row_hashes(block)
            found.append(np.frombuffer(self._file.read(now.nbytes), np.uint64) != now)
        return np.concatenate(found) if found else np.zeros(0, np.bool_)

    def close(self) -> None:
        """Deletes the temporary file."""
        self._file.close()


class Watch(Listener):
    """The rows of a run under watch: as a listener of the training, it measures drift at evaluations.

    Attributes:
        frozen_changed: frozen rows that have changed, by table that was compared.
        never_moved: trainable rows that never moved, by table that was compared.
        drifts: at the end, by table with pretrained rows that may move.
        movements: at the end, by table with trained rows.
        reported: step and drift of the last report, as in metrics.jsonl.
    """

    def __init__(
        self,
        tables: Mapping[str, Watched],
        *,
        seed: int,
        digests: bool,
        restored: bool,
        total_steps: int,
        epochs_of: Callable[[int], float],
        progress: Progress = quiet,
    ) -> None:
        """Remembers the rows as they are before the first step, in temporary files.

        With `digests`, that is a hash of every row, except of tables that stay in their files; and for tables with
        pretrained rows that may move, a sample of these.

        Args:
            restored: whether other values than the initial ones were restored.
            epochs_of: passes over the training split that so many steps make.
            progress: called as the rows of each table are hashed.
        """
        self._tables, self._digests, self._restored = tables, digests, restored
        self._total_steps, self._epochs_of = total_steps, epochs_of
        self.frozen_changed: dict[str, int] = {}
        self.never_moved: dict[str, Diagnosis] = {}
        self.drifts: dict[str, Drift] = {}
        self.movements: dict[str, Movement] = {}
        self.reported: tuple[int, Mapping[str, Any]] | None = None
        self._listeners: tuple[DriftListener, ...] = ()
        self._hashes = {
            name: RowHashes(reported(table.blocks(), table.pieces, "hashing rows", progress))
            for name, table in tables.items()
            if digests and not (table.policy.fully_frozen and table.policy.storage is Storage.MEMORY_MAP)
        }
        origins = {
            name: origin_of(name, seed, table.source, table.pretrained, table.policy)
            for name, table in tables.items()
            if table.pretrained is not None
        }
        self._origins = {name: origin for name, origin in origins.items() if origin is not None}

    def report_to(self, *listeners: DriftListener) -> None:
        """Sets who receives the drift."""
        self._listeners = listeners

    def trained(self, steps: int, progress: Progress = quiet) -> None:
        """Compares every row after the last step, before earlier values are restored."""
        for name, changed in self._all_changed(progress):
            each = self._tables[name]
            if steps and not each.policy.fully_frozen:
                training = Training(each.optimizer, steps, self._total_steps, self._epochs_of(steps))
                looked_up = each.table.looked_up()
                self.never_moved[name] = diagnose(name, changed, looked_up, each.policy, each.vocabulary, training)

    def kept(self, steps: int, kept_step: int, progress: Progress = quiet) -> None:
        """Compares the values that are kept, and measures their drift.

        Args:
            kept_step: the one after which these values were; if it is an earlier one, `trained` was called.
            progress: called as rows are compared.
        """
        if kept_step == steps:
            self.trained(steps, progress)
        else:
            for _ in self._all_changed(progress):
                pass
        self.movements = {name: found for name in self._tables if (found := self._movement(name)) is not None}
        measured = Origin.full_drift if self._digests else Origin.sample_drift
        self.drifts = {name: measured(origin, self._tables[name].table) for name, origin in self._origins.items()}
        if self.reported != (kept_step, as_json(self.drifts)):  # the last evaluation may have seen these rows
            self._report(kept_step, self.drifts)

    def freeze_json(self, name: str) -> dict[str, Any]:
        """Whether a table's rows moved, for summary.json."""
        policy = self._tables[name].policy
        found = NOTHING if policy.frozen_rows == policy.rows else UNKNOWN
        if name in self.never_moved:
            found = self.never_moved[name].as_json()
        return {"frozen_rows_changed": self.frozen_changed.get(name, 0), **found}

    @property
    def warnings(self) -> list[str]:
        """About rows that never moved."""
        return never_moved_warnings(self.never_moved.values())

    def hardly_moved(self, *, learned: bool, loss_left: float | None) -> list[str]:
        """Warnings about trained rows that hardly moved; see `movement_warnings`."""
        return movement_warnings(
            # Rows that no step moved at all have a warning with their own cause.
            {name: movement for name, movement in self.movements.items() if not self._stood_still(name)},
            {name: (table.optimizer_path, table.optimizer) for name, table in self._tables.items()},
            learned=learned,
            loss_left=loss_left,
        )

    def close(self) -> None:
        """Deletes the temporary files."""
        for hashes in self._hashes.values():
            hashes.close()
        for origin in self._origins.values():
            origin.close()

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Measures how far the samples have moved."""
        self._report(
            step, {name: origin.sample_drift(self._tables[name].table) for name, origin in self._origins.items()}
        )

    def _report(self, step: int, drifts: Mapping[str, Drift]) -> None:
        self.reported = step, as_json(drifts)
        if drifts:
            for listener in self._listeners:
                listener(*self.reported)

    def _movement(self, name: str) -> Movement | None:
        """How far the table's trained rows are from their initial values; None if these are unknown."""
        each = self._tables[name]
        if each.policy.fully_frozen or self._restored:
            return None
        trained = each.table.looked_up()
        if trained is None:
            return None
        if each.policy.frozen is not None:
            trained = trained & ~each.policy.frozen
        return measure_movement(each.table, each.source, trained, each.optimizer)

    def _stood_still(self, name: str) -> bool:
        """Whether steps looked up rows of a table, but left them unchanged."""
        counts = self.never_moved[name].found.counts if name in self.never_moved else {}
        return any(counts.get(cause) for cause in (Cause.LEARNING_RATE_ZERO, Cause.NO_GRADIENT))

    def _all_changed(self, progress: Progress) -> Iterator[tuple[str, np.ndarray]]:
        """For each table, whether each row has changed."""
        done, total = 0, sum(self._tables[name].table.rows for name in self._hashes)
        for name in self._hashes:
            after = done + self._tables[name].table.rows
            yield name, self._changed(name, part(progress, done / total, after / total))
            done = after

    def _changed(self, name: str, progress: Progress) -> np.ndarray:
        """Whether each row has changed. Counts the frozen rows that did."""
        each, policy = self._tables[name], self._tables[name].policy
        blocks = reported(each.blocks(), each.pieces, "comparing rows", progress)
        changed = self._hashes[name].changed(blocks)
        if policy.frozen_rows:
            of_frozen = changed if policy.frozen is None else changed & policy.frozen
            found = int(np.count_nonzero(of_frozen))
            self.frozen_changed[name] = max(found, self.frozen_changed.get(name, 0))
        return changed


class Cause(StrEnum):
    """Why a row never moved."""

    LEARNING_RATE_ZERO = "learning_rate_zero"
    """At no step that was done was its learning rate above 0."""
    NO_GRADIENT = "no_gradient"
    """Steps looked it up to move it, and left it as it was."""
    NEVER_MET = "never_met"
    """No step looked it up to move it."""


@dataclass(frozen=True, eq=False)
class NeverMoved:
    """The trainable rows of a table, by whether they moved and why not.

    Attributes:
        moved: how many have other bits than before the first step.
        rows: bool [rows] for each cause of any, the rows that never moved.
        special: how many rows without a token never moved because they were never met, which is no fault.
    """

    moved: int
    rows: dict[Cause, np.ndarray]
    special: int

    @property
    def counts(self) -> dict[Cause, int]:
        """How many rows never moved, by cause."""
        return {cause: int(np.count_nonzero(self.rows[cause])) if cause in self.rows else 0 for cause in Cause}

    @property
    def count(self) -> int:
        """How many rows never moved, without special ones that were never met."""
        return sum(self.counts.values())


def by_cause(
    changed: np.ndarray,
    *,
    frozen: np.ndarray | None,
    looked_up: np.ndarray | None,
    idle: np.ndarray | None,
    special: np.ndarray,
) -> NeverMoved:
    """Sorts the rows of a table that never moved by cause. A learning rate of 0 comes before other causes.

    Args:
        changed: bool [rows], whether a row's bits are others than before the first step.
        frozen: bool [rows], rows that must not move; None: none.
        looked_up: bool [rows], rows that steps looked up to move them; None: none was.
        idle: bool [rows], rows whose learning rate was 0 at every step; None: none.
        special: integers, the numbers of rows without a token: the OOV row and free ones.
    """
    trainable = np.ones(len(changed), np.bool_) if frozen is None else ~frozen
    unmoved = trainable & ~changed
    met = np.zeros(len(changed), np.bool_) if looked_up is None else looked_up
    spared = special[unmoved[special] & ~met[special]]
    moved = int(np.count_nonzero(trainable)) - int(np.count_nonzero(unmoved))
    unmoved[spared] = False
    found = {}
    if idle is not None:
        found[Cause.LEARNING_RATE_ZERO] = unmoved & idle
        unmoved = unmoved & ~idle
    found |= {Cause.NO_GRADIENT: unmoved & met, Cause.NEVER_MET: unmoved & ~met}
    return NeverMoved(moved, {cause: rows for cause, rows in found.items() if rows.any()}, len(spared))


def most_frequent(rows: np.ndarray, frequencies: np.ndarray | None, *, shown: int = 5) -> np.ndarray:
    """The rows of a mask that were seen most often in the training split, most frequent first: int64, at most `shown`.

    Args:
        rows: bool [rows].
        frequencies: integers [n], n ≤ rows, how often each row was seen; None, and rows beyond them: not counted.
    """
    numbers = np.flatnonzero(rows)
    if frequencies is not None and len(numbers):
        counts = np.zeros(len(numbers), np.int64)
        counted = numbers < len(frequencies)
        counts[counted] = frequencies[numbers[counted]]
        if len(numbers) > shown:  # rows that are as common as the last of them, or more
            kept = counts >= np.partition(counts, len(counts) - shown)[len(counts) - shown]
            numbers, counts = numbers[kept], counts[kept]
        numbers = numbers[np.argsort(-counts, kind="stable")]
    return numbers[:shown]


@dataclass(frozen=True)
class Training:
    """How a table was trained.

    Attributes:
        total_steps: how many there were to be, which schedules may end with.
        epochs: passes over the training split that the steps make.
    """

    optimizer: TableOptimizer
    steps: int
    total_steps: int
    epochs: float


@dataclass(frozen=True)
class Reason:
    """Why some rows of a table never moved.

    Attributes:
        explanation: as a sentence about "they".
        count: how many rows.
        examples: their most frequent tokens, or their first numbers.
    """

    explanation: str
    count: int
    examples: str


@dataclass(frozen=True, eq=False)
class Diagnosis:
    """Trainable rows of a table that never moved.

    Attributes:
        found: the rows, by cause.
        trainable: how many of its rows may move.
    """

    found: NeverMoved
    table: str = ""
    trainable: int = 0
    reasons: tuple[Reason, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """The keys of the table in summary.json."""
        return {
            "trainable_rows_moved": self.found.moved,
            "trainable_rows_never_moved": self.found.count,
            "never_moved_because": {cause.value: count for cause, count in self.found.counts.items()},
            "special_rows_never_met": self.found.special,
        }


NOTHING = Diagnosis(NeverMoved(0, {}, 0)).as_json()
"""The same keys of a table that is frozen whole."""
UNKNOWN: dict[str, Any] = dict.fromkeys(NOTHING)
"""The same keys where rows were not compared."""


def diagnose(
    name: str,
    changed: np.ndarray,
    looked_up: np.ndarray | None,
    policy: TablePolicy,
    vocabulary: Vocabulary,
    training: Training,
) -> Diagnosis:
    """Finds the trainable rows of a table that never moved.

    Args:
        changed: bool [rows], whether a row's bits are others than before the first step.
        looked_up: bool [rows], rows that steps looked up to move them; None: none was.
    """
    learning = learning_steps(training, policy.grouping)
    groups = None if policy.grouping is None else policy.grouping.groups
    idle = learning == 0
    found = by_cause(
        changed,
        frozen=np.ones(policy.rows, np.bool_) if policy.fully_frozen else policy.frozen,
        looked_up=looked_up,
        idle=None if not idle.any() else np.full(policy.rows, idle[0]) if groups is None else idle[groups],
        special=special_rows(vocabulary, policy.rows),
    )
    reasons = []
    for cause, mask in found.rows.items():
        if cause is Cause.NO_GRADIENT and found.counts[cause] < _WORTH_TELLING * found.moved:
            continue
        paused = learning[np.unique(groups[mask]) if groups is not None else slice(None)] < training.steps
        explanation = _explanation(cause, mask, bool(paused.any()), policy.grouping, training)
        reasons.append(Reason(explanation, found.counts[cause], _some(mask, vocabulary)))
    return Diagnosis(found, name, policy.rows - policy.frozen_rows, tuple(reasons))


def never_moved_warnings(tables: Iterable[Diagnosis]) -> list[str]:
    """A line for each reason; tables with the same one share it."""
    found: dict[str, list[tuple[Diagnosis, Reason]]] = {}
    for table in tables:
        for reason in table.reasons:
            found.setdefault(reason.explanation, []).append((table, reason))
    return [_never_moved_line(explanation, alike) for explanation, alike in found.items()]


def _never_moved_line(explanation: str, alike: Sequence[tuple[Diagnosis, Reason]]) -> str:
    if len(alike) == 1:
        [(table, reason)] = alike
        count = f"{reason.count:,} of {table.trainable:,} trainable rows never moved"
        return Note(f"tables.{table.table}", f"{count}: they {explanation} ({reason.examples})")
    counts = [f"tables.{table.table} {reason.count:,} of {table.trainable:,}" for table, reason in alike]
    return f"trainable rows never moved ({summarize_names(counts, 'tables')}): they {explanation}"


def learning_steps(training: Training, grouping: Grouping | None) -> np.ndarray:
    """At how many of the steps that were done each group of rows had a learning rate above 0: int64 [groups].

    Args:
        grouping: the groups and their multipliers; None: one group, its multiplier 1.
    """
    multipliers = np.ones((1, 1), np.float32) if grouping is None else grouping.multipliers
    starts = (0,) if grouping is None else grouping.starts
    rate = np.float32(training.optimizer.learning_rate)
    constant = optimizers.is_constant(training.optimizer.schedule)
    found = np.zeros(multipliers.shape[1], np.int64)
    for start, stop, factors in zip(starts, [*starts[1:], training.steps], multipliers, strict=True):
        for low in range(start, min(stop, training.steps), _STEPS_AT_ONCE):
            steps = np.arange(low, min(low + _STEPS_AT_ONCE, stop, training.steps))
            rates = np.full(len(steps), rate)
            if not constant:
                factor = optimizers.schedule_factor(
                    training.optimizer.schedule, steps, total_steps=training.total_steps
                )
                rates *= factor.numpy()
            found += [int(np.count_nonzero(rates * each > 0)) for each in factors]
    return found


def special_rows(vocabulary: Vocabulary, rows: int) -> np.ndarray:
    """Numbers of rows without a token of their own: the OOV row, hash buckets, and free ones."""
    first = np.arange(vocabulary.first)
    if not isinstance(vocabulary, TokenVocabulary):
        return first
    return np.concatenate([first, np.arange(vocabulary.size, rows)])


def _explanation(cause: Cause, rows: np.ndarray, paused: bool, grouping: Grouping | None, training: Training) -> str:
    match cause:
        case Cause.LEARNING_RATE_ZERO:
            if grouping is not None:
                due = _thaw(grouping, rows, training.steps)
                if due is not None:
                    return f"had a multiplier of 0 in all {training.steps:,} steps, and may move from step {due:,} on"
            return f"had a learning rate of 0 in all {training.steps:,} steps, by the schedule of their optimizer"
        case Cause.NO_GRADIENT:
            words = (
                "were looked up, but no gradient reached them: the model may have no path from them to its loss,"
                " or the gradient was 0 or too small to change a float32"
            )
            return words + (", or they occurred only while their learning rate was 0" if paused else "")
        case Cause.NEVER_MET:
            words = "never occurred in training" + (" at a step at which they may move" if paused else "")
            if training.epochs < 1:
                words += f", which saw {math.floor(1000 * training.epochs) / 10:g}% of its data"
            return words
        case _:
            assert_never(cause)


def _thaw(grouping: Grouping, rows: np.ndarray, steps: int) -> int | None:
    """The first future step at which the multiplier of any of the rows lets it move."""
    groups = np.unique(grouping.groups[rows])
    later = [
        start
        for start, factors in zip(grouping.starts, grouping.multipliers, strict=True)
        if start >= steps and (factors[groups] > 0).any()
    ]
    return min(later, default=None)


def _some(rows: np.ndarray, vocabulary: Vocabulary) -> str:
    """The tokens of the most frequent rows, or the lowest row numbers."""
    tokens = isinstance(vocabulary, TokenVocabulary)
    frequencies = vocabulary.frequencies if isinstance(vocabulary, TokenVocabulary) else None
    numbers = most_frequent(rows, frequencies).tolist()
    shown = ", ".join(_name(number, vocabulary) if tokens else str(number) for number in numbers)
    more = ", …" if np.count_nonzero(rows) > len(numbers) else ""
    return f"{'' if tokens else 'row ' if len(numbers) == 1 else 'rows '}{shown}{more}"


def _name(row: int, vocabulary: Vocabulary) -> str:
    if row >= vocabulary.size:
        return f"row {row}"
    token = vocabulary.tokens(row, row + 1)[0]
    return token if row < vocabulary.first else repr(token)
