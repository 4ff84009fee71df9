"""A file of random numbers for those who have no matrix at hand: made once, in the cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from embexp.specs.pretrained import File, Sample
from embexp.system import caching, digests, files

VERSION = 1
"""Of the numbers: another one makes other files."""
_ROWS_AT_ONCE = 8_192


def with_path(setting: File | Sample, *, cache: Path) -> File:
    """The setting as one of a file; where it names none, a file of random numbers is made.

    Args:
        setting: one of a table.
        cache: folder for files that are made.
    """
    if isinstance(setting, File):
        return setting
    path = setting.path or str(make(setting.rows, setting.dim, setting.seed, cache=cache))
    return File(path=path, **setting.model_dump(exclude={"kind", "path", "rows", "dim", "seed"}))


def make(rows: int, dim: int, seed: int, *, cache: Path) -> Path:
    """A `.npy` file of standard normal float32 [rows, dim]; written in pieces, found again the next time."""

    def fill(folder: Path) -> None:
        path = folder / "sample.npy"
        matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, dim))
        files.allocate(path)
        random = np.random.Generator(np.random.Philox(key=digests.seed_of(seed, "sample")[0]))
        for start in range(0, rows, _ROWS_AT_ONCE):
            part = matrix[start : start + _ROWS_AT_ONCE]
            part[:] = random.standard_normal(part.shape, np.float32)
        matrix.flush()

    return caching.folder(cache, "sample", digests.of_json([VERSION, rows, dim, seed]), fill) / "sample.npy"
