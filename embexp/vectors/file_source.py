"""A file of vectors as a `VectorSource`: float32, with the policies kept, mapped where it can be, else converted once.

What is converted is a folder of the cache, with `matrix.npy`, `tokens.arrow` if there are tokens, and `notes.json`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
import pyarrow as pa

from embexp.errors import DataError
from embexp.specs.pretrained import InvalidText, NonFinite
from embexp.system import arrays, caching, digests
from embexp.system.arrays import MappableRows
from embexp.system.parallel import Progress, quiet
from embexp.vectors.stored import Place, Stored
from embexp.vectors.text_blocks import invalid_rows

HEADER_BYTES = 128
VERSION = 1
"""Of the converted files; part of the cache key."""
_MATRIX, _TOKENS, _NOTES = "matrix.npy", "tokens.arrow", "notes.json"
_CHUNK_BYTES = 16 * 1024 * 1024
_REMEDY = f"set the policy to {NonFinite.ZERO} or {NonFinite.SKIP} to go on"


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
        values = as_float32(self._stored.read(start, stop))
        if self._stored.finite or self._non_finite is NonFinite.KEEP:
            return values
        rows = non_finite_rows(values)
        if rows.size and self._non_finite is not NonFinite.ZERO:
            raise self._not_finite(start + int(rows[0]), first_non_finite(values[rows[0]]))
        set_zero(values, rows)
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
            found = [non_finite_rows(values) + start for start, values in self._chunks("looking through")]
            np.save(folder / "rows.npy", np.concatenate(found), allow_pickle=False)

        folder = caching.folder(self._cache, "finite", self._key(), look)
        return np.asarray(np.load(folder / "rows.npy", allow_pickle=False))

    def _first(self) -> tuple[int, str]:
        """The first row that is not finite, and what was found there."""
        row = int(self._non_finite_rows[0])
        return row, first_non_finite(as_float32(self._stored.read(row, row + 1))[0])

    def _not_finite(self, row: int, found: str) -> DataError:
        return DataError(f"{self._stored.name}, row {row + 1}: found {found}, expected finite numbers; {_REMEDY}")

    def _converted(self) -> Stored:
        """The matrix in the cache, as float32 and mended by the policy."""
        stored, tokens = self._stored, self.tokens

        def convert(folder: Path) -> None:
            with closing(Writer(folder, self.dim, non_finite=self._non_finite, distinct=False)) as writer:
                for start, values in self._chunks("converting"):
                    some = None if tokens is None else tokens.slice(start, len(values))
                    writer.add(values, some, f"{stored.name}, row", start + 1)
                writer.finish(stored.name)

        key = self._key(self._non_finite.value)
        folder = caching.folder(self._cache, "vectors", key, convert)
        made = read(folder, name=stored.name, dtype=stored.dtype, files=list(stored.files), non_finite=self._non_finite)
        self.__dict__.pop("tokens", None)
        return made

    def _chunks(self, doing: str) -> Iterator[tuple[int, np.ndarray]]:
        step = max(1, _CHUNK_BYTES // (4 * self.dim))
        for start in range(0, self.rows, step):
            yield start, as_float32(self._stored.read(start, min(self.rows, start + step)))
            self._progress(f"{doing} {Path(self._name).name}", min(1.0, (start + step) / self.rows))

    def _key(self, *more: str) -> str:
        """Cache key of this matrix's content and of its conversion."""
        part = [self._name.removeprefix(str(self._stored.files[0])), self.rows, self.dim, self._stored.dtype.str]
        return digests.of_json([VERSION, self.digest, part, *more])


def _aligned(place: Place | None) -> bool:
    return place is not None and place.offset % arrays.ALIGNMENT == 0


