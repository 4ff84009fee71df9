"""What becomes of a run's rows: looked at before the first step, at evaluations and at the end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from embexp.data.vocabulary import Vocabulary
from embexp.freezing import drift, trouble
from embexp.freezing.drift import Drift, Origin
from embexp.freezing.hashes import RowHashes
from embexp.freezing.policies import TablePolicy
from embexp.freezing.trouble import NOTHING, UNKNOWN, StillRows, Training, still_rows
from embexp.initialization.rows import RowSource
from embexp.pretrained.aligned import Pretrained
from embexp.runtimes.table_values import TableValues
from embexp.specs.run import RunSpec
from embexp.specs.tables import Storage
from embexp.training.listeners import Listener

_ROWS_AT_ONCE = 8_192
"""So few that looking before the first step adds nothing to speak of to the memory that a run takes."""

Tell = Callable[[int, Mapping[str, Mapping[str, Any]]], object]
"""Told of the drift of each table after a step, see `Drift.as_json`."""


def watch(
    spec: RunSpec,
    vocabularies: Mapping[str, Vocabulary],
    tables: Mapping[str, TableValues],
    sources: Mapping[str, RowSource],
    given: Pretrained,
    policies: Mapping[str, TablePolicy],
    *,
    total_steps: int,
    examples: int,
) -> Watch:
    """Remembers the rows as they are before the first step.

    With `output.digests`, that is a hash of every row, but of tables that stay in their files whole; and for tables
    with pretrained rows that may move, a sample of these. Both lie in temporary files.

    Args:
        spec: what the user asked for.
        vocabularies: what rows stand for, by table.
        tables: filled, by name.
        sources: first values of each table.
        given: what files had for which table.
        policies: which rows of each table may move.
        total_steps: how many there are to be.
        examples: of the training part.
    """
    mapped = {name for name, policy in policies.items() if policy.still and policy.storage is Storage.MEMORY_MAP}
    looked_at = [name for name in tables if name not in mapped] if spec.output.digests else []
    return Watch(
        spec,
        vocabularies,
        tables,
        policies,
        total_steps,
        examples,
        {name: RowHashes(_pieces(tables[name])) for name in looked_at},
        drift.origins(spec.seed, sources, given, policies),
    )


@dataclass
class Watch(Listener):
    """The rows of a run under watch. It listens to the training (`Listener`): drift is measured at evaluations.

    Attributes:
        spec: what the user asked for.
        vocabularies: what rows stand for, by table.
        tables: by name.
        policies: which rows of each may move.
        total_steps: how many there are to be.
        examples: of the training part.
        hashes: of the rows before the first step; empty: nobody is to look.
        origins: of tables with pretrained rows that may move.
        frozen_changed: frozen rows that are not what they were, by table that was looked at.
        still: rows that might have moved and never did, by table that was looked at.
        drifts: at the end, by table.
    """

    spec: RunSpec
    vocabularies: Mapping[str, Vocabulary]
    tables: Mapping[str, TableValues]
    policies: Mapping[str, TablePolicy]
    total_steps: int
    examples: int
    hashes: Mapping[str, RowHashes]
    origins: Mapping[str, Origin]
    frozen_changed: dict[str, int] = field(default_factory=dict)
    still: dict[str, StillRows] = field(default_factory=dict)
    drifts: dict[str, Drift] = field(default_factory=dict)
    _told: tuple[Tell, ...] = ()
    _said: tuple[int, Mapping[str, Drift]] | None = None

    def tell(self, *told: Tell) -> None:
        """Says who is to be told of drift."""
        self._told = told

    def trained(self, steps: int) -> None:
        """Looks at every row after the last step, before earlier values are gone back to.

        Args:
            steps: how many were done.
        """
        epochs = steps * self.spec.train.batch_size / self.examples
        for name in self.hashes:
            changed, policy = self._changed(name), self.policies[name]
            if steps and not policy.still:
                training = Training(self.spec.optimizer_of(name), steps, self.total_steps, epochs)
                looked_up = self.tables[name].looked_up()
                self.still[name] = still_rows(name, changed, looked_up, policy, self.vocabularies[name], training)

    def kept(self, steps: int, kept_step: int) -> None:
        """Looks at the values that are kept.

        Args:
            steps: how many were done.
            kept_step: the one after which these values were; if it is an earlier one, `trained` was called.
        """
        if kept_step == steps:
            self.trained(steps)
        else:
            for name in self.hashes:
                self._changed(name)
        whole = self.spec.output.digests
        self.drifts = {
            name: origin.of_all(self.tables[name]) if whole else origin.of_sample(self.tables[name])
            for name, origin in self.origins.items()
        }
        if self._said != (kept_step, self.drifts):  # the last evaluation may have seen these very rows
            self._say(kept_step, self.drifts)

    def freeze_json(self, name: str) -> dict[str, Any]:
        """What became of a table's rows, for summary.json."""
        policy = self.policies[name]
        found = NOTHING if policy.frozen_rows == policy.rows else UNKNOWN
        if name in self.still:
            found = self.still[name].as_json()
        return {"frozen_rows_changed": self.frozen_changed.get(name, 0), **found}

    @property
    def warnings(self) -> list[str]:
        """What the user is told of rows that never moved."""
        return trouble.warnings(self.still.values())

    def close(self) -> None:
        """Forgets what the rows were."""
        for hashes in self.hashes.values():
            hashes.close()
        for origin in self.origins.values():
            origin.close()

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Nothing to do."""

    def progressed(self, step: int) -> None:
        """Nothing to do."""

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Nothing to do."""

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Measures how far the samples have moved."""
        self._say(step, {name: origin.of_sample(self.tables[name]) for name, origin in self.origins.items()})

    def ended(self, status: str) -> None:
        """Nothing to do."""

    def _say(self, step: int, drifts: Mapping[str, Drift]) -> None:
        self._said = step, drifts
        if drifts:
            for tell in self._told:
                tell(step, drift.as_json(drifts))

    def _changed(self, name: str) -> np.ndarray:
        """Whether each row is not what it was; counts the frozen ones among them."""
        changed, policy = self.hashes[name].changed(_pieces(self.tables[name])), self.policies[name]
        if policy.frozen_rows:
            of_frozen = changed if policy.frozen is None else changed & policy.frozen
            found = int(np.count_nonzero(of_frozen))
            self.frozen_changed[name] = max(found, self.frozen_changed.get(name, 0))
        return changed


def _pieces(table: TableValues) -> Iterator[np.ndarray]:
    """All rows of a table, a few at a time."""
    for start in range(0, table.rows, _ROWS_AT_ONCE):
        yield table.take(np.arange(start, min(start + _ROWS_AT_ONCE, table.rows)))
