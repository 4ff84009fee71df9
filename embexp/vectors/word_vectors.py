"""Vectors in the forms of word embeddings: GloVe, word2vec's text and binary forms, fastText.

A line of text is a token, then `dim` numbers, with blanks (spaces or tabs) between them; the token is all that stands
before the last `dim` fields, so it may hold blanks itself. Nothing else separates: not U+00A0, nor a form feed. A line
that begins with a blank and has numbers only, `dim` of them, has an empty token. Line ends are LF or CR LF. Whole lines
are parsed a block at a time, without a Python step per line.

word2vec's binary form, which word2vec.c writes and gensim reads, has a header line with the number of rows and the
dimension; then, for each row, the token, a space, and the numbers as little-endian float32, with or without a line end
behind them. The first space ends the token, except in a token of spaces alone.

The writer leaves out rows whose token is empty or white space alone.
"""

from __future__ import annotations

import itertools
import os
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pyarrow as pa

from embexp.errors import DataError, excerpt, plural
from embexp.specs.pretrained import Format, HeaderCount
from embexp.vectors.stored import Writer

_BLOCK_BYTES = 1 << 18  # what one thread parses at a time stays within a processor's cache
_LONGEST_LINE = 1 << 20  # while it is parsed, a line takes some 60 times its bytes
_LOOKED_AT = 1_000
_DIGITS = 19  # of a number that fits 64 bits; Python takes no number of thousands of digits
_BLANK = b" \t\r\n"
_BLANKS = (b" ", b"\t")
_MARK = b"\xef\xbb\xbf"
_BINARY_BLOCK_BYTES = 1 << 20  # rows of a few bytes take fifty times as much while they are taken apart
_LONGEST_TOKEN = 1 << 20
_LARGEST_DIM = 1 << 20
_SMALLEST_USUAL, _LARGEST_USUAL = 2.0**-30, 2.0**30  # numbers of vectors, but for 0
_FASTTEXT_MAGIC = (793712314).to_bytes(4, "little")
_SPACE, _TAB, _CR, _LF = b" \t\r\n"
Read = Callable[[int], bytes]
"""Returns the next bytes of a file: as many as asked for, fewer only at the end."""


def convert_text(
    name: str, read: Read, form: Format, writer_of: Callable[[int], Writer], header_count: HeaderCount
) -> None:
    """Parses text into a folder of the cache.

    Args:
        name: of the file: how errors begin.
        writer_of: makes the writer of rows of so many numbers.

    Raises:
        DataError: a line that can't be read, or that a policy doesn't allow; a header that doesn't fit.
    """
    blocks = _blocks(name, read)
    first = next(blocks, b"")
    if not first:
        raise DataError(f"{name}: found only whitespace, expected a token and its numbers in each line")
    header = _header(name, first, form)
    if header is None:
        expected, dim, line = None, _dim(name, first), 1
    else:
        (expected, dim), line = header, 2
        first = first[first.index(b"\n") + 1 :]
    rows = 0
    with closing(writer_of(dim)) as writer:
        for values, tokens in _parsed(name, first, blocks, dim, line):
            writer.add(values, tokens, f"{name}, line", line + rows)
            rows += len(values)
        if expected is not None and expected != rows and header_count is HeaderCount.ERROR:
            found = f"{plural(expected, 'row')} in the header line, and {plural(rows, 'row')} below it"
            remedy = "correct the header; if the file is complete, set header_count to ignore"
            raise DataError(f"{name}, line 1: found {found}, expected the same number; {remedy}")
        writer.finish(name)


def _blocks(name: str, read: Read) -> Iterator[bytes]:
    """The file as blocks of whole lines, each ending with a line end, without blank lines at the end of the file."""
    start = read(len(_MARK))
    begun = [] if start == _MARK else [start]  # of a line whose end is not read yet
    blank = False  # whether blank lines wait: they are wrong unless nothing follows them
    while chunk := read(_BLOCK_BYTES):
        end = chunk.rfind(b"\n") + 1
        if not end:
            begun.append(chunk)
            if (size := sum(map(len, begun))) > _LONGEST_LINE:
                raise DataError(f"{name}: found {size:,} bytes without a line end, expected lines of vectors")
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
        except MalformedError as error:
            raise DataError(f"{name}, line {line + error.line}: {error}") from None
        line += len(values)
        return values, tokens

    with ThreadPoolExecutor(workers, "parse") as pool:
        try:
            for data in itertools.chain([first] if first else [], blocks):
                waiting.append(pool.submit(parse, data, dim))
                if len(waiting) > workers + 1:
                    yield ready()
            while waiting:
                yield ready()
        finally:
            for future in waiting:
                future.cancel()


