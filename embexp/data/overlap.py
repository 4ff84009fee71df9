"""Rows of given files that are in the training split too, which make their metrics look too good.

Rows are compared by 64-bit hashes of all that is read of them. Those of the files are in memory, 8 bytes a row; the
training split is read once, in pieces. Where a row has few values, equal ones are no mistake. So the share of training
rows that have an equal one in the training split is counted too, of a sample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from embexp.data import splits
from embexp.data.examples import Encoded, Examples, Layout, examples
from embexp.system.arrays import mapped_array
from embexp.system.parallel import Progress, quiet

_AT_ONCE = 1 << 18
_SAMPLE = 100_000


@dataclass(frozen=True)
class Overlap:
    """How many rows of a split are in the training split too.

    Attributes:
        repeated: rows that are.
        rows: of the split.
        usual: share of the training rows that have an equal one in the training split.
        what: the word for rows.
    """

    repeated: int
    rows: int
    usual: float
    what: str = "rows"

    def warning(self, split: str) -> str | None:
        """A sentence if more rows are repeated than rows of the training split are among each other."""
        if self.repeated <= 2 * self.usual * self.rows:
            return None
        among = f" (of the {self.what} of train, {self.usual:.1%} have an equal one there)" if self.usual else ""
        return (
            f"{self.repeated:,} of {self.rows:,} {self.what} of {split} are in train too{among}, so its metrics are too"
            " good for new data: remove them from one of the files"
        )


def counted(
    encoded: Encoded,
    folder: Path,
    names: Sequence[str],
    unit: tuple[str, int],
    progress: Progress = quiet,
) -> dict[str, Any]:
    """`Overlap` as JSON, by split.

    Args:
        folder: with the splits.
        names: splits that have files of their own.
        unit: what is counted, and how many examples are made of each, the first of which stands for it.
    """
    what, examples_of_each = unit

    def read_split(name: str) -> np.ndarray:
        return mapped_array(folder / f"{name}.npy")[::examples_of_each]

    train = read_split("train")
    rows = {name: found for name in names if len(found := read_split(name))}
    if not rows:
        return {}
    hashed = _Rows.of(encoded)
    hashes = {name: hashed.hashes(each) for name, each in rows.items()}
    sample = train
    if len(train) > _SAMPLE:
        sample = train[np.sort(np.random.default_rng(0).choice(len(train), _SAMPLE, replace=False))]
    of_sample = hashed.hashes(sample)
    known = np.unique(np.concatenate([*hashes.values(), of_sample]))
    counts = np.zeros(len(known), np.int64)
    for start, stop in splits.chunks(len(train), _AT_ONCE):
        progress("comparing the rows of the splits", start / len(train))
        some = hashed.hash(train[start:stop])
        place = np.minimum(np.searchsorted(known, some), len(known) - 1)
        np.add.at(counts, place[known[place] == some], 1)
    usual = float(np.mean(counts[np.searchsorted(known, of_sample)] > 1))
    return {
        name: asdict(Overlap(int(np.count_nonzero(counts[np.searchsorted(known, each)])), len(each), usual, what))
        for name, each in hashes.items()
    }


@dataclass(frozen=True)
class _Rows:
    """All that is read of the examples, with codes of tokens, which do not depend on what trains."""

    examples: Examples
    layout: Layout
    bucketed: np.ndarray | None

    @staticmethod
    def of(encoded: Encoded) -> _Rows:
        layout, folder = encoded.layout, encoded.folder
        bucketed = mapped_array(folder / "bucketed.npy") if layout.bucketed else None
        return _Rows(examples(folder, folder), layout, bucketed)

    def hashes(self, rows: np.ndarray) -> np.ndarray:
        """uint64 [N], in pieces."""
        found: np.ndarray = np.empty(len(rows), np.uint64)
        for start, stop in splits.chunks(len(rows), _AT_ONCE):
            found[start:stop] = self.hash(rows[start:stop])
        return found

    def hash(self, rows: np.ndarray) -> np.ndarray:
        """uint64 [n]: of codes, lists in their order, weights, numbers and labels."""
        read = self.examples
        result: np.ndarray = np.zeros(len(rows), np.uint64)
        scalar = [read.ids, read.dense]
        scalar += [] if self.bucketed is None else [self.bucketed]
        scalar += [] if read.labels is None else [read.labels.reshape(read.count, -1)]
        listed = [(column, column.values) for column in read.lists.values()]
        for name, values in read.weights.items():
            if (weighed := self.layout.weights[name]) in read.lists:
                listed.append((read.lists[weighed], values))
            else:
                scalar.append(values[:, None])
        for matrix in scalar:
            for values in matrix[rows].T:
                result = splits.mix(result ^ _bits(values))
        for column, values in listed:
            places, ends = column.taken(rows)
            order = (np.arange(len(places)) - np.repeat(ends[:-1], np.diff(ends))).astype(np.uint64)
            mixed = splits.mix(_bits(values[places]) ^ (order << np.uint64(32)))
            sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed)])
            result = splits.mix(result ^ (sums[ends[1:]] - sums[ends[:-1]]))
        return result


def _bits(values: np.ndarray) -> np.ndarray:
    """uint64: equal for equal values."""
    if values.dtype.kind == "f":
        return np.ascontiguousarray(values + 0.0, np.float32).view(np.uint32).astype(np.uint64)
    return values.astype(np.uint64)
