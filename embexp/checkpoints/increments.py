"""Incremental checkpoints of a run: the rows of tables that training changed since the checkpoint before.

Everything else is whole in each of them. `streaming` restores them like whole ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.checkpoints import streaming
from embexp.checkpoints.locating import NAME
from embexp.tables.reading import Bypass, ReadableTable, bypass
from embexp.tensor_bundle import increments
from embexp.tensor_bundle.increments import SomeRows
from embexp.tensor_bundle.writer import BundleWriter

_NUMBERS, _ROWS = "increment_numbers/", "increment/"
"""How the keys of changed rows' numbers, by table, and of the rows, by the matrix' key, begin."""


class Changes:
    """The rows of a run's tables that changed since its last checkpoint that is on disk."""

    def __init__(self, tables: Mapping[str, ReadableTable], every_row: Collection[str] = ()) -> None:
        """Counts from now on.

        Args:
            tables: of the run, by name.
            every_row: tables whose optimizer moves every row in each step: `adam` with `lazy_adam: false`.
        """
        self._tables = {name: table for name, table in tables.items() if name not in every_row}
        self._masks: dict[str, np.ndarray] = {}
        self.collect()
        self.saved()

    def collect(self) -> dict[str, np.ndarray]:
        """The rows that changed, bool [rows], by table; without tables of which every row may have changed.

        They are collected again next time, unless `saved` is called in between. Call it only when it is known whether
        the save before went well.
        """
        for name, table in self._tables.items():
            touched = np.zeros(table.rows, np.bool_) if table.frozen else table.take_touched()
            if touched is not None:
                self._masks[name] = touched | self._masks.get(name, np.False_)
        return dict(self._masks)

    def saved(self) -> None:
        """The checkpoint with the rows last collected is on disk."""
        self._masks.clear()


class IncrementalSaves:
    """The saves of a training: a whole checkpoint every so many, and between them what changed since the one before."""

    def __init__(
        self,
        tables: Mapping[str, ReadableTable],
        *,
        whole_every: int,
        every_row: Collection[str] = (),
        restored: Path | None = None,
    ) -> None:
        """Counts changes from now on.

        Args:
            tables: of the run, by name.
            whole_every: 1: every checkpoint is whole.
            every_row: see `Changes`.
            restored: directory of the checkpoint that the tables were just restored from; None: the first is whole.

        Raises:
            CheckpointError: the chain of `restored` is broken.
        """
        self._changes, self._whole_every = Changes(tables, every_row), whole_every
        self._base = restored
        self._since_whole = 0 if restored is None else len(increments.chain(restored / NAME)) - 1

    def write(self, checkpoint: Any, prefix: str) -> None:
        """Writes the next checkpoint, once it is known whether the save before went well; see `write`.

        It is whole if the one before is gone.
        """
        changed, base = self._changes.collect(), None if self._base is None else self._base / NAME
        gone = base is None or not base.with_name(f"{NAME}.index").is_file()
        if gone or self._since_whole + 1 >= self._whole_every:
            streaming.write(checkpoint, prefix)
        else:
            write(checkpoint, prefix, base=str(base), changed=changed)

    def saved(self, directory: Path) -> None:
        """The checkpoint last written is on disk, in this directory beside that of the one before."""
        self._changes.saved()
        self._base = directory
        self._since_whole = self._since_whole + 1 if increments.is_incremental(directory / NAME) else 0


def write(checkpoint: Any, prefix: str, *, base: str, changed: Mapping[str, np.ndarray]) -> None:
    """Writes a `tf.train.Checkpoint` with only those rows of its tables that changed; whole only at the end.

    A table is whole if all its rows changed; if all are, the checkpoint is a whole one.

    Args:
        checkpoint: what to write.
        prefix: of the new checkpoint.
        base: prefix of the checkpoint since which the rows changed; the path to it from the new one is recorded.
        changed: by table, bool [rows]; tables that are left out are written whole.
    """
    tables = streaming.streamed_in(checkpoint)
    with bypass(tables, Bypass.SAVING):
        checkpoint.write(prefix)
    by_key = streaming.keys(tf.train.CheckpointView(prefix), checkpoint)
    some = {name: np.flatnonzero(mask) for name, mask in changed.items() if not mask.all()}
    with contextlib.closing(BundleWriter(Path(prefix), adding=True)) as writer:
        for name in sorted({table.table for table in by_key.values()} & some.keys()):
            writer.add_numbers(f"{_NUMBERS}{name}", some[name])
        matrices = {}
        for key, table in by_key.items():
            rows, dim = table.shape.as_list()
            if table.table not in some:
                writer.add(key, (rows, dim), table.blocks())
                continue
            numbers = some[table.table]
            writer.add(f"{_ROWS}{key}", (len(numbers), dim), table.some_blocks(numbers))
            matrices[key] = SomeRows((rows, dim), f"{_NUMBERS}{table.table}", f"{_ROWS}{key}")
        writer.finish()
    if matrices:
        increments.describe(Path(prefix), Path(base), matrices)
