"""Values of tables whose variables live in a session or in a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from embexp import digests
from embexp.vectors import checkpoint


class TableValues(Protocol):
    """What can be read of a table once it is made."""

    @property
    def name(self) -> str:
        """Name of the table."""
        ...

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def dim(self) -> int:
        """Width of a row."""
        ...

    @property
    def frozen(self) -> bool:
        """Whether no row moves."""
        ...

    @property
    def storage(self) -> str:
        """How rows are kept: a `Storage` in words."""
        ...

    def blocks(self) -> Iterator[np.ndarray]:
        """All rows, as consecutive blocks of float32, one at a time in memory."""
        ...

    def digest(self) -> str:
        """Digest of all rows, in blocks; see `digests.of_rows`."""
        ...

    def touched_rows(self) -> int:
        """Number of rows that training steps have looked up."""
        ...


@dataclass(frozen=True)
class TableElsewhere:
    """A table whose rows are read by a function, wherever they are; a `TableValues`.

    Attributes:
        name: of the table.
        rows: number of rows.
        dim: width of a row.
        frozen: whether no row moves.
        storage: how rows are kept.
        read: gives rows [start, stop), float32.
        touched_rows: counts the rows that training has looked up.
    """

    name: str
    rows: int
    dim: int
    frozen: bool
    storage: str
    read: Callable[[int, int], np.ndarray]
    touched_rows: Callable[[], int]

    def blocks(self) -> Iterator[np.ndarray]:
        """See `TableValues.blocks`."""
        for start in range(0, self.rows, digests.ROWS_PER_BLOCK):
            yield self.read(start, min(start + digests.ROWS_PER_BLOCK, self.rows))

    def digest(self) -> str:
        """See `TableValues.digest`."""
        return digests.of_rows(self.blocks())


def in_session(table: Any, call: Callable[[Callable[[Any], Any]], Any]) -> TableElsewhere:
    """Reads a table of the current graph.

    Args:
        table: as it was made in this graph.
        call: calls a function with the session; used when values are read, not before.
    """
    ids = tf.compat.v1.placeholder(tf.int64, [None])
    rows = table.gather(ids)
    touched = tf.constant(0) if table.frozen else tf.math.count_nonzero(table.touched)

    def read(start: int, stop: int) -> np.ndarray:
        found: np.ndarray = call(lambda session: session.run(rows, {ids: np.arange(start, stop)}))
        return found

    return TableElsewhere(
        name=table.name,
        rows=table.rows,
        dim=table.dim,
        frozen=table.frozen,
        storage=table.storage,
        read=read,
        touched_rows=lambda: int(call(lambda session: session.run(touched))),
    )


def rows_in_checkpoint(table: str, prefix: Callable[[], str]) -> Callable[[int, int], np.ndarray]:
    """Reads rows [start, stop) of a table from the checkpoint whose prefix `prefix` gives at the time of reading."""

    def read(start: int, stop: int) -> np.ndarray:
        stored = checkpoint.read(Path(f"{prefix()}.index"), f"embedding/{table}")
        return np.asarray(stored.read(start, stop))

    return read
