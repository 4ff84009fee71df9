"""Whether any bit of a row has changed: hashes in a temporary file, eight bytes a row."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

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
                self._file.write(hashes(block).tobytes())
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
            now = hashes(block)
            found.append(np.frombuffer(self._file.read(now.nbytes), np.uint64) != now)
        return np.concatenate(found) if found else np.zeros(0, np.bool_)

    def close(self) -> None:
        """Deletes the temporary file."""
        self._file.close()
