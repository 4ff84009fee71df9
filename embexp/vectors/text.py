"""Vectors in text: GloVe, word2vec's text form, fastText's `.vec`."""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from embexp.errors import DataError
from embexp.specs.vectors import Format, HeaderCount, InvalidText, NonFinite
from embexp.vectors import text_blocks
from embexp.vectors.compressed import Stream
from embexp.vectors.converted import Writer
from embexp.vectors.stored import counted, shown

_BLOCK_BYTES = 1 << 18  # what one thread parses at a time stays within a processor's cache
_LONGEST_LINE = 1 << 20  # while it is parsed, a line takes some 60 times its bytes
_LOOKED_AT = 1_000
_DIGITS = 19  # of a number that fits 64 bits; Python takes no number of thousands of digits
_BLANK = b" \t\r\n"
_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Header:
    """The first line of a file that has a header: how many rows, and their dim."""

    rows: int
    dim: int


def convert(
    stream: Stream,
    form: Format,
    folder: Path,
    *,
    invalid_text: InvalidText,
    non_finite: NonFinite,
    header_count: HeaderCount,
) -> None:
    """Parses text into a folder of the cache.

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
    writer = Writer(folder, dim, invalid_text=invalid_text, non_finite=non_finite)
    try:
        for parsed, lines in _parsed(stream.name, first, blocks, dim, line):
            writer.add(parsed.values, parsed.tokens, f"{stream.name}, line", line)
            line += lines
            rows += lines
        if header is not None and header.rows != rows and header_count is HeaderCount.ERROR:
            found = f"{counted(header.rows, 'row')} in the header line, and {counted(rows, 'row')} below it"
            remedy = "correct the header, or set header_count to ignore if the file is whole"
            raise DataError(f"{stream.name}, line 1: found {found}, expected the same number; {remedy}")
        writer.finish(stream.name)
    finally:
        writer.close()


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
) -> Iterator[tuple[text_blocks.Block, int]]:
    """What each block holds and its number of lines, in order, parsed by several threads."""
    workers = min(8, len(os.sched_getaffinity(0)))
    waiting: deque[Future[text_blocks.Block]] = deque()

    def ready() -> tuple[text_blocks.Block, int]:
        nonlocal line
        try:
            block = waiting.popleft().result()
        except text_blocks.MalformedError as error:
            raise DataError(f"{name}, line {line + error.line}: {error}") from None
        line += len(block.values)
        return block, len(block.values)

    with ThreadPoolExecutor(workers, "parse") as pool:
        try:
            if first:
                waiting.append(pool.submit(text_blocks.parse, first, dim))
            for data in blocks:
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
        found = shown(lines[0][:80].decode("utf-8", "replace"))
        remedy = f"if the file has no header line, its format is {Format.GLOVE}"
        raise DataError(f"{name}, line 1: found {found}, expected the number of rows and the dimension; {remedy}")
    if header is None:
        return None
    below = [text_blocks.trailing_numbers(text_blocks.fields_of(line)) for line in first.split(b"\n")[1:_LOOKED_AT]]
    usual = _usual(below) if below else 0
    if form is Format.TEXT and usual == 1 != header.dim:
        return None  # vectors of one number, the first of them of the token `header.rows`
    if usual and usual < header.dim:
        found = f"dimension {header.dim} in the header line, and {counted(usual, 'number')} in most lines below it"
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
        found = shown(first.split(b"\n", 1)[0][:80].decode("utf-8", "replace"))
        raise DataError(f"{name}, line 1: found {found}, expected a token and its numbers")
    return usual


def _usual(counts: list[int]) -> int:
    """The most frequent count above 0, the first of several; 0 if there is none."""
    seen = Counter(count for count in counts if count).most_common(1)
    return seen[0][0] if seen else 0
