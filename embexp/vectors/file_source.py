"""A file of vectors as a `VectorSource`: converted to float32, with the policies kept, mapped where it can be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from embexp.errors import DataError
from embexp.specs.pretrained import NonFinite
from embexp.system import arrays, caching, digests
from embexp.system.arrays import MappableRows
from embexp.system.parallel import Progress, quiet
from embexp.vectors import converted
from embexp.vectors.converted import Writer
from embexp.vectors.stored import Place, Stored

_CHUNK_BYTES = 16 * 1024 * 1024


class VectorSource(MappableRows, Protocol):
    """A matrix on disk, read by ranges of rows or mapped.

    Its `memory_map` converts a file that can't be mapped as it is, once, into the cache. To read some rows takes
    memory for little more than these.
    """

    @property
    def dtype(self) -> np.dtype:
        """Type as stored; rows are read as float32."""
        ...

    @property
    def tokens(self) -> pa.LargeStringArray | None:
        """The word of each row, [rows]; None when the file has none.

        Those of text and word2vec files are distinct; elsewhere a token may be repeated, and its first row counts.
        """
        ...

    @property
    def digest(self) -> str:
        """SHA-256 of the content, independent of the file's name."""
        ...


class FileSource:
    """A `VectorSource` over a matrix in a file.

    Args:
        cache: folder for converted files, and for facts about files.
        non_finite: what becomes of NaN and infinities. A mapped file is checked once, and the result cached; not under
            KEEP.
        progress: receives how far a pass over the file is.
    """

    def __init__(
        self, stored: Stored, *, cache: Path, non_finite: NonFinite = NonFinite.ERROR, progress: Progress = quiet
    ) -> None:
        self._stored, self._cache, self._non_finite = stored, cache, non_finite
        self._progress = progress
        self._name = stored.name
        if non_finite is NonFinite.SKIP and not stored.finite and self._non_finite_rows.size:
            if stored.tokens is None:
                row, found = self._first()
                raise DataError(
                    f"{stored.name}, row {row + 1}: found {found}, and the file has no tokens, so that rows are known "
                    f"by their numbers and none can be removed; set the policy to {NonFinite.ZERO}, or name the tokens"
                )
            self._stored = self._converted()

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self._stored.rows

    @property
    def dim(self) -> int:
        """Numbers per row."""
        return self._stored.dim

    @property
    def dtype(self) -> np.dtype:
        """As stored."""
        return self._stored.dtype

    @property
    def notes(self) -> Mapping[str, int]:
        """What reading removed or mended, as notes with counts."""
        return self._stored.notes

    @cached_property
    def tokens(self) -> pa.LargeStringArray | None:
        """The word of each row, [rows]; None when the file has none."""
        return None if self._stored.tokens is None else self._stored.tokens()

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the file; of several files, of their digests. Remembered by path, size and time."""
        each = [caching.file_digest(path, cache=self._cache, progress=self._progress) for path in self._stored.files]
        return each[0] if len(each) == 1 else digests.of_json(each)

    @property
    def files(self) -> Sequence[Path]:
        """The files that are read."""
        return self._stored.files

    @property
    def in_place(self) -> bool:
        """Whether the file itself could be mapped, if all its numbers may be kept."""
        return _aligned(self._stored.place)

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, float32 [stop - start, dim], in memory of their own.

        Raises:
            DataError: a number that the policy doesn't allow, or a stored checksum that differs.
            IndexError: there are no such rows.
        """
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"{self._stored.name} has no rows {start} to {stop}, there are {self.rows}")
        self._verified  # noqa: B018  a property that is computed once
        values = converted.as_float32(self._stored.read(start, stop))
        if self._stored.finite or self._non_finite is NonFinite.KEEP:
            return values
        rows = converted.non_finite_rows(values)
        if rows.size and self._non_finite is not NonFinite.ZERO:
            raise self._not_finite(start + int(rows[0]), converted.first_non_finite(values[rows[0]]))
        converted.set_zero(values, rows)
        return values

    def view(self) -> np.ndarray | None:
        """The matrix mapped from its file at any alignment, float32 [rows, dim], only to read; None if it can't be.

        Raises:
            DataError: a stored checksum differs.
        """
        self._verified  # noqa: B018  a property that is computed once
        place = self._stored.place
        if place is None or place.offset % 4:
            return None
        return np.asarray(np.memmap(place.path, np.float32, "c", place.offset, (self.rows, self.dim)))

    def memory_map(self) -> np.ndarray:
        """The matrix as a mapping: float32 [rows, dim], C-contiguous, aligned to 64 bytes, a plain `np.ndarray`.

        Writing to it changes nothing on disk. What can't be mapped as it is (another type, another alignment, rows
        that a policy mends) is converted once into the cache.

        Raises:
            DataError: a number that the policy doesn't allow, or a stored checksum that differs.
        """
        self._verified  # noqa: B018  a property that is computed once
        place = self._stored.place
        if not _aligned(place) or not self._clean:
            self._stored = self._converted()
            place = self._stored.place
        assert place is not None  # what was converted can be mapped
        return np.asarray(np.memmap(place.path, np.float32, "c", place.offset, (self.rows, self.dim)))

    @property
    def _clean(self) -> bool:
        """Whether all numbers may be used as they are."""
        if self._stored.finite or self._non_finite is NonFinite.KEEP:
            return True
        if not self._non_finite_rows.size:
            return True
        if self._non_finite is NonFinite.ERROR:
            raise self._not_finite(*self._first())
        return False

    @cached_property
    def _verified(self) -> bool:
        """Compares the stored checksums with the data, once per content."""
        if (check := self._stored.check) is not None:
            caching.folder(self._cache, "verified", self._key(), lambda folder: check())
        return True

    @cached_property
    def _non_finite_rows(self) -> np.ndarray:
        """Numbers of the rows with numbers that are not finite, found once per content."""

        def look(folder: Path) -> None:
            found = [converted.non_finite_rows(values) + start for start, values in self._chunks("looking through")]
            np.save(folder / "rows.npy", np.concatenate(found), allow_pickle=False)

        folder = caching.folder(self._cache, "finite", self._key(), look)
        return np.asarray(np.load(folder / "rows.npy", allow_pickle=False))

    def _first(self) -> tuple[int, str]:
        """The first row that is not finite, and what was found there."""
        row = int(self._non_finite_rows[0])
        return row, converted.first_non_finite(converted.as_float32(self._stored.read(row, row + 1))[0])

    def _not_finite(self, row: int, found: str) -> DataError:
        return DataError(
            f"{self._stored.name}, row {row + 1}: found {found}, expected finite numbers; {converted.REMEDY}"
        )

    def _converted(self) -> Stored:
        """The matrix in the cache, as float32 and mended by the policy."""
        stored, tokens = self._stored, self.tokens

        def convert(folder: Path) -> None:
            writer = Writer(folder, self.dim, non_finite=self._non_finite, distinct=False)
            try:
                for start, values in self._chunks("converting"):
                    some = None if tokens is None else tokens.slice(start, len(values))
                    writer.add(values, some, f"{stored.name}, row", start + 1)
                writer.finish(stored.name)
            finally:
                writer.close()

        key = self._key(self._non_finite.value)
        folder = caching.folder(self._cache, "vectors", key, convert)
        made = converted.read(
            folder, name=stored.name, dtype=stored.dtype, files=list(stored.files), non_finite=self._non_finite
        )
        self.__dict__.pop("tokens", None)
        return made

    def _chunks(self, doing: str) -> Iterator[tuple[int, np.ndarray]]:
        step = max(1, _CHUNK_BYTES // (4 * self.dim))
        for start in range(0, self.rows, step):
            yield start, converted.as_float32(self._stored.read(start, min(self.rows, start + step)))
            self._progress(f"{doing} {Path(self._name).name}", min(1.0, (start + step) / self.rows))

    def _key(self, *more: str) -> str:
        """Cache key of this matrix's content and of its conversion."""
        part = [self._name.removeprefix(str(self._stored.files[0])), self.rows, self.dim, self._stored.dtype.str]
        return digests.of_json([converted.VERSION, self.digest, part, *more])


def _aligned(place: Place | None) -> bool:
    return place is not None and place.offset % arrays.ALIGNMENT == 0
