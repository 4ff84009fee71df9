"""Whether rows are still what they were, bit for bit: their hashes in a temporary file, eight bytes a row."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import numpy as np

from embexp.errors import RunError

_ROWS_AT_ONCE = 8_192


def hashes(rows: np.ndarray, seed: int = 0) -> np.ndarray:
    """A hash of each row's bits: uint64 [n].

    The sum over columns of bits times a random odd number, modulo 2^64 (multilinear hashing, Carter & Wegman 1979):
    a row of which one element changed always has another hash, one with several changes keeps it with
    probability 2^-32 at most.

    Args:
        rows: float32 [n, dim].
        seed: of the random numbers.
    """
    bits = np.ascontiguousarray(rows).view(np.uint32)
    generator = np.random.Generator(np.random.Philox(key=seed))
    factors = generator.integers(0, 2**63, rows.shape[1], np.uint64) * np.uint64(2) + np.uint64(1)
    found = np.empty(len(rows), np.uint64)
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = slice(start, start + _ROWS_AT_ONCE)
        found[some] = bits[some].astype(np.uint64) @ factors
    return found


class FrozenRows:
    """Remembers the rows of a table that must not change, and counts those that did."""

    def __init__(
        self, blocks: Iterable[np.ndarray], frozen: np.ndarray | None, *, folder: str | os.PathLike[str] | None = None
    ) -> None:
        """Writes hashes of the frozen rows as they are now.

        Args:
            blocks: all rows of the table, float32, as consecutive blocks.
            frozen: bool [rows], which rows must not change; None: all.
            folder: where the file lies; None: the system's folder for temporary files.

        Raises:
            RunError: the file can't be written.
        """
        self._frozen = frozen
        folder = Path(tempfile.gettempdir() if folder is None else folder)
        try:
            self._file = tempfile.TemporaryFile(dir=folder, prefix="embexp-")  # noqa: SIM115 - lives as long as this
            for found in self._hashes(blocks):
                self._file.write(found.tobytes())
            self._file.flush()
        except OSError as error:
            raise RunError(
                f"hashes of frozen rows can't be written to {folder}: {error.strerror or error}; set TMPDIR to a"
                " folder with more room, or output.digests=false"
            ) from error

    def changed(self, blocks: Iterable[np.ndarray]) -> int:
        """Number of frozen rows that are not what they were.

        Args:
            blocks: all rows of the table, cut as before or not.
        """
        self._file.seek(0)
        changed = 0
        for found in self._hashes(blocks):
            before = np.frombuffer(self._file.read(found.nbytes), np.uint64)
            changed += int(np.count_nonzero(before != found))
        return changed

    def close(self) -> None:
        """Gives the file's room back."""
        self._file.close()

    def __enter__(self) -> FrozenRows:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hashes(self, blocks: Iterable[np.ndarray]) -> Iterable[np.ndarray]:
        start = 0
        for block in blocks:
            stop = start + len(block)
            yield hashes(block if self._frozen is None else block[self._frozen[start:stop]])
            start = stop
