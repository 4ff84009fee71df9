"""Watches the rows of a run: hashed before the first step, their drift measured at evaluations, compared at the end."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import RunError
from embexp.freezing import diagnosis, drift
from embexp.freezing.diagnosis import NOTHING, UNKNOWN, Cause, Diagnosis, Training, diagnose
from embexp.freezing.drift import Drift, Movement, Origin
from embexp.freezing.policies import TablePolicy
from embexp.specs.optimizers import TableOptimizer
from embexp.specs.tables import Storage
from embexp.system.arrays import Rows
from embexp.system.parallel import Progress, part, quiet, reported
from embexp.tables.variables import ReadableTable
from embexp.training.listeners import Listener

_ROWS_AT_ONCE = 8_192
"""So few that hashing before the first step adds next to nothing to the memory that a run takes."""

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
            name: drift.origin_of(name, seed, table.source, table.pretrained, table.policy)
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
        if self.reported != (kept_step, drift.as_json(self.drifts)):  # the last evaluation may have seen these rows
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
        return diagnosis.warnings(self.never_moved.values())

    def hardly_moved(self, *, learned: bool, loss_left: float | None) -> list[str]:
        """Warnings about trained rows that hardly moved; see `drift.movement_warnings`."""
        return drift.movement_warnings(
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
        self.reported = step, drift.as_json(drifts)
        if drifts:
            for listener in self._listeners:
                listener(*self.reported)

    def _movement(self, name: str) -> Movement | None:
        """How far the table's trained rows are from their initial values; None where these are not known."""
        each = self._tables[name]
        if each.policy.fully_frozen or self._restored:
            return None
        trained = each.table.looked_up()
        if trained is None:
            return None
        if each.policy.frozen is not None:
            trained = trained & ~each.policy.frozen
        return drift.measure_movement(each.table, each.source, trained, each.optimizer)

    def _stood_still(self, name: str) -> bool:
        """Whether steps looked up rows of a table and left them as they were."""
        counts = self.never_moved[name].found.counts if name in self.never_moved else {}
        return any(counts.get(cause) for cause in (Cause.LEARNING_RATE_ZERO, Cause.NO_GRADIENT))

    def _all_changed(self, progress: Progress) -> Iterator[tuple[str, np.ndarray]]:
        """Tables, and whether each of their rows has changed."""
        done, total = 0, sum(self._tables[name].table.rows for name in self._hashes)
        for name in self._hashes:
            after = done + self._tables[name].table.rows
            yield name, self._changed(name, part(progress, done / total, after / total))
            done = after

    def _changed(self, name: str, progress: Progress) -> np.ndarray:
        """Whether each row has changed; counts the frozen ones among them."""
        each, policy = self._tables[name], self._tables[name].policy
        blocks = reported(each.blocks(), each.pieces, "comparing rows", progress)
        changed = self._hashes[name].changed(blocks)
        if policy.frozen_rows:
            of_frozen = changed if policy.frozen is None else changed & policy.frozen
            found = int(np.count_nonzero(of_frozen))
            self.frozen_changed[name] = max(found, self.frozen_changed.get(name, 0))
        return changed
