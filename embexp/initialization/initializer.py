"""What every way of filling a table offers."""

from __future__ import annotations

from typing import Protocol

from embexp.initialization.rows import RowSource, WritableTable
from embexp.specs.running import RuntimeKind


class Initializer(Protocol):
    """One way of getting a source's rows into a table."""

    @property
    def runtimes(self) -> frozenset[RuntimeKind]:
        """The runtimes it works in."""
        ...

    def plan(self, rows: int, dim: int) -> tuple[range, ...]:
        """The ranges of rows that are in flight one after the other; touches nothing."""
        ...

    def apply(self, table: WritableTable, source: RowSource) -> None:
        """Fills the table.

        Raises:
            ValueError: the source's shape is not the table's.
        """
        ...
