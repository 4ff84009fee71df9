"""Rows that are buckets of numbers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.data.vocabulary import MISSING_TOKEN, Vocabulary
from embexp.system.files import write_text

KIND = "buckets"


@dataclass(frozen=True)
class BucketVocabulary(Vocabulary):
    """Row 0 is that of missing values; row n + 1 that of numbers from boundary n - 1 on, and below boundary n.

    Attributes:
        boundaries: float32 numbers, rising.
        oov: 0: every number has a bucket.
        first: 1, the row of the first bucket.
    """

    boundaries: tuple[float, ...]
    oov: int = 0
    first: int = 1

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return len(self.boundaries) + 2

    @property
    def digest(self) -> str:
        """Digest of what the rows stand for."""
        return hashlib.sha256(f"{KIND} {json.dumps(self.boundaries)}".encode()).hexdigest()

    def rows_of(self, numbers: np.ndarray) -> np.ndarray:
        """int64: the row of each number, compared in float32; NaN is missing."""
        with np.errstate(over="ignore"):  # what is too large for float32 is in the last bucket, or in the first
            single = numbers.astype(np.float32)
        rows = np.searchsorted(np.array(self.boundaries, np.float32), single, "right").astype(np.int64) + 1
        rows[np.isnan(single)] = 0
        return rows

    def rows(self, tokens: Sequence[str | None] | pa.Array) -> np.ndarray:
        """int64: the row of each text, which is a number or a bucket as it is shown; of others -1."""
        texts = tokens.to_pylist() if isinstance(tokens, pa.Array) else tokens
        shown = {text: row for row, text in enumerate(self.tokens())}
        return np.array([self._row(text, shown) for text in texts], np.int64)

    def _row(self, text: str | None, shown: dict[str, int]) -> int:
        if not text:
            return 0
        if text in shown:
            return shown[text]
        try:
            return int(self.rows_of(np.array([float(text)]))[0])
        except ValueError:
            return -1

    def tokens(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The buckets of rows start..stop, such as `[18, 25)`."""
        marks = [
            f"{np.float32(each):g}" if float(f"{each:g}") == each else str(np.float32(each)) for each in self.boundaries
        ]
        ends = ["-inf", *marks, "inf"]
        buckets = [f"{'[' if place else '('}{a}, {b})" for place, (a, b) in enumerate(pairwise(ends))]
        return [MISSING_TOKEN, *buckets][start:stop]

    def write(self, stem: Path) -> Path:
        """Writes the vocabulary whole and returns the path of its file."""
        path = stem.parent / f"{stem.name}.json"
        write_text(path, json.dumps({"kind": KIND, "boundaries": list(self.boundaries)}) + "\n")
        return path