class Writer:
    """Writes rows into a folder as they come, without those that the policies remove.

    Args:
        folder: an empty one.
        dim: numbers per row.
        invalid_text: what becomes of tokens that are not UTF-8.
        non_finite: what becomes of numbers that are not finite.
        distinct: whether only the first row of each token is kept.
    """

    def __init__(
        self,
        folder: Path,
        dim: int,
        *,
        invalid_text: InvalidText = InvalidText.ERROR,
        non_finite: NonFinite = NonFinite.KEEP,
        distinct: bool = True,
    ) -> None:
        self._folder, self._dim = folder, dim
        self._invalid_text, self._non_finite, self._distinct = invalid_text, non_finite, distinct
        self._tokens: list[pa.LargeStringArray] = []
        self._rows = 0
        self._notes: Counter[str] = Counter()
        self._file = (folder / _MATRIX).open("wb")
        self._file.write(bytes(HEADER_BYTES))

    def add(self, values: np.ndarray, tokens: pa.LargeStringArray | None, where: str, first: int) -> None:
        """Appends rows.

        Args:
            values: float32 [n, dim], of which non-finite numbers may be set to 0.
            tokens: [n], perhaps not valid UTF-8; None: there are none.
            where: the file, and the word for a row of it, such as `a.txt, line`.
            first: number of the first of these rows in the file, for errors.

        Raises:
            DataError: a token or a number that the policy doesn't allow.
        """
        kept = np.ones(len(values), bool)
        if tokens is not None:
            tokens = self._as_utf8(tokens, kept, where, first)
        if self._non_finite is not NonFinite.KEEP:
            rows = non_finite_rows(values)
            rows = rows[kept[rows]]
            if rows.size and self._non_finite is NonFinite.ERROR:
                found = first_non_finite(values[rows[0]])
                raise DataError(f"{where} {first + rows[0]}: found {found}, expected finite numbers; {_REMEDY}")
            if rows.size and self._non_finite is NonFinite.ZERO:
                set_zero(values, rows)
                self._notes["rows with numbers that were not finite, set to 0"] += rows.size
            elif rows.size:
                kept[rows] = False
                self._notes["rows left out: numbers that are not finite"] += rows.size
        if not kept.all():
            values = values[kept]
            tokens = None if tokens is None else tokens.filter(pa.array(kept))
        self._file.write(np.ascontiguousarray(values, np.float32).data)
        self._rows += len(values)
        if tokens is not None:
            self._tokens.append(tokens)

    def finish(self, where: str) -> None:
        """Writes the tokens and the header; the folder is whole then.

        Raises:
            DataError: no row is left.
        """
        self._file.close()
        path = self._folder / _MATRIX
        if self._tokens:
            tokens = pa.concat_arrays(self._tokens)
            if self._distinct:
                tokens = self._first_of_each(path, tokens)
            batch = pa.record_batch([tokens], names=["token"])
            with pa.OSFile(str(self._folder / _TOKENS), "wb") as file, pa.ipc.new_file(file, batch.schema) as ipc:
                ipc.write_batch(batch)
        if not self._rows:
            raise DataError(f"{where}: found no row of vectors, expected at least one")
        with path.open("r+b") as file:
            file.write(header(self._rows, self._dim))
        notes = {"rows": self._rows, "dim": self._dim, "notes": dict(self._notes)}
        (self._folder / _NOTES).write_text(json.dumps(notes), encoding="utf-8")

    def close(self) -> None:
        """Closes the file, whole or not."""
        self._file.close()

    def _as_utf8(self, tokens: pa.LargeStringArray, kept: np.ndarray, where: str, first: int) -> pa.LargeStringArray:
        rows = invalid_rows(tokens)
        if not rows.size:
            return tokens
        written = tokens.cast(pa.large_binary()).to_pylist()
        if self._invalid_text is InvalidText.ERROR:
            found = repr(written[rows[0]])
            policies = f"{InvalidText.REPLACE} or {InvalidText.SKIP}"
            remedy = f"set the policy to {policies} to go on"
            raise DataError(f"{where} {first + rows[0]}: found the token {found}, expected text in UTF-8; {remedy}")
        if self._invalid_text is InvalidText.SKIP:
            kept[rows] = False
            self._notes["rows left out: tokens that are not UTF-8"] += rows.size
        else:
            self._notes["tokens that were not UTF-8, wrong bytes replaced"] += rows.size
        return pa.array([token.decode("utf-8", "replace") for token in written], pa.large_string())

    def _first_of_each(self, path: Path, tokens: pa.LargeStringArray) -> pa.LargeStringArray:
        encoded = tokens.dictionary_encode()
        if len(encoded.dictionary) == len(tokens):
            return tokens
        # Codes are given in the order of first appearance, so these rows ascend.
        _, first = np.unique(encoded.indices.to_numpy(), return_index=True)
        self._notes["rows left out: tokens seen before"] += len(tokens) - first.size
        matrix = np.memmap(path, np.float32, "r+", HEADER_BYTES, (self._rows, self._dim))
        step = max(1, _CHUNK_BYTES // (4 * self._dim))
        for start in range(0, first.size, step):  # rows only move towards the start, so none is overwritten unread
            chosen = first[start : start + step]
            matrix[start : start + chosen.size] = matrix[chosen]
        matrix.flush()
        del matrix
        self._rows = int(first.size)
        with path.open("r+b") as file:
            file.truncate(HEADER_BYTES + 4 * self._rows * self._dim)
        return tokens.take(pa.array(first))


def header(rows: int, dim: int) -> bytes:
    """The header of a `.npy` file of float32 in C order, `HEADER_BYTES` long, so that what follows is aligned."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {dim}), }}"
    room = HEADER_BYTES - 10
    return b"\x93NUMPY\x01\x00" + room.to_bytes(2, "little") + text.ljust(room - 1).encode("ascii") + b"\n"


def read(folder: Path, *, name: str, dtype: np.dtype, files: list[Path], non_finite: NonFinite) -> Stored:
    """The matrix that a `Writer` wrote to a folder.

    Args:
        dtype: as the numbers were stored before.
    """
    known = json.loads((folder / _NOTES).read_text("utf-8"))
    rows, dim = known["rows"], known["dim"]
    matrix = np.memmap(folder / _MATRIX, np.float32, "r", HEADER_BYTES, (rows, dim))
    return Stored(
        name=name,
        rows=rows,
        dim=dim,
        dtype=dtype,
        read=lambda start, stop: matrix[start:stop],
        files=files,
        place=Place(folder / _MATRIX, HEADER_BYTES),
        tokens=(lambda: tokens_of(folder)) if (folder / _TOKENS).exists() else None,
        notes=known["notes"],
        finite=non_finite is not NonFinite.KEEP,
    )


def tokens_of(folder: Path) -> pa.LargeStringArray:
    """The tokens in a folder of the cache, mapped."""
    with pa.memory_map(str(folder / _TOKENS)) as file, pa.ipc.open_file(file) as ipc:
        return ipc.get_batch(0).column(0)


def as_float32(values: np.ndarray) -> np.ndarray:
    """The values as C-contiguous float32 in memory of their own; what float32 can't hold becomes infinite."""
    with np.errstate(over="ignore", invalid="ignore"):  # a signalling NaN is invalid
        return np.array(values, np.float32, order="C")


def non_finite_rows(values: np.ndarray) -> np.ndarray:
    """Numbers of the rows that hold a NaN or an infinity, int64, ascending."""
    # The sum of all is finite only if each value is (but it may overflow, so that it alone condemns nothing).
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(np.add.reduce(values, axis=None)):
            return np.empty(0, np.int64)
    return np.flatnonzero(~np.isfinite(values).all(axis=1))


def first_non_finite(row: np.ndarray) -> str:
    """The first number of a row that is not finite, and its place, for errors."""
    place = int(np.flatnonzero(~np.isfinite(row))[0])
    return f"{row[place]} at place {place + 1} of {row.size}"


def set_zero(values: np.ndarray, rows: np.ndarray) -> None:
    """Sets NaN and infinities in these rows to 0, in place."""
    if rows.size:
        some = values[rows]
        some[~np.isfinite(some)] = 0
        values[rows] = some
