"""From a path to a source of vectors: float32, with the policies kept, mapped where it can be, else converted once.

Several files of vectors as one: rows in order of preference, or side by side; written once into the cache.
"""

from __future__ import annotations

import contextlib
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from embexp.errors import DataError, read_by_library
from embexp.specs.fields import imported
from embexp.specs.pretrained import Format, HeaderCount, InvalidText, Join, NonFinite
from embexp.specs.tables import RowType
from embexp.system import arrays, caching, compressed, digests, files
from embexp.system.arrays import MappableRows
from embexp.system.parallel import Progress, quiet
from embexp.vectors import stored
from embexp.vectors.stored import ROW_TYPES, Stored, Wanted, Writer, as_float32, mended, non_finite_rows

BY_SUFFIX = {suffix: form for form in Format for suffix in form.reader.suffixes}
_VERIFIED_SOON = 1 << 24
"""Bytes that are compared with their checksums sooner than a note about that is on disk."""


class VectorSource(MappableRows, Protocol):
    """A matrix on disk, read by ranges of rows or mapped.

    Its `memory_map` converts a file that can't be mapped as it is, once, into the cache. To read some rows takes
    memory for little more than these. A source for a table of another type than float32 is mapped as that type.
    """

    @property
    def dtype(self) -> np.dtype:
        """Type as stored; rows are read as float32."""

    @property
    def scales(self) -> np.ndarray | None:
        """What the numbers of each row of an int8 mapping are multiplied by: float32 [rows]; None: 1."""

    @property
    def tokens(self) -> pa.LargeStringArray | None:
        """The word of each row, [rows]; None when the file has none.

        Those of text and word2vec files are distinct; elsewhere a token may be repeated, and its first row counts.
        """

    @property
    def digest(self) -> str:
        """SHA-256 of the content, independent of the file's name."""


