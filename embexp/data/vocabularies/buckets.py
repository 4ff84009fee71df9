"""Rows that are buckets: of numbers, or of the hashes of tokens, so that no vocabulary is kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from embexp.data.vocabularies import token_keys
from embexp.data.vocabularies.vocabulary import MISSING_TOKEN, TokenVocabulary, Vocabulary
from embexp.system.files import write_text

BUCKET_KIND = "buckets"
HASH_KIND = "hash"
HASH_FUNCTION = "farmhash.Fingerprint64"


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
        return hashlib.sha256(f"{BUCKET_KIND} {json.dumps(self.boundaries)}".encode()).hexdigest()

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
        write_text(path, json.dumps({"kind": BUCKET_KIND, "boundaries": list(self.boundaries)}) + "\n")
        return path


@dataclass(frozen=True)
class HashVocabulary(Vocabulary):
    """A token's row is its fingerprint modulo the number of buckets, as of `tf.strings.to_hash_bucket_fast`.

    Attributes:
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
        return hashlib.sha256(f"{HASH_KIND} {HASH_FUNCTION} {self.buckets} {self.missing}".encode()).hexdigest()

    def rows(self, tokens: Sequence[str | None] | pa.Array) -> np.ndarray:
        """int64 row of each token, see `Vocabulary.rows`."""
        array = tokens if isinstance(tokens, pa.Array) else pa.array(tokens, pa.large_string())
        array = pc.fill_null(pc.cast(array, pa.large_string()), "")
        rows = token_keys.buckets(array, self.buckets) + self.missing
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
        content = {"kind": HASH_KIND, "function": HASH_FUNCTION, "buckets": self.buckets, "missing": self.missing}
        write_text(path, json.dumps(content) + "\n")
        return path


def same_rows(a: Vocabulary, b: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Row numbers of `a`, and those of the same rows of `b`, int64 each.

    Of tokens these are the rows in front: those of missing and of rare values, and the OOV rows if there are as many,
    as otherwise other values share them. Hash buckets are the same if there are as many, buckets of numbers if they
    have the same boundaries.
    """
    none = np.empty(0, np.int64)
    match a, b:
        case TokenVocabulary(), TokenVocabulary():
            pairs = [(row, row) for row in range(a.oov)] if a.oov == b.oov else []
            kinds = [[kind for _, kind, _ in each.special] for each in (a, b)]
            pairs += [
                (kinds[0].index(kind), kinds[1].index(kind)) for kind in kinds[0] if kind != "oov" and kind in kinds[1]
            ]
            rows = np.array(pairs, np.int64).reshape(-1, 2)
            return rows[:, 0], rows[:, 1]
        case HashVocabulary(), HashVocabulary() if a.buckets == b.buckets:
            buckets = np.arange(a.buckets)
            missing = np.zeros(int(a.missing and b.missing), np.int64)
            return np.concatenate([missing, buckets + a.missing]), np.concatenate([missing, buckets + b.missing])
        case BucketVocabulary(), BucketVocabulary() if a.boundaries == b.boundaries:
            return np.arange(a.size), np.arange(a.size)
        case _:
            return none, none


def stands_for_tokens(vocabulary: Vocabulary) -> bool:
    """Whether rows stand for one token, or row number, each; else they are buckets of many."""
    return not isinstance(vocabulary, HashVocabulary | BucketVocabulary)


def described(vocabulary: Vocabulary) -> str:
    """What the rows of a vocabulary are, in the plural."""
    match vocabulary:
        case HashVocabulary():
            return f"{vocabulary.buckets:,} hash buckets"
        case BucketVocabulary():
            return f"{vocabulary.size - 1:,} buckets of numbers"
        case TokenVocabulary():
            return "tokens"
        case _:
            return "row numbers"
