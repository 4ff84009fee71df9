"""The parts of a table that are to be filled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import tensorflow as tf

from embexp.tables.variables import write_rows


class WritableRows(Protocol):
    """Rows that can be assigned by ranges: what an initialization needs of a table, or of a part of one."""

    @property
    def name(self) -> str:
        """Name of the table or of its part."""
        ...

    @property
    def rows(self) -> int:
        """Number of rows."""
        ...

    @property
    def dim(self) -> int:
        """Width of a row."""
        ...

    def write(self, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start`."""
        ...


@dataclass(frozen=True, eq=False)
class TablePart:
    """A variable that holds some rows of a table, or of one of its slots; to be filled it is `WritableRows`.

    Attributes:
        name: of the variable.
        variable: float32 [rows, dim].
        read_whole: whether the variable is also read whole, which must not become a copy of it.
    """

    name: str
    variable: Any
    read_whole: bool = False

    @property
    def rows(self) -> int:
        """Number of rows."""
        return int(self.variable.shape[0])

    @property
    def dim(self) -> int:
        """Width of a row."""
        return int(self.variable.shape[1])

    def write(self, start: int, values: np.ndarray) -> None:
        """Assigns float32 [n, dim] to the rows from `start`; see `EmbeddingTable.write`."""
        write_rows(self.variable, self.name, start, values)
        if self.read_whole:  # once rows were assigned, TensorFlow would copy the variable at each reading
            tf.raw_ops.DisableCopyOnRead(resource=self.variable.handle)
