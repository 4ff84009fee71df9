"""SHA-256 digests of files, JSON values and tables, and the seeds that follow from names."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from embexp.system import regular

ROWS_PER_BLOCK = 65_536


def of_json(value: Any) -> str:
    """Digest of a JSON value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()  # names of files need not be UTF-8


def of_file(path: Path) -> str:
    """Digest of a file's bytes."""
    with regular.opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_rows(blocks: Iterable[np.ndarray]) -> str:
    """Digest of a matrix that comes as consecutive blocks of rows.

    Blocks must be of `ROWS_PER_BLOCK` rows, but for the last: the digest is one of the blocks' digests,
    so that two tables that differ can be narrowed down to the blocks in which they do.
    """
    return of_json(list(block_digests(blocks)))


def block_digests(blocks: Iterable[np.ndarray]) -> Iterator[str]:
    """Digest of each block: its dtype, shape and bytes in C order."""
    for block in blocks:
        digest = hashlib.sha256(f"{block.dtype.str}{block.shape}".encode())
        digest.update(np.ascontiguousarray(block).view(np.uint8).reshape(-1).data)
        yield digest.hexdigest()


def seed_of(seed: int, *names: str | int) -> tuple[int, int]:
    """Two 32-bit seeds from the run's seed and a stable name, the same whatever else is seeded before or after."""
    digest = hashlib.sha256(json.dumps([seed, *names]).encode("utf-8")).digest()
    return int.from_bytes(digest[:4], "little") & 0x7FFFFFFF, int.from_bytes(digest[4:8], "little") & 0x7FFFFFFF