def _header(name: str, first: bytes, form: Format) -> tuple[int, int] | None:
    """Rows and dimension of the header line, if there is one."""
    if form is Format.GLOVE:
        return None
    fields = fields_of(first.split(b"\n", 1)[0])
    numbers = len(fields) == 2 and all(field.isdigit() and len(field) < _DIGITS for field in fields)
    rows, dim = map(int, fields) if numbers else (0, 0)
    if not dim:
        if form is Format.TEXT:
            return None
        remedy = f"if the file has no header line, its format is {Format.GLOVE}"
        raise _wrong_first_line(name, first, f"the number of rows and the dimension; {remedy}")
    usual = _usual_dim(first.split(b"\n")[1:_LOOKED_AT])
    if form is Format.TEXT and usual == 1 != dim:
        return None  # vectors of one number, the first of them of the token `rows`
    if form is Format.TEXT and usual == 2 != dim and first.startswith(_BLANKS):
        return None  # vectors of two numbers, the first of them of an empty token
    if usual and usual < dim:
        found = f"dimension {dim} in the header line, and {plural(usual, 'number')} in most lines below it"
        raise DataError(f"{name}, line 1: found {found}, expected the same number")
    return rows, dim


def _dim(name: str, first: bytes) -> int:
    """The dimension of a file without a header: the numbers that most of its first lines end with."""
    if usual := _usual_dim(first.split(b"\n")[:_LOOKED_AT]):
        return usual
    raise _wrong_first_line(name, first, "a token and its numbers")


def _wrong_first_line(name: str, first: bytes, expected: str) -> DataError:
    found = excerpt(first.split(b"\n", 1)[0][:80].decode("utf-8", "replace"))
    return DataError(f"{name}, line 1: found {found}, expected {expected}")


def _usual_dim(lines: list[bytes]) -> int:
    """How many numbers most lines end with, the first count of several; 0 if no line does."""
    # Whether the first field of a line that begins with a blank is its token is not known before the dimension is.
    clear = [line for line in lines if line.strip(_BLANK) and not line.startswith(_BLANKS)]
    counts = (trailing_numbers(fields_of(line)) for line in clear or lines)
    seen = Counter(count for count in counts if count).most_common(1)
    return seen[0][0] if seen else 0


class MalformedError(Exception):
    """A line that can't be read. Caught by whoever knows the file.

    Attributes:
        line: its number within the block, from 0.
    """

    def __init__(self, line: int, found: str, expected: str) -> None:
        super().__init__(f"found {found}, expected {expected}")
        self.line = line


def parse(data: bytes, dim: int) -> tuple[np.ndarray, pa.LargeStringArray]:
    """Parses whole lines, of which there is at least one; the last ends with a line end, too.

    Returns:
        float32 [lines, dim], and the token of each line, perhaps not UTF-8.

    Raises:
        MalformedError: the first line that can't be read.
    """
    text = np.frombuffer(data, np.uint8)
    cuts, line_ends = _separators(text)
    starts = np.empty_like(cuts)
    starts[0] = 0
    np.add(cuts[:-1], 1, out=starts[1:])
    filled = cuts > starts
    if filled.all():
        stops, ends = cuts, np.flatnonzero(line_ends) + 1
    else:  # blanks in a row, or at the end of lines
        starts, stops, ends = starts[filled], cuts[filled], np.cumsum(filled)[line_ends]
    fields = np.diff(ends, prepend=0)
    blank = _check_fields(data, starts, stops, ends, fields, dim)

    is_value = np.ones(starts.size, bool)
    regular = bool((fields == dim + 1).all())
    if regular:
        is_value[:: dim + 1] = False
    else:
        is_value = np.arange(starts.size) >= np.repeat(ends - dim, fields)
    first, last = ends - fields, ends - dim - 1
    last[blank] = first[blank]
    token_starts, token_stops = starts[first], stops[last]
    token_stops[blank] = token_starts[blank]
    tokens = _tokens(text, token_starts, token_stops)
    numbers = _numbers(data, starts, stops, is_value)
    if numbers is None:
        values = _carefully(data, dim)
    elif regular:
        values = np.ascontiguousarray(numbers.reshape(-1, dim + 1)[:, 1:])
    else:
        values = numbers[is_value].reshape(-1, dim)
    return values, tokens


