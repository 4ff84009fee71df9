"""Watches the rows of a run: hashed before the first step, their drift measured at evaluations, compared at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.freezing import diagnosis, drift
from embexp.freezing.diagnosis import NOTHING, UNKNOWN, Diagnosis, Training, diagnose
from embexp.freezing.drift import Drift, Movement, Origin
from embexp.freezing.never_moved import Cause, RowHashes
from embexp.freezing.policies import TablePolicy
from embexp.specs.run import RunSpec
from embexp.specs.tables import Storage
from embexp.system.arrays import Rows
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
        vocabulary: what its rows stand for.
        policy: which of them may move.
        pretrained: bool [rows], whether a row came from a file; None: none did.
    """

    table: ReadableTable
    vocabulary: Vocabulary
    policy: TablePolicy
    source: Rows
    pretrained: np.ndarray | None

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows, a few at a time."""
        for start in range(0, self.table.rows, _ROWS_AT_ONCE):
            yield self.table.take(np.arange(start, min(start + _ROWS_AT_ONCE, self.table.rows)))

    @property
    def stays_in_its_file(self) -> bool:
        """Whether all rows are those of a mapped file, which nobody writes to."""
        return self.policy.fully_frozen and self.policy.storage is Storage.MEMORY_MAP


def watch(spec: RunSpec, tables: Mapping[str, Watched], *, total_steps: int, examples: int) -> Watch:
    """Remembers the rows as they are before the first step.

    With `output.digests`, that is a hash of every row, except of tables that stay in their files; and for tables
    with pretrained rows that may move, a sample of these. Both are in temporary files.
    """
    hashed = [name for name, each in tables.items() if spec.output.digests and not each.stays_in_its_file]
    origins = {
        name: drift.origin_of(name, spec.seed, each.source, each.pretrained, each.policy)
        for name, each in tables.items()
        if each.pretrained is not None
    }
    return Watch(
        spec,
        tables,
        total_steps,
        examples,
        {name: RowHashes(tables[name].blocks()) for name in hashed},
        {name: origin for name, origin in origins.items() if origin is not None},
    )


@dataclass
class Watch(Listener):
    """The rows of a run under watch: as a listener of the training, it measures drift at evaluations.

    Attributes:
        hashes: of the rows before the first step; empty: they are not compared.
        origins: of tables with pretrained rows that may move.
        frozen_changed: frozen rows that have changed, by table that was compared.
        never_moved: trainable rows that never moved, by table that was compared.
        movements: at the end, by table with trained rows.
        reported: step and drift of the last report, as in metrics.jsonl.
    """

    spec: RunSpec
    tables: Mapping[str, Watched]
    total_steps: int
    examples: int
    hashes: Mapping[str, RowHashes]
    origins: Mapping[str, Origin]
    frozen_changed: dict[str, int] = field(default_factory=dict)
    never_moved: dict[str, Diagnosis] = field(default_factory=dict)
    drifts: dict[str, Drift] = field(default_factory=dict)
    movements: dict[str, Movement] = field(default_factory=dict)
    _listeners: tuple[DriftListener, ...] = ()
    reported: tuple[int, Mapping[str, Any]] | None = None

    def report_to(self, *listeners: DriftListener) -> None:
        """Sets who receives the drift."""
        self._listeners = listeners

    def trained(self, steps: int) -> None:
        """Compares every row after the last step, before earlier values are restored."""
        epochs = steps * self.spec.train.batch_size / self.examples
        for name in self.hashes:
            changed, each = self._changed(name), self.tables[name]
            if steps and not each.policy.fully_frozen:
                training = Training(self.spec.optimizer_of(name), steps, self.total_steps, epochs)
                looked_up = each.table.looked_up()
                self.never_moved[name] = diagnose(name, changed, looked_up, each.policy, each.vocabulary, training)

    def kept(self, steps: int, kept_step: int) -> None:
        """Compares the values that are kept, and measures their drift.

        Args:
            kept_step: the one after which these values were; if it is an earlier one, `trained` was called.
        """
        if kept_step == steps:
            self.trained(steps)
        else:
            for name in self.hashes:
                self._changed(name)
        self.movements = {name: found for name in self.tables if (found := self._movement(name)) is not None}
        whole = self.spec.output.digests
        self.drifts = {
            name: origin.full_drift(self.tables[name].table) if whole else origin.sample_drift(self.tables[name].table)
            for name, origin in self.origins.items()
        }
        if self.reported != (
            kept_step,
            drift.as_json(self.drifts),
        ):  # the last evaluation may have seen these very rows
            self._report(kept_step, self.drifts)

    def freeze_json(self, name: str) -> dict[str, Any]:
        """Whether a table's rows moved, for summary.json."""
        policy = self.tables[name].policy
        found = NOTHING if policy.frozen_rows == policy.rows else UNKNOWN
        if name in self.never_moved:
            found = self.never_moved[name].as_json()
        return {"frozen_rows_changed": self.frozen_changed.get(name, 0), **found}

    @property
    def warnings(self) -> list[str]:
        """About rows that never moved."""
        return diagnosis.warnings(self.never_moved.values())

    def hardly_moved(self, *, learned: bool) -> list[str]:
        """Warnings about trained rows that hardly moved; `learned`: whether the run is better than a constant."""
        return drift.movement_warnings(
            # Rows that no step moved at all have a warning with their own cause.
            {name: each for name, each in self.movements.items() if not self._stood_still(name)},
            lambda name: (
                "optimizer" if self.spec.tables[name].optimizer is None else f"tables.{name}.optimizer",
                self.spec.optimizer_of(name),
            ),
            learned=learned,
        )

    def close(self) -> None:
        """Deletes the temporary files."""
        for hashes in self.hashes.values():
            hashes.close()
        for origin in self.origins.values():
            origin.close()

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Measures how far the samples have moved."""
        self._report(
            step, {name: origin.sample_drift(self.tables[name].table) for name, origin in self.origins.items()}
        )

    def _report(self, step: int, drifts: Mapping[str, Drift]) -> None:
        self.reported = step, drift.as_json(drifts)
        if drifts:
            for listener in self._listeners:
                listener(*self.reported)

    def _movement(self, name: str) -> Movement | None:
        """How far the table's trained rows are from their initial values; None where these are not known."""
        each = self.tables[name]
        if each.policy.fully_frozen or self.spec.restore.path is not None:
            return None
        trained = each.table.looked_up()
        if trained is None:
            return None
        if each.policy.frozen is not None:
            trained = trained & ~each.policy.frozen
        return drift.measure_movement(each.table, each.source, trained, self.spec.optimizer_of(name))

    def _stood_still(self, name: str) -> bool:
        """Whether steps looked up rows of a table and left them as they were."""
        counts = self.never_moved[name].found.counts if name in self.never_moved else {}
        return any(counts.get(cause) for cause in (Cause.LEARNING_RATE_ZERO, Cause.NO_GRADIENT))

    def _changed(self, name: str) -> np.ndarray:
        """Whether each row has changed; counts the frozen ones among them."""
        changed, policy = self.hashes[name].changed(self.tables[name].blocks()), self.tables[name].policy
        if policy.frozen_rows:
            of_frozen = changed if policy.frozen is None else changed & policy.frozen
            found = int(np.count_nonzero(of_frozen))
            self.frozen_changed[name] = max(found, self.frozen_changed.get(name, 0))
        return changed
