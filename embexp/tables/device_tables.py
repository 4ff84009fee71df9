"""Tables in a TPU's memory, by the variables of its hosts: each host has a shard of consecutive rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from embexp.errors import RunError
from embexp.system import arrays
from embexp.system.rows import Rows
from embexp.tables.variables import TableVariable


@dataclass(frozen=True, eq=False)
class DeviceTable:
    """A table in a TPU's memory: all rows of an embedding table, or its frozen rows, or the others.

    Attributes:
        name: of the device table.
        rows: number of rows.
        frozen: none of them ever moves.
        numbers: which rows of the embedding table they are, rising; None: all.
    """

    name: str
    rows: int
    frozen: bool
    numbers: np.ndarray | None = None


@dataclass(frozen=True)
class NormalRows:
    """Frozen rows; refuses to read subnormal numbers, which a TPU would change."""

    table: str
    source: Rows

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.source.rows

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return self.source.dim

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows [start, stop), float32.

        Raises:
            RunError: a number is subnormal.
        """
        values = self.source.read(start, stop)
        if ((np.abs(values) < np.finfo(np.float32).tiny) & (values != 0)).any():
            raise RunError(
                f"table {self.table!r}: frozen rows hold numbers below"
                f" {np.finfo(np.float32).tiny:.2g} that are not 0; a TPU makes 0 of them as soon as it touches a row."
                " Set them to 0 in the pretrained file, or set strategy=cpu"
            )
        return values


def read_shards(shards: Sequence[Any], numbers: np.ndarray, dim: int) -> np.ndarray:
    """Rows with these numbers, float32 [n, dim].

    Args:
        shards: the variables of the hosts, in order.
        numbers: int64 [n], rising.
        dim: width of a row.
    """
    values = arrays.empty((len(numbers), dim), np.float32)
    first = 0
    for shard in shards:
        last = first + int(shard.shape[0])
        low, high = np.searchsorted(numbers, (first, last))
        if high > low:
            values[low:high] = tf.gather(shard.read_value(), numbers[low:high] - first).numpy()
        first = last
    return values


def write_shards(name: str, shards: Sequence[Any], start: int, values: np.ndarray) -> None:
    """Assigns float32 [n, dim] to the rows from `start`; `name` is that of the table, for errors."""
    stop, first = start + len(values), 0
    for shard in shards:
        last = first + int(shard.shape[0])
        begin, end = max(start, first), min(stop, last)
        if begin < end:
            # The TPU reads its variables whole, as `read_shards` does.
            TableVariable(name, shard, read_whole=True).write(begin - first, values[begin - start : end - start])
        first = last
