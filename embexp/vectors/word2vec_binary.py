"""Vectors in word2vec's binary form.

A header line with the number of rows and the dimension; then, for each row, the token, a space, and the numbers as
little-endian float32, with or without a line end behind them. This is what word2vec.c writes and gensim reads.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from embexp.errors import DataError
from embexp.specs.vectors import HeaderCount, InvalidText, NonFinite
from embexp.vectors.compressed import Stream
from embexp.vectors.converted import Writer
from embexp.vectors.stored import counted, shown

_BLOCK_BYTES = 1 << 20  # rows of a few bytes take fifty times as much while they are taken apart
_LONGEST_TOKEN = 1 << 20
_LARGEST_DIM = 1 << 20
_FASTTEXT_MAGIC = (793712314).to_bytes(4, "little")


def convert(
    stream: Stream, folder: Path, *, invalid_text: InvalidText, non_finite: NonFinite, header_count: HeaderCount
) -> None:
    """Reads the rows into a folder of the cache.

    Raises:
        DataError: no such file, one that ends too early or goes on behind its last row, or a row that a policy
            doesn't allow.
    """
    start = stream.read(256)
    rows, dim, rest = _header(stream.name, start)
    writer = Writer(folder, dim, invalid_text=invalid_text, non_finite=non_finite)
    try:
        done, ended = 0, False
        while not ended and (done < rows or header_count is HeaderCount.IGNORE):
            more = stream.read(max(_BLOCK_BYTES, 4 * dim))
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
            found = f"the end of the file after {counted(done, 'row')}"
            raise DataError(f"{stream.name}: found {found}, expected {_announced(rows, dim)}: the file is cut short")
        if header_count is HeaderCount.ERROR and (left or stream.read(1)):
            found = f"more behind row {rows:,}"
            remedy = "set header_count to ignore to read on"
            raise DataError(f"{stream.name}: found {found}, expected {_announced(rows, dim)}; {remedy}")
        writer.finish(stream.name)
    finally:
        writer.close()


def _header(name: str, start: bytes) -> tuple[int, int, bytes]:
    """Rows, dim, and what follows the header line."""
    line, end, rest = start.partition(b"\n")
    fields = line.split()
    if end and len(fields) == 2 and all(field.isdigit() for field in fields) and int(fields[1]):
        if int(fields[1]) > _LARGEST_DIM:
            raise DataError(
                f"{name}: found the dimension {shown(fields[1].decode())}, expected at most {_LARGEST_DIM:,}"
            )
        return int(fields[0]), int(fields[1]), rest
    remedy = ""
    if start.startswith(_FASTTEXT_MAGIC):
        remedy = ". This is a model of fastText: take the .vec file that belongs to it"
    found = shown(line[:80])
    raise DataError(
        f"{name}: found {found} at the start, expected a line with the number of rows and the dimension{remedy}"
    )


def _announced(rows: int, dim: int) -> str:
    return f"{counted(rows, 'row')} of {counted(dim, 'number')}, as the header line says"


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
