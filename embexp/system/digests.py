"""SHA-256 digests of files, JSON values and tables, and the seeds that follow from names."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from embexp.system import files
from embexp.system.parallel import Progress, quiet

if TYPE_CHECKING:
    import numpy as np

ROWS_PER_BLOCK = 65_536
_BYTES_AT_ONCE = 1 << 22
"""Read at once: a table whose rows are gathered from a file needs no more memory than that."""
_LARGE = 1 << 28
"""Bytes of a file that nobody waits for."""


def of_json(value: Any) -> str:
    """Digest of a JSON value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()  # names of files need not be UTF-8


def of_file(path: Path, progress: Progress = quiet) -> str:
    """Digest of a file's bytes.

    Args:
        progress: called as reading of a large one goes on, which takes seconds per gigabyte.
    """
    digest = hashlib.sha256()
    with files.opened(path) as file:
        size, done = os.fstat(file.fileno()).st_size, 0
        # To clear 4 MiB takes longer than to read a small file.
        block = memoryview(bytearray(min(_BYTES_AT_ONCE, max(size, 1 << 16))))
        while count := file.readinto(block):
            digest.update(block[:count])
            done += count
            if size > _LARGE:
                progress(f"reading {path.name}", min(1.0, done / size))
    return digest.hexdigest()


@functools.cache
def of_package() -> str:
    """Digest of the source files of embexp, read once in a process: it runs what it has imported."""
    package = Path(__file__).parents[1]
    sources = sorted(path for kind in ("*.py", "*.cc", "*.h") for path in package.rglob(kind))
    return of_json({str(path.relative_to(package)): of_file(path) for path in sources})


def of_float_rows(read: Callable[[int, int], np.ndarray], rows: int, dim: int) -> str:
    """Digest of a matrix that is read a few megabytes at a time; the same as that of `of_rows`.

    Args:
        read: returns rows [start, stop), float32 [stop - start, dim].
        dim: width of a row.
    """
    return of_json(
        [_of_block(read, start, min(start + ROWS_PER_BLOCK, rows), dim) for start in range(0, rows, ROWS_PER_BLOCK)]
    )


def _of_block(read: Callable[[int, int], np.ndarray], start: int, stop: int, dim: int) -> str:
    digest = _begun("<f4", (stop - start, dim))
    at_once = max(1, _BYTES_AT_ONCE // (4 * dim))
    for first in range(start, stop, at_once):
        _add(digest, read(first, min(first + at_once, stop)))
    return digest.hexdigest()


def of_rows(blocks: Iterable[np.ndarray]) -> str:
    """Digest of a matrix that comes as consecutive blocks of rows.

    Blocks must be of `ROWS_PER_BLOCK` rows, but for the last: the digest is one of the blocks' digests,
    so that two tables that differ can be narrowed down to the blocks in which they do.
    """
    return of_json(list(block_digests(blocks)))


def block_digests(blocks: Iterable[np.ndarray]) -> Iterator[str]:
    """Digest of each block: its dtype, shape and bytes in C order."""
    for block in blocks:
        digest = _begun(block.dtype.str, block.shape)
        _add(digest, block)
        yield digest.hexdigest()


def _begun(dtype: str, shape: tuple[int, ...]) -> hashlib._Hash:
    """A digest of a dtype, as `numpy.dtype.str` has it, and a shape."""
    return hashlib.sha256(f"{dtype}{shape}".encode())


def _add(digest: hashlib._Hash, values: np.ndarray) -> None:
    import numpy as np  # not above: sweeps are checked without it

    digest.update(np.ascontiguousarray(values).view(np.uint8).reshape(-1).data)


def seed_of(seed: int, *names: str | int) -> tuple[int, int]:
    """Two 32-bit seeds from the run's seed and a stable name, the same whatever else is seeded before or after."""
    digest = hashlib.sha256(json.dumps([seed, *names]).encode("utf-8")).digest()
    return int.from_bytes(digest[:4], "little") & 0x7FFFFFFF, int.from_bytes(digest[4:8], "little") & 0x7FFFFFFF
