"""Codes of tokens: numbers in the order in which tokens are first seen, whatever the blocks in which they come."""

from __future__ import annotations

import itertools
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.data.key_table import KeyTable
from embexp.data.packed_tokens import LONG, Packed, unpacked


class Codes:
    """Numbers tokens in the order in which they come; 0 is a missing one."""

    def __init__(self) -> None:
        self._table = KeyTable()
        self._long: defaultdict[str, int] = defaultdict(itertools.count().__next__)

    def encode(self, tokens: Packed) -> np.ndarray:
        """int32 code of each token; a missing or empty one is 0."""
        if tokens.long is not None:
            distinct = tokens.long.dictionary.to_pylist()
            numbers = np.fromiter(map(self._long.__getitem__, distinct), np.uint64, len(distinct)) + LONG
            tokens.keys[tokens.places] = numbers.take(tokens.long.indices.to_numpy())
        return self._table.numbers(tokens.keys)

    def write(self, path: Path) -> None:
        """Writes the tokens in the order of their codes, as an Arrow file."""
        long = pa.array(self._long, pa.large_string(), size=len(self._long))
        table = pa.table({"token": unpacked(self._table.keys, long)})
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
