"""Several files of vectors as one: rows in order of preference, or side by side; written once into the cache."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from embexp.errors import DataError
from embexp.specs.pretrained import Join, NonFinite
from embexp.system import arrays, caching, digests
from embexp.system.parallel import Progress, quiet
from embexp.vectors import stored
from embexp.vectors.file_source import FileSource
from embexp.vectors.stored import Writer

_VERSION = 1
_ORIGINS = "origins.npy"


class JoinedSource(FileSource):
    """A `VectorSource` over several files.

    Attributes:
        sources: the files, in order.
        origins: uint64 [rows], bit f of which says whether a row has numbers of file f; None: every row has of all.
    """

    sources: Sequence[FileSource]
    origins: np.ndarray | None

    def counts(self, rows: np.ndarray) -> list[int]:
        """How many rows have numbers of each file.

        Args:
            rows: integers, numbers of rows.
        """
        if self.origins is None:
            return [len(rows)] * len(self.sources)
        found = self.origins[rows]
        return [int(np.count_nonzero(found & np.uint64(1 << place))) for place in range(len(self.sources))]


def joined(
    sources: Sequence[FileSource],
    how: Join,
    *,
    identity: Mapping[str, Any],
    cache: Path,
    non_finite: NonFinite,
    progress: Progress = quiet,
) -> JoinedSource:
    """One source of the rows of several.

    In order of preference, each token has the row of the first file with that token. Side by side, it has the numbers
    of all files, one behind the other, with zeros for a file that lacks it; rows without tokens are taken by number.

    Args:
        sources: which apply their policy of `non_finite`.
        identity: what their rows and tokens depend on beside the content of files.
        cache: folder for the result.

    Raises:
        DataError: the files do not go together; or a file's content is malformed.
    """
    _check(sources, how)
    names = [str(source.files[0]) for source in sources]
    tokens = [source.tokens for source in sources]
    key = digests.of_json([_VERSION, stored.VERSION, how, identity, [source.digest for source in sources]])
    by_token = [each for each in tokens if each is not None]

    def join(folder: Path) -> None:
        maps = [source.memory_map() for source in sources]
        named, rows = _united(by_token) if by_token else (None, [np.arange(sources[0].rows)] * len(sources))
        has = np.stack(rows) >= 0
        if how is Join.PREFERENCE:
            has[1:] &= ~np.logical_or.accumulate(has, axis=0)[:-1]
        dim = sources[0].dim if how is Join.PREFERENCE else sum(source.dim for source in sources)
        if named is not None:
            bits = np.uint64(1) << np.arange(len(sources), dtype=np.uint64)
            np.save(folder / _ORIGINS, np.bitwise_or.reduce(has * bits[:, None]), allow_pickle=False)
        with closing(Writer(folder, dim, distinct=False)) as writer:
            step = max(1, stored.CHUNK_BYTES // (4 * dim))
            for start in range(0, has.shape[1], step):
                some = slice(start, start + step)
                values = np.zeros((has[:, some].shape[1], dim), np.float32)
                column = 0
                for mapping, of_file, there in zip(maps, rows, has, strict=True):
                    places = np.flatnonzero(there[some])
                    values[places, column : column + mapping.shape[1]] = mapping[of_file[some][places]]
                    column += mapping.shape[1] if how is Join.COLUMNS else 0
                writer.add(values, None if named is None else named[some], names[0], start + 1)
                progress("joining files of vectors", min(1.0, (start + step) / has.shape[1]))
            writer.finish(names[0])

    folder = caching.folder(cache, "joined", key, join)
    files = [path for source in sources for path in source.files]
    found = stored.read(folder, name=" and ".join(names), files=files, non_finite=non_finite)
    result = JoinedSource(found, cache=cache, non_finite=non_finite, progress=progress)
    result.sources = tuple(sources)
    result.origins = arrays.mapped(folder / _ORIGINS)[0] if by_token else None
    return result


def _check(sources: Sequence[FileSource], how: Join) -> None:
    first, *others = sources
    for other in others:
        name, before = other.files[0], first.files[0]
        if how is Join.PREFERENCE and other.dim != first.dim:
            raise DataError(
                f"{name}: found rows of {other.dim} numbers, and those of {before} have {first.dim}; files in order of"
                " preference have equally long rows, others can be joined by columns (join=columns)"
            )
        if (other.tokens is None) != (first.tokens is None):
            with_, without = (name, before) if first.tokens is None else (before, name)
            raise DataError(f"{without}: found no tokens, and {with_} has some; give it a tokens_file")
        if first.tokens is None and how is Join.PREFERENCE:
            raise DataError(
                f"{name}: found no tokens, so that each row is that of {before}; give both files a tokens_file"
            )
        if first.tokens is None and other.rows != first.rows:
            raise DataError(
                f"{name}: found {other.rows:,} rows, expected {first.rows:,}, as {before} has; without tokens, rows are"
                " taken by number"
            )


def _united(tokens: Sequence[pa.LargeStringArray]) -> tuple[pa.LargeStringArray, list[np.ndarray]]:
    """All distinct tokens in order of appearance; of each file the first row of each, int64, -1 where it has none."""
    encoded = pa.concat_arrays(tokens).dictionary_encode()
    codes, rows, start = encoded.indices.to_numpy(), [], 0
    for each in tokens:
        first = np.full(len(encoded.dictionary), -1, np.int64)
        of_file = codes[start : start + len(each)]
        first[of_file[::-1]] = np.arange(len(each))[::-1]  # of several assignments to one place the last stays
        rows.append(first)
        start += len(each)
    return encoded.dictionary, rows