class FileSource:
    """A `VectorSource` over a matrix in a file.

    Args:
        cache: folder for converted files, and for facts about files.
        non_finite: what becomes of NaN and infinities. A mapped file is checked once, and the result cached; not under
            KEEP.
        token_column: of several columns, or datasets, of the file that could hold the tokens, the one that was asked
            for: a matrix is converted with its tokens.
    """

    def __init__(
        self,
        matrix: Stored,
        *,
        cache: Path,
        non_finite: NonFinite = NonFinite.ERROR,
        token_column: str | None = None,
        progress: Progress = quiet,
    ) -> None:
        self._stored, self._cache, self._non_finite = matrix, cache, non_finite
        self._token_column = token_column
        self._progress = progress
        self._name, self._dtype = matrix.name, matrix.dtype
        self._mapped_as = RowType.FLOAT32
        if non_finite is NonFinite.SKIP and not matrix.finite and self._non_finite_rows.size:
            if matrix.tokens is None:
                raise self._not_finite(
                    "but the file has no tokens, so its rows are identified by number and none can be removed; "
                    f"set the policy to {NonFinite.ZERO}, or name the tokens"
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
        return self._dtype

    def map_as(self, kind: RowType) -> None:
        """Has rows mapped as another type than float32, and read as what that holds of them; before any is."""
        self._mapped_as = kind

    @property
    def scales(self) -> np.ndarray | None:
        """What the numbers of each row of an int8 mapping are multiplied by: float32 [rows]; None: 1."""
        return None if self._mapped_as is not RowType.INT8 else self._scales

    @cached_property
    def _scales(self) -> np.ndarray | None:
        return None if self._stored.scales is None else self._stored.scales()

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
        """Whether the file itself could be mapped, by a table of its type, if all its numbers may be kept."""
        return self._stored.place is not None and self._stored.place.offset % arrays.ALIGNMENT == 0

    def read(self, start: int, stop: int) -> np.ndarray:
        """Rows start to stop, float32 [stop - start, dim], in memory of their own.

        Raises:
            DataError: a number that the policy doesn't allow, or a stored checksum that differs.
            IndexError: there are no such rows.
        """
        if not 0 <= start <= stop <= self.rows:
            raise IndexError(f"{self._stored.name} has no rows {start} to {stop}, there are {self.rows}")
        self._verified  # noqa: B018  a property that is computed once
        if self._mapped_as is not RowType.FLOAT32 and self._stored.dtype != ROW_TYPES[self._mapped_as]:
            self.memory_map()
        values = self._read(start, stop)
        if not self._stored.finite:
            mended(values, self._non_finite, f"{self._stored.name}, row", start + 1)
        return values

    def view(self) -> np.ndarray | None:
        """The matrix mapped from its file at any alignment, float32 [rows, dim], only to read; None if it can't be.

        Raises:
            DataError: a stored checksum differs.
        """
        self._verified  # noqa: B018  a property that is computed once
        place = self._stored.place
        if place is None or place.offset % 4 or self._stored.dtype != np.float32:
            return None
        return np.asarray(np.memmap(place.path, np.float32, "c", place.offset, (self.rows, self.dim)))

    def memory_map(self) -> np.ndarray:
        """The matrix as a mapping: [rows, dim], C-contiguous, aligned to 64 bytes, a plain `np.ndarray`.

        It is float32, or of the type of `map_as`. Writing to it changes nothing on disk. What can't be mapped as it is
        (another type, another alignment, rows that a policy mends) is converted once into the cache.

        Raises:
            DataError: a number that the policy doesn't allow, or a stored checksum that differs.
        """
        self._verified  # noqa: B018  a property that is computed once
        dtype = ROW_TYPES[self._mapped_as]
        if not self.in_place or self._stored.dtype != dtype or not self._clean:
            self._stored = self._converted()
            self.__dict__.pop("_scales", None)
        place = self._stored.place
        assert place is not None  # what was converted can be mapped
        return np.asarray(np.memmap(place.path, dtype, "c", place.offset, (self.rows, self.dim)))

    @property
    def _clean(self) -> bool:
        """Whether all numbers may be used as they are."""
        if self._stored.finite or self._non_finite is NonFinite.KEEP:
            return True
        if not self._non_finite_rows.size:
            return True
        if self._non_finite is NonFinite.ERROR:
            raise self._not_finite()
        return False

    @cached_property
    def _verified(self) -> bool:
        """Compares the stored checksums with the data; of a large matrix, once per content."""
        check = self._stored.check
        if check is not None and 4 * self.rows * self.dim <= _VERIFIED_SOON:
            check()
        elif check is not None:
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

    def _not_finite(self, *rest: str) -> DataError:
        """The error of the first row that is not finite."""
        row = int(self._non_finite_rows[0])
        values = self._read(row, row + 1)
        return stored.not_finite(values[0], f"{self._stored.name}, row {row + 1}", *rest)

    def _converted(self) -> Stored:
        """The matrix in the cache, as it is mapped and mended by the policy."""
        whole, tokens, kind = self._stored, self.tokens, self._mapped_as
        scales = self._scales if kind is RowType.INT8 else None  # with scales, only its place does not fit
        read = self._read if scales is None else lambda start, stop: np.array(whole.read(start, stop))

        def convert(folder: Path) -> None:
            writer = Writer(folder, self.dim, non_finite=self._non_finite, distinct=False, stored_as=kind)
            with closing(writer):
                for start, values in self._chunks("converting", read):
                    each = slice(start, start + len(values))
                    some = None if tokens is None else tokens[each]
                    writer.add(values, some, f"{whole.name}, row", start + 1, None if scales is None else scales[each])
                writer.finish(whole.name)

        key = self._key(self._non_finite.value, *([] if kind is RowType.FLOAT32 else [kind.value]))
        folder = caching.folder(self._cache, "vectors", key, convert)
        self.__dict__.pop("tokens", None)
        files = list(whole.files)
        return stored.read(folder, name=whole.name, files=files, non_finite=self._non_finite, stored_as=kind)

    def _read(self, start: int, stop: int) -> np.ndarray:
        """Rows as float32, in memory of their own."""
        scales = self._scales
        return as_float32(self._stored.read(start, stop), None if scales is None else scales[start:stop])

    def _chunks(
        self, doing: str, read: Callable[[int, int], np.ndarray] | None = None
    ) -> Iterator[tuple[int, np.ndarray]]:
        step = max(1, stored.CHUNK_BYTES // (4 * self.dim))
        for start in range(0, self.rows, step):
            yield start, (read or self._read)(start, min(self.rows, start + step))
            self._progress(f"{doing} {Path(self._name).name}", min(1.0, (start + step) / self.rows))

    def _key(self, *more: str) -> str:
        """Cache key of this matrix's content and of its conversion."""
        part = [self._name.removeprefix(str(self._stored.files[0])), self.rows, self.dim, self._dtype.str]
        part += [] if self._token_column is None else [self._token_column]
        return digests.of_json([stored.VERSION, self.digest, part, *more])


def open_vectors(
    path: Path,
    *,
    cache: Path,
    format: Format | None = None,
    key: str | None = None,
    token_column: str | None = None,
    tokens_file: Path | None = None,
    invalid_text: InvalidText = InvalidText.ERROR,
    non_finite: NonFinite = NonFinite.ERROR,
    header_count: HeaderCount = HeaderCount.ERROR,
    progress: Progress = quiet,
) -> FileSource:
    """Opens a file of vectors. Text and word2vec's binary form are converted into the cache the first time.

    Args:
        path: of the file; of a checkpoint: its prefix, its `.index` file or its folder.
        cache: folder for converted files, and for facts about files.
        format: of the file; None: by its suffix.
        key: which matrix of a file that may hold several: array, dataset, tensor, column of lists, file in a zip.
        token_column: column of tokens of a Parquet or Arrow file, dataset of tokens of an HDF5 file.
        tokens_file: a token per line for a file that has none; None: `NAME.tokens.txt` next to it, if there is one.
        invalid_text: what becomes of tokens that are not UTF-8, in text and in word2vec's binary form.
        header_count: what becomes of a header line that names a wrong number of rows.

    Raises:
        DataError: the file is missing or not of its format, or a policy forbids its content.
    """
    refuse_pickle(path)
    form = Format(format) if format else format_of(path)
    if token_column is not None and not form.reader.token_column:
        listed = ", ".join(each for each in Format if each.reader.token_column)
        raise DataError(f"{path}: only {listed} can have a token_column, but this is {form}")
    if form is not Format.CHECKPOINT and (fault := files.fault_of(path)):
        raise DataError(f"{path}: {fault}")
    # A reader is imported when it is needed: h5py and Parquet's module alone take longer than `vectors info` does.
    read = imported(form.reader.implementation)
    packed = compressed.suffix_of(path)

    def convert(folder: Path) -> None:
        writer = partial(Writer, folder, invalid_text=invalid_text, non_finite=non_finite)
        member = _member(path, key) if packed == ".zip" else None
        size = max(1, path.stat().st_size)
        with compressed.opened(path, member) as (data, file):

            def next_bytes(count: int) -> bytes:
                piece = data.read(count)
                progress(f"parsing {path.name}", min(1.0, file.tell() / size))
                return piece

            read(str(path) if member is None else f"{path}: {member}", next_bytes, form, writer, header_count)

    if form.reader.streamed:
        if key is not None and packed != ".zip":
            raise DataError(f"{path}: found a key, {key!r}, but a file of format {form} holds one matrix only")
        digest = caching.file_digest(path, cache=cache, progress=progress)
        how = [stored.VERSION, digest, packed, form, key, invalid_text, non_finite, header_count]
        folder = caching.folder(cache, "vectors", digests.of_json(how), convert)
        found = stored.read(folder, name=str(path), files=[path], non_finite=non_finite)
    elif packed:
        listed = ", ".join(each for each in Format if each.reader.streamed)
        raise DataError(f"{path}: found a compressed file of format {form}; only these may be: {listed}")
    else:
        found = read(path, Wanted(cache, key, token_column, progress))
    found = _with_tokens(path, found, tokens_file)
    return FileSource(found, cache=cache, non_finite=non_finite, token_column=token_column, progress=progress)


_PICKLE = re.compile(rb"\x80[\x02-\x05]")
"""How a pickle begins, of each protocol that is in bytes: its mark, and the protocol."""
_LOOKED_AT = 1 << 16


class PickledError(DataError):
    """A file is a pickle; its rule does not name it."""

    def __init__(self, path: Path, what: str, lines: Sequence[str]) -> None:
        """Takes what the file is, and lines of Python."""
        rule = f"found {what}, which can run arbitrary code when it is read"
        remedy = "\n      ".join(["if you trust it, convert it with Python:", *lines])
        super().__init__(f"{path}: {rule}", remedy)
        self.rule = rule


def refuse_pickle(path: Path) -> None:
    """Looks whether a file has pickled objects, as those of gensim and PyTorch do. They are code, which is not run.

    Raises:
        PickledError: it has.
    """
    if not path.is_file():
        return
    with files.opened(path) as file:
        start = file.read(_LOOKED_AT)
    name = out = str(path)  # out gets one more suffix: the file itself may end in .bin
    if (of_torch := _of_torch(path, start)) is not None:
        what, lines = "a file of PyTorch, with a pickle in it", _torch_lines(name, out, of_torch)
    elif not _PICKLE.match(start):
        return
    elif b"gensim" in start:
        place = start.find(b"gensim")  # the module of the pickled class, whose name follows
        of_model = b"KeyedVectors" not in start[place : place + 80]
        loaded = f"KeyedVectors.load({name!r}){'.wv' if of_model else ''}"
        # Not as word2vec, in which no token may have a blank.
        tokens = f"Path({out + '.tokens.txt'!r}).write_text('\\n'.join(found.index_to_key), 'utf-8')"
        what = "a pickle of gensim"
        lines = ["import numpy; from pathlib import Path; from gensim.models import KeyedVectors"]
        lines += [f"found = {loaded}", f"numpy.save({out + '.npy'!r}, found.vectors); {tokens}"]
    else:
        what = "a pickle of Python"
        lines = [f"import numpy, pickle; found = pickle.load(open({name!r}, 'rb'))"]
        lines += [f"numpy.save({out + '.npy'!r}, found)  # if it is an array"]
    raise PickledError(path, what, lines)


def _torch_lines(name: str, out: str, pickled: bytes) -> list[str]:
    """The Python that saves the matrices of a tensor, a state dict, a checkpoint with some in it, or a whole module."""
    module = b"torch.nn.modules" in pickled  # a class, which PyTorch refuses to load as weights only
    loaded = f"torch.load({name!r}, map_location='cpu', weights_only={not module}){'.state_dict()' if module else ''}"
    return [
        f"import numpy, torch; found = {loaded}",
        "parts = lambda name, part: [pair for key, each in part.items() for pair in parts(f'{name}{key}.', each)]"
        " if isinstance(part, dict) else [(name[:-1] or 'vectors', part)]",
        f"numpy.savez({out + '.npz'!r}, **{{name: each.float().numpy(force=True) for name, each in parts('', found)"
        " if torch.is_tensor(each) and each.is_floating_point() and each.dim() == 2})",
    ]


def _of_torch(path: Path, start: bytes) -> bytes | None:
    """How the pickle in a file of PyTorch begins; None: it is no such file.

    The file is a zip archive with data.pkl, or, before PyTorch 1.6, a pickle that begins with a magic number.
    """
    if start.startswith(b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19."):
        return start
    if not start.startswith(b"PK"):
        return None
    with contextlib.suppress(zipfile.BadZipFile), files.opened(path) as file, zipfile.ZipFile(file) as archive:
        for member in archive.namelist():
            if member.rpartition("/")[2] == "data.pkl":
                with archive.open(member) as pickled:
                    return pickled.read(_LOOKED_AT)
    return None


def format_of(path: Path) -> Format:
    """The format that a path's suffix stands for; of a compressed file, the suffix before.

    Raises:
        DataError: none.
    """
    from embexp.system.tensor_bundle import index as bundle_index

    refuse_pickle(path)
    suffix = compressed.form_of(path)
    if compressed.suffix_of(path) == ".zip" and suffix not in BY_SUFFIX and path.is_file():
        suffix = Path(_member(path, None)).suffix.lower()
    if suffix in BY_SUFFIX and not path.is_dir():
        return BY_SUFFIX[suffix]
    if bundle_index.find(path) is not None:
        return Format.CHECKPOINT
    if path.is_dir():
        raise DataError(f"{path}: found a folder without a checkpoint, expected a file of vectors")
    if fault := files.fault_of(path):
        raise DataError(f"{path}: {fault}")
    raise DataError(
        f"{path}: the suffix {suffix!r} does not determine the format; set it to one of {', '.join(Format)}"
    )


def _member(path: Path, key: str | None) -> str:
    """The name of the file to read in a zip archive; `key`, or that of the only one."""
    with (
        read_by_library(f"{path}: found an incomplete zip archive; is it cut short?"),
        files.opened(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        names = compressed.members(archive)
    if key is not None and key not in names:
        raise DataError(f"{path}: found no file {key!r}; the files in it are {', '.join(names) or 'none'}")
    if key is None and len(names) != 1:
        raise DataError(
            f"{path}: found {len(names)} files in the archive, expected a key that says which: {', '.join(names)}"
        )
    return key or names[0]


def _with_tokens(path: Path, found: Stored, tokens_file: Path | None) -> Stored:
    """With the tokens of a file of their own: the one that is named, or the one next to a file without tokens."""
    if tokens_file is None:
        tokens_file = stored.tokens_path(path)
        if found.tokens is not None or not tokens_file.is_file():
            return found
    elif found.tokens is not None:
        raise DataError(f"{path}: found tokens in the file itself, so it can't have a tokens_file as well")
    elif fault := files.fault_of(tokens_file):
        raise DataError(f"{tokens_file}: {fault} of tokens")
    tokens = partial(stored.read_token_file, tokens_file, found.rows)
    return replace(found, tokens=tokens, files=[*found.files, tokens_file])


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
                f"{name}: found rows of {other.dim} numbers, but those of {before} have {first.dim}; files in "
                f"order of preference need equally long rows, and others can be joined by columns (join=columns)"
            )
        if (other.tokens is None) != (first.tokens is None):
            with_, without = (name, before) if first.tokens is None else (before, name)
            raise DataError(f"{without}: found no tokens, but {with_} has some; give it a tokens_file")
        if first.tokens is None and how is Join.PREFERENCE:
            raise DataError(
                f"{name}: found no tokens, so each row would belong to the same row of {before}; give both "
                f"files a tokens_file"
            )
        if first.tokens is None and other.rows != first.rows:
            raise DataError(
                f"{name}: found {other.rows:,} rows, expected {first.rows:,}as in {before}; without tokens, "
                f"rows are matched by number"
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