def fields_of(line: bytes) -> list[bytes]:
    """The fields of one line, without its line end."""
    return [field for field in line.removesuffix(b"\r").replace(b"\t", b" ").split(b" ") if field]


def is_number(field: bytes) -> bool:
    """Whether a field is a number: what Python takes, without underscores."""
    try:
        float(field)
    except ValueError:
        return False
    return b"_" not in field


def trailing_numbers(fields: list[bytes]) -> int:
    """How many fields at the end of a line are numbers, without its first field."""
    count = 0
    for field in reversed(fields[1:]):
        if not is_number(field):
            break
        count += 1
    return count


def _separators(text: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Places of all separators, and which of them end a line."""
    cuts = np.flatnonzero(text <= _SPACE)
    found = text[cuts]
    line_ends = found == _LF
    separates = line_ends | (found == _SPACE)
    if not separates.all():  # a tab, a carriage return, or a control character in a token
        separates |= found == _TAB
        returns = np.flatnonzero(found == _CR)
        separates[returns] = text[cuts[returns] + 1] == _LF
        cuts, line_ends = cuts[separates], line_ends[separates]
    return cuts, line_ends


def _check_fields(
    data: bytes, starts: np.ndarray, stops: np.ndarray, ends: np.ndarray, fields: np.ndarray, dim: int
) -> list[int]:
    """Numbers of the lines with an empty token.

    Raises:
        MalformedError: a line has too few fields or too many numbers.
    """
    blank = []
    expected = f"a token and {plural(dim, 'number')}"
    unusual = np.flatnonzero(fields != dim + 1)
    for line in unusual.tolist():
        end, count = int(ends[line]), int(fields[line])
        if count == 0:
            raise MalformedError(line, "an empty line", expected)
        begin = int(starts[end - count])
        if count == dim and data[:begin].endswith(_BLANKS) and is_number(data[begin : stops[end - count]]):
            blank.append(line)
            continue
        if count <= dim:
            raise MalformedError(line, plural(count - 1, "field") + " after the first", expected)
        before = end - dim - 1
        if is_number(data[starts[before] : stops[before]]):
            all_fields = [data[starts[n] : stops[n]] for n in range(end - count, end)]
            numbers = trailing_numbers(all_fields)
            if numbers > dim:
                raise MalformedError(line, f"a token and {plural(numbers, 'number')}", expected)
    return blank


def _tokens(text: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> pa.LargeStringArray:
    lengths = stops - starts
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return pa.LargeStringArray.from_buffers(lengths.size, pa.py_buffer(offsets), pa.py_buffer(text[places]))


def _numbers(data: bytes, starts: np.ndarray, stops: np.ndarray, is_value: np.ndarray) -> np.ndarray | None:
    """Every field as float32, tokens as anything, [fields]; None if a number is not plain enough for Arrow."""
    # The block itself as an array of strings: fields, and between them what separates them. Arrow passes over what is
    # null, which are the separators and the tokens, so that nothing has to be copied.
    offsets = np.empty(2 * starts.size + 1, np.int32)
    offsets[:-1:2], offsets[1::2], offsets[-1] = starts, stops, stops[-1]
    valid = np.zeros(2 * starts.size, bool)
    valid[::2] = is_value
    buffers = [pa.py_buffer(each) for each in (np.packbits(valid, bitorder="little"), offsets, data)]
    written = pa.Array.from_buffers(pa.string(), valid.size, buffers, -1)
    try:
        numbers = written.cast(pa.float32())
    except pa.ArrowInvalid:
        return None
    return np.frombuffer(numbers.buffers()[1], np.float32, count=valid.size)[::2]


def _carefully(data: bytes, dim: int) -> np.ndarray:
    """The values of each line, with Python's reading of numbers."""
    lines = data.split(b"\n")[:-1]
    values = np.empty((len(lines), dim), np.float32)
    for number, line in enumerate(lines):
        fields = fields_of(line)[-dim:]
        for place, field in enumerate(fields):
            if not is_number(field):
                found = excerpt(field.decode("utf-8", "replace"))
                raise MalformedError(number, f"{found} at place {place + 1} of {dim}", "a number")
        with np.errstate(over="ignore"):
            values[number] = np.array([float(field) for field in fields])
    return values


def convert_word2vec_binary(
    name: str, read: Read, form: Format, writer_of: Callable[[int], Writer], header_count: HeaderCount
) -> None:
    """Reads word2vec's binary form into a folder of the cache.

    Raises:
        DataError: no such file, one that ends too early or goes on behind its last row, or a row that a policy
            doesn't allow.
    """
    start = read(256)
    rows, dim, rest = _binary_header(name, start)
    with closing(writer_of(dim)) as writer:
        done, ended = 0, False
        while not ended and (done < rows or header_count is HeaderCount.IGNORE):
            more = read(max(_BINARY_BLOCK_BYTES, 4 * dim))
            ended = not more
            rest += more
            limit = None if header_count is HeaderCount.IGNORE else rows - done
            tokens, vectors, used = _rows(name, rest, dim, done, limit, ended)
            if tokens:
                values = np.frombuffer(b"".join(vectors), "<f4").reshape(-1, dim).astype(np.float32)
                writer.add(values, _array(tokens), f"{name}, row", done + 1)
            rest = rest[used:]
            done += len(tokens)
        left, strict = rest.strip(b"\n"), header_count is HeaderCount.ERROR
        announced = f"{plural(rows, 'row')} of {plural(dim, 'number')}, as the header line says"
        if (left and (done < rows or not strict)) or (done < rows and strict):
            where = f"within row {done + 1:,}" if left else f"after {plural(done, 'row')}"
            found = f"the end of the file {where}, expected {announced}: the file is cut short"
            raise DataError(f"{name}: found {found}")
        if strict and (left or read(1)):
            remedy = "to read on, set header_count to ignore"
            raise DataError(f"{name}: found more after row {rows:,}, expected {announced}; {remedy}")
        writer.finish(name)


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
        remedy = ". This is a fastText model: use its .vec file"
    found = excerpt(line[:80])
    raise DataError(
        f"{name}: found {found} at the start, expected a line with the number of rows and the dimension{remedy}"
    )


def _rows(
    name: str, data: bytes, dim: int, done: int, limit: int | None, ended: bool
) -> tuple[list[bytes], list[memoryview], int]:
    """Tokens and numbers of the whole rows in `data`, and how many bytes they took.

    Args:
        done: how many rows came before `data`.
        limit: of the rows to take; None: all.
        ended: the file has no bytes after `data`.
    """
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
        if space == begin and data[begin + 1 : begin + 2] == b" ":
            last = begin + _spaces(data[begin : begin + _LONGEST_TOKEN]) - 1
            if last + 1 + size > end and not ended:
                break
            space = _separator(f"{name}, row {done + len(tokens) + 1}", data, begin, last, size)
        stop = space + 1 + size
        if stop > end:
            break
        tokens.append(data[begin:space])
        vectors.append(view[space + 1 : stop])
        place = stop
    return tokens, vectors, place


def _spaces(data: bytes) -> int:
    """How many spaces it begins with."""
    return len(data) - len(data.lstrip(b" "))


def _separator(where: str, data: bytes, first: int, last: int, size: int) -> int:
    """The place of the space before the numbers of a row that begins with several spaces.

    They are a token of spaces and the space after it, or an empty token, that space, and numbers whose first bytes
    are spaces. At a wrong place, the bytes of two numbers become one, mostly a very large or a very small one.

    Args:
        where: the file and the row.
        first: place of the first space.
        last: place of the last space.
        size: of the numbers, in bytes.

    Raises:
        DataError: several places are equally likely.
    """
    likely: Counter[int] = Counter()
    for place in range(first, last + 1):
        numbers = data[place + 1 : place + 1 + size]
        if len(numbers) == size:
            magnitudes = np.abs(np.frombuffer(numbers, "<f4"))
            usual = (magnitudes == 0) | ((magnitudes > _SMALLEST_USUAL) & (magnitudes < _LARGEST_USUAL))
            likely[place] = 1 + int(np.count_nonzero(usual)) + (data[place + 1 + size : place + 2 + size] == b"\n")
    best = likely.most_common(2)
    if len(best) == 2 and best[0][1] == best[1][1]:
        found = f"{last + 1 - first} spaces before the numbers, so token and numbers can't be told apart"
        raise DataError(f"{where}: found {found}, expected a token and one space; remove this row from the file")
    return best[0][0] if best else first


def _array(tokens: list[bytes]) -> pa.LargeStringArray:
    """Tokens that may not be UTF-8."""
    binary = pa.array(tokens, pa.large_binary())
    return pa.LargeStringArray.from_buffers(len(tokens), binary.buffers()[1], binary.buffers()[2])
