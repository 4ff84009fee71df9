"""Trainable rows that never moved, by cause; and whether any bit of a row has changed, by hashes, eight bytes a row."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from embexp.errors import RunError

_ROWS_AT_ONCE = 8_192


class Cause(StrEnum):
    """Why a row never moved."""

    LEARNING_RATE_ZERO = "learning_rate_zero"
    """At no step that was done was its learning rate above 0."""
    NO_GRADIENT = "no_gradient"
    """Steps looked it up to move it, and left it as it was."""
    NEVER_MET = "never_met"
    """No step looked it up to move it."""


@dataclass(frozen=True, eq=False)
class NeverMoved:
    """The trainable rows of a table, by whether they moved and why not.

    Attributes:
        moved: how many have other bits than before the first step.
        rows: bool [rows] for each cause of any, the rows that never moved.
        special: how many rows without a token never moved because they were never met, which is no fault.
    """

    moved: int
    rows: dict[Cause, np.ndarray]
    special: int

    @property
    def counts(self) -> dict[Cause, int]:
        """How many rows never moved, by cause."""
        return {cause: int(np.count_nonzero(self.rows[cause])) if cause in self.rows else 0 for cause in Cause}

    @property
    def count(self) -> int:
        """How many rows never moved, without special ones that were never met."""
        return sum(self.counts.values())


def by_cause(
    changed: np.ndarray,
    *,
    frozen: np.ndarray | None,
    looked_up: np.ndarray | None,
    idle: np.ndarray | None,
    special: np.ndarray,
) -> NeverMoved:
    """Sorts the rows of a table that never moved by cause. A learning rate of 0 comes before other causes.

    Args:
        changed: bool [rows], whether a row's bits are others than before the first step.
        frozen: bool [rows], rows that must not move; None: none.
        looked_up: bool [rows], rows that steps looked up to move them; None: none was.
        idle: bool [rows], rows whose learning rate was 0 at every step; None: none.
        special: integers, the numbers of rows without a token: the OOV row and free ones.
    """
    trainable = np.ones(len(changed), np.bool_) if frozen is None else ~frozen
    unmoved = trainable & ~changed
    met = np.zeros(len(changed), np.bool_) if looked_up is None else looked_up
    spared = special[unmoved[special] & ~met[special]]
    moved = int(np.count_nonzero(trainable)) - int(np.count_nonzero(unmoved))
    unmoved[spared] = False
    found = {}
    if idle is not None:
        found[Cause.LEARNING_RATE_ZERO] = unmoved & idle
        unmoved = unmoved & ~idle
    found |= {Cause.NO_GRADIENT: unmoved & met, Cause.NEVER_MET: unmoved & ~met}
    return NeverMoved(moved, {cause: rows for cause, rows in found.items() if rows.any()}, len(spared))


def most_frequent(rows: np.ndarray, frequencies: np.ndarray | None, *, shown: int = 5) -> np.ndarray:
    """The rows of a mask that were seen most often in the training split, most frequent first: int64, at most `shown`.

    Args:
        rows: bool [rows].
        frequencies: integers [n], n ≤ rows, how often each row was seen; None, and rows beyond them: not counted.
    """
    numbers = np.flatnonzero(rows)
    if frequencies is not None and len(numbers):
        counts = np.zeros(len(numbers), np.int64)
        counted = numbers < len(frequencies)
        counts[counted] = frequencies[numbers[counted]]
        if len(numbers) > shown:  # rows that are as common as the last of them, or more
            kept = counts >= np.partition(counts, len(counts) - shown)[len(counts) - shown]
            numbers, counts = numbers[kept], counts[kept]
        numbers = numbers[np.argsort(-counts, kind="stable")]
    return numbers[:shown]


def row_hashes(rows: np.ndarray, seed: int = 0) -> np.ndarray:
    """A hash of each row's bits: uint64 [n].

    The sum over columns of bits times a random odd number, modulo 2^64 (multilinear hashing, Carter & Wegman 1979):
    a row of which one element changed always has another hash, one with several changes keeps it with
    probability 2^-32 at most.

    Args:
        rows: float32 [n, dim].
    """
    bits = np.ascontiguousarray(rows).view(np.uint32)
    generator = np.random.Generator(np.random.Philox(key=seed))
    factors = generator.integers(0, 2**63, rows.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    found = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        found[some] = bits[some].astype(np.uint64) @ factors
    return found


class RowHashes:
    """Hashes of a table's rows, to find later which have changed."""

    def __init__(self, blocks: Iterable[np.ndarray], *, folder: str | os.PathLike[str] | None = None) -> None:
        """Writes a hash of each row.

        Args:
            blocks: all rows of the table, float32, as consecutive blocks.
            folder: of the file; None: the system's folder for temporary files.

        Raises:
            RunError: the file can't be written.
        """
        folder = Path(tempfile.gettempdir() if folder is None else folder)
        try:
            self._file = tempfile.TemporaryFile(dir=folder, prefix="embexp-")  # noqa: SIM115 - lives as long as this
            for block in blocks:
                self._file.write(row_hashes(block).tobytes())
            self._file.flush()
        except OSError as error:
            raise RunError(
                f"hashes of rows can't be written to {folder}: {error.strerror or error}; set TMPDIR to a"
                " folder with more room, or output.digests=false"
            ) from error

    def changed(self, blocks: Iterable[np.ndarray]) -> np.ndarray:
        """Whether each row has changed: bool [rows].

        Args:
            blocks: all rows of the table, cut as before or not.
        """
        self._file.seek(0)
        found = []
        for block in blocks:
            now = row_hashes(block)
            found.append(np.frombuffer(self._file.read(now.nbytes), np.uint64) != now)
        return np.concatenate(found) if found else np.zeros(0, np.bool_)

    def close(self) -> None:
        """Deletes the temporary file."""
        self._file.close()
