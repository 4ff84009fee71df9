"""Rows that are hash buckets of all tokens, so that no vocabulary is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data import fingerprint
from embexp.data.vocabulary import MISSING_TOKEN, Vocabulary
from embexp.system.files import write_text

KIND = "hash"
FUNCTION = "farmhash.Fingerprint64"


@dataclass(frozen=True)
class HashVocabulary(Vocabulary):
    """A token's row is its fingerprint modulo the number of buckets, as of `tf.strings.to_hash_bucket_fast`.

    Attributes:
        buckets: how many.
        missing: whether missing values have a row of their own, row 0, in front of the buckets; else they have the
            bucket of the empty text.
        oov: 0: every value has a bucket.
    """

    buckets: int
    missing: bool = False
    oov: int = 0

    @property
    def size(self) -> int:  # type: ignore[override]
        """Number of rows."""
        return self.buckets + self.missing

    @property
    def first(self) -> int:  # type: ignore[override]
        """All rows: none stands for one token."""
        return self.size

    @property
    def digest(self) -> str:
        """Digest of what the rows stand for."""
        return hashlib.sha256(f"{KIND} {FUNCTION} {self.buckets} {self.missing}".encode()).hexdigest()

    def rows(self, tokens: Sequence[str | None] | pa.Array) -> np.ndarray:
        """int64 row of each token, see `Vocabulary.rows`."""
        array = tokens if isinstance(tokens, pa.Array) else pa.array(tokens, pa.large_string())
        array = pc.fill_null(pc.cast(array, pa.large_string()), "")
        rows = fingerprint.buckets(array, self.buckets) + self.missing
        if self.missing:
            rows[pc.equal(array, "").to_numpy(zero_copy_only=False)] = 0
        return rows

    def tokens(self, start: int = 0, stop: int | None = None) -> list[str]:
        """The buckets of rows start..stop, as they are shown."""
        shown = range(start, self.size if stop is None else min(stop, self.size))
        return [MISSING_TOKEN if self.missing and not row else f"<hash {row - self.missing}>" for row in shown]

    def write(self, stem: Path) -> Path:
        """Writes the vocabulary whole and returns the path of its file."""
        path = stem.parent / f"{stem.name}.json"
        content = {"kind": KIND, "function": FUNCTION, "buckets": self.buckets, "missing": self.missing}
        write_text(path, json.dumps(content) + "\n")
        return path
