"""Vectors in the forms of word embeddings: GloVe, word2vec's text and binary forms, fastText; plain or compressed.

Vectors in word2vec's binary form. A header line with the number of rows and the dimension; then, for each row, the
token, a space, and the numbers as little-endian float32, with or without a line end behind them. This is what
word2vec.c writes and gensim reads.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import os
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import pyarrow as pa

from embexp.errors import DataError, read_by_library
from embexp.specs.pretrained import Format, HeaderCount
from embexp.system import files
from embexp.system.parallel import Progress, quiet
from embexp.vectors import text_blocks
from embexp.vectors.file_source import Writer
from embexp.vectors.stored import excerpt, plural

_BLOCK_BYTES = 1 << 18  # what one thread parses at a time stays within a processor's cache
_LONGEST_LINE = 1 << 20  # while it is parsed, a line takes some 60 times its bytes
_LOOKED_AT = 1_000
_DIGITS = 19  # of a number that fits 64 bits; Python takes no number of thousands of digits
_BLANK = b" \t\r\n"
_MARK = b"\xef\xbb\xbf"
_BINARY_BLOCK_BYTES = 1 << 20  # rows of a few bytes take fifty times as much while they are taken apart
_LONGEST_TOKEN = 1 << 20
_LARGEST_DIM = 1 << 20
_FASTTEXT_MAGIC = (793712314).to_bytes(4, "little")
COMPRESSED_SUFFIXES = (".gz", ".zip")
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Header:
    """The first line of a file that has a header: how many rows, and their dim."""

    rows: int
    dim: int


def convert_text(stream: Stream, form: Format, writer_of: Callable[[int], Writer], header_count: HeaderCount) -> None:
    """Parses text into a folder of the cache.

    Args:
        writer_of: makes the writer of rows of so many numbers.
        header_count: what becomes of a header line that names a wrong number of rows.

    Raises:
        DataError: a line that can't be read, or that a policy doesn't allow; a header that doesn't fit.
    """
    blocks = _blocks(stream)
    first = next(blocks, b"")
    if not first:
        raise DataError(f"{stream.name}: found nothing but blanks, expected a token and its numbers in each line")
    header = _header(stream.name, first, form)
    line = 1
    if header is not None:
        first = first[first.index(b"\n") + 1 :]
        line = 2
        dim = header.dim
    else:
        dim = _dim(stream.name, first)
    rows = 0
    with closing(writer_of(dim)) as writer:
        for values, tokens in _parsed(stream.name, first, blocks, dim, line):
            writer.add(values, tokens, f"{stream.name}, line", line + rows)
            rows += len(values)
        if header is not None and header.rows != rows and header_count is HeaderCount.ERROR:
            found = f"{plural(header.rows, 'row')} in the header line, and {plural(rows, 'row')} below it"
            remedy = "correct the header, or set header_count to ignore if the file is whole"
            raise DataError(f"{stream.name}, line 1: found {found}, expected the same number; {remedy}")
        writer.finish(stream.name)


def _blocks(stream: Stream) -> Iterator[bytes]:
    """The file as blocks of whole lines, each ending with a line end, without blank lines at the end of the file."""
    start = stream.read(len(_MARK))
    begun = [] if start == _MARK else [start]  # of a line whose end is not read yet
    blank = False  # whether blank lines wait: they are wrong unless nothing follows them
    while chunk := stream.read(_BLOCK_BYTES):
        end = chunk.rfind(b"\n") + 1
        if not end:
            begun.append(chunk)
            if (size := sum(map(len, begun))) > _LONGEST_LINE:
                raise DataError(f"{stream.name}: found {size:,} bytes without a line end, expected lines of vectors")
            continue
        whole = b"".join([*begun, chunk[:end]])
        begun = [chunk[end:]]
        filled = len(whole.rstrip(_BLANK))
        if filled:
            end = whole.find(b"\n", filled) + 1
            yield b"\n" + whole[:end] if blank else whole[:end]
        blank = blank or not filled or end < len(whole)
    if rest := b"".join(begun).rstrip(_BLANK):
        yield b"\n" + rest + b"\n" if blank else rest + b"\n"


def _parsed(
    name: str, first: bytes, blocks: Iterator[bytes], dim: int, line: int
) -> Iterator[tuple[np.ndarray, pa.LargeStringArray]]:
    """Values and tokens of each block, in order, parsed by several threads."""
    workers = min(8, len(os.sched_getaffinity(0)))
    waiting: deque[Future[tuple[np.ndarray, pa.LargeStringArray]]] = deque()

    def ready() -> tuple[np.ndarray, pa.LargeStringArray]:
        nonlocal line
        try:
            values, tokens = waiting.popleft().result()
        except text_blocks.MalformedError as error:
            raise DataError(f"{name}, line {line + error.line}: {error}") from None
        line += len(values)
        return values, tokens

    with ThreadPoolExecutor(workers, "parse") as pool:
        try:
            for data in itertools.chain([first] if first else [], blocks):
                waiting.append(pool.submit(text_blocks.parse, data, dim))
                if len(waiting) > workers + 1:
                    yield ready()
            while waiting:
                yield ready()
        finally:
            for future in waiting:
                future.cancel()


def _header(name: str, first: bytes, form: Format) -> Header | None:
    """The header line, if there is one."""
    if form is Format.GLOVE:
        return None
    lines = first.split(b"\n", 2)
    fields = text_blocks.fields_of(lines[0])
    header = _as_header(fields)
    if form is not Format.TEXT and header is None:
        found = excerpt(lines[0][:80].decode("utf-8", "replace"))
        remedy = f"if the file has no header line, its format is {Format.GLOVE}"
        raise DataError(f"{name}, line 1: found {found}, expected the number of rows and the dimension; {remedy}")
    if header is None:
        return None
    below = [text_blocks.trailing_numbers(text_blocks.fields_of(line)) for line in first.split(b"\n")[1:_LOOKED_AT]]
    usual = _usual(below) if below else 0
    if form is Format.TEXT and usual == 1 != header.dim:
        return None  # vectors of one number, the first of them of the token `header.rows`
    if usual and usual < header.dim:
        found = f"dimension {header.dim} in the header line, and {plural(usual, 'number')} in most lines below it"
        raise DataError(f"{name}, line 1: found {found}, expected the same number")
    return header


def _as_header(fields: list[bytes]) -> Header | None:
    if len(fields) != 2 or not all(field.isdigit() and len(field) < _DIGITS for field in fields):
        return None
    rows, dim = map(int, fields)
    return Header(rows, dim) if dim else None


def _dim(name: str, first: bytes) -> int:
    """The dimension of a file without a header: the numbers that most of its first lines end with."""
    usual = _usual(
        [text_blocks.trailing_numbers(text_blocks.fields_of(line)) for line in first.split(b"\n")[:_LOOKED_AT]]
    )
    if not usual:
        found = excerpt(first.split(b"\n", 1)[0][:80].decode("utf-8", "replace"))
        raise DataError(f"{name}, line 1: found {found}, expected a token and its numbers")
    return usual


def _usual(counts: list[int]) -> int:
    """The most frequent count above 0, the first of several; 0 if there is none."""
    seen = Counter(count for count in counts if count).most_common(1)
    return seen[0][0] if seen else 0


def convert_word2vec_binary(
    stream: Stream, form: Format, writer_of: Callable[[int], Writer], header_count: HeaderCount
) -> None:
    """Reads word2vec's binary form into a folder of the cache.

    Raises:
        DataError: no such file, one that ends too early or goes on behind its last row, or a row that a policy
            doesn't allow.
    """
    start = stream.read(256)
    rows, dim, rest = _binary_header(stream.name, start)
    with closing(writer_of(dim)) as writer:
        done, ended = 0, False
        while not ended and (done < rows or header_count is HeaderCount.IGNORE):
            more = stream.read(max(_BINARY_BLOCK_BYTES, 4 * dim))
            ended = not more
            rest += more
            limit = None if header_count is HeaderCount.IGNORE else rows - done
            tokens, vectors, used = _rows(stream.name, rest, dim, done, limit)
            if tokens:
                values = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, dim).astype(np.float32)
                writer.add(values, _array(tokens), f"{stream.name}, row", done + 1)
            rest = rest[used:]
            done += len(tokens)
        left = rest.strip(b"\n")
        if left and (done < rows or header_count is HeaderCount.IGNORE):
            found = f"the end of the file within row {done + 1:,}"
            raise DataError(f"{stream.name}: found {found}, expected {_announced(rows, dim)}: the file is cut short")
        if done < rows and header_count is HeaderCount.ERROR:
            found = f"the end of the file after {plural(done, 'row')}"
            raise DataError(f"{stream.name}: found {found}, expected {_announced(rows, dim)}: the file is cut short")
        if header_count is HeaderCount.ERROR and (left or stream.read(1)):
            found = f"more behind row {rows:,}"
            remedy = "set header_count to ignore to read on"
            raise DataError(f"{stream.name}: found {found}, expected {_announced(rows, dim)}; {remedy}")
        writer.finish(stream.name)


def _binary_header(name: str, start: bytes) -> tuple[int, int, bytes]:
    """Rows, dim, and what follows the header line."""
    line, end, rest = start.partition(b"\n")
    fields = line.split()
    if end and len(fields) == 2 and all(field.isdigit() for field in fields) and int(fields[1]):
        if int(fields[1]) > _LARGEST_DIM:
            raise DataError(
                f"{name}: found the dimension {excerpt(fields[1].decode())}, expected at most {_LARGEST_DIM:,}"
            )
        return int(fields[0]), int(fields[1]), rest
    remedy = ""
    if start.startswith(_FASTTEXT_MAGIC):
        remedy = ". This is a model of fastText: take the .vec file that belongs to it"
    found = excerpt(line[:80])
    raise DataError(
        f"{name}: found {found} at the start, expected a line with the number of rows and the dimension{remedy}"
    )


def _announced(rows: int, dim: int) -> str:
    return f"{plural(rows, 'row')} of {plural(dim, 'number')}, as the header line says"


def _rows(name: str, data: bytes, dim: int, done: int, limit: int | None) -> tuple[list[bytes], list[memoryview], int]:
    """Tokens and numbers of the whole rows in `data`, and how many bytes they took."""
    tokens: list[bytes] = []
    vectors: list[memoryview] = []
    size, end, view = 4 * dim, len(data), memoryview(data)
    place = 0
    while limit is None or len(tokens) < limit:
        begin = place + 1 if data[place : place + 1] == b"\n" else place
        space = data.find(b" ", begin, begin + _LONGEST_TOKEN)
        if space < 0:
            if end - begin >= _LONGEST_TOKEN:
                found = f"no space within {_LONGEST_TOKEN:,} bytes at row {done + len(tokens) + 1:,}"
                raise DataError(f"{name}: found {found}, expected a token and a space before the numbers")
            break
        stop = space + 1 + size
        if stop > end:
            break
        tokens.append(data[begin:space])
        vectors.append(view[space + 1 : stop])
        place = stop
    return tokens, vectors, place


def _array(tokens: list[bytes]) -> pa.LargeStringArray:
    """Tokens that may not be UTF-8."""
    binary = pa.array(tokens, pa.large_binary())
    return pa.LargeStringArray.from_buffers(len(tokens), binary.buffers()[1], binary.buffers()[2])


class Stream:
    """Bytes of a file, in order.

    Attributes:
        name: of the file, and of the one in the archive: how errors begin.
    """

    def __init__(self, name: str, data: IO[bytes], file: IO[bytes], size: int, progress: Progress) -> None:
        self.name = name
        self._data, self._file, self._size, self._progress = data, file, size, progress
        self._given = 0

    def read(self, count: int) -> bytes:
        """The next bytes: as many as asked for, fewer only at the end.

        Raises:
            DataError: the compressed data ends too early or is broken.
        """
        pieces, missing = [], count
        while missing:
            try:
                piece = self._data.read(min(missing, _PIECE_BYTES))  # takes memory for what is asked for
            except EOFError:
                raise DataError(
                    f"{self.name}: found the end of the file after {self._given:,} bytes of text, "
                    f"expected more compressed data: the file is cut short"
                ) from None
            except Exception as error:  # each compression of a zip has errors of its own
                raise DataError(
                    f"{self.name}: found broken compressed data after {self._given:,} bytes ({error}), "
                    f"expected a whole file"
                ) from None
            if not piece:
                break
            pieces.append(piece)
            missing -= len(piece)
            self._given += len(piece)
        self._progress(f"parsing {Path(self.name).name}", min(1.0, self._file.tell() / max(1, self._size)))
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)


@contextlib.contextmanager
def open_stream(path: Path, key: str | None, progress: Progress = quiet) -> Iterator[Stream]:
    """Opens a file, decompressed by its suffix.

    Args:
        key: which file of a zip archive; None: the only one.
        progress: called as reading goes on.

    Raises:
        DataError: an archive that can't be read, or that doesn't hold the one file.
    """
    size = path.stat().st_size
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(files.opened(path))
        match path.suffix.lower():
            case ".gz":
                packed = stack.enter_context(gzip.GzipFile(fileobj=file))
                yield Stream(str(path), packed, file, size, progress)  # type: ignore[arg-type]
            case ".zip":
                member = member_of(path, key)
                with read_by_library(f"{path}: {member}"):
                    archive = stack.enter_context(zipfile.ZipFile(file))
                    data = stack.enter_context(archive.open(member))
                yield Stream(f"{path}: {member}", data, file, size, progress)
            case _:
                yield Stream(str(path), file, file, size, progress)


def member_of(path: Path, key: str | None) -> str:
    """The name of the file to read in a zip archive.

    Raises:
        DataError: the archive can't be read, has no file of that name, or several and no name was given.
    """
    with (
        read_by_library(f"{path}: found no whole zip archive, is it cut short?"),
        files.opened(path) as file,
        zipfile.ZipFile(file) as archive,
    ):
        names = [each.filename for each in archive.infolist() if not each.is_dir()]
    names = [name for name in names if not name.startswith("__MACOSX/")]
    if key is not None:
        if key in names:
            return key
        raise DataError(f"{path}: found no file {key!r}; the files in it are {', '.join(names) or 'none'}")
    if len(names) != 1:
        raise DataError(
            f"{path}: found {len(names)} files in the archive, expected a key that says which: {', '.join(names)}"
        )
    return names[0]
