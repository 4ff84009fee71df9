"""A text table as Arrow's reader takes it: UTF-8, with one byte between fields."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import IO

from embexp.data.bounded_lines import LONGEST
from embexp.data.dialect import WHITESPACE, Dialect
from embexp.errors import DataError

SEPARATOR = "\x1f"
"""What stands for a delimiter of several characters: the control character of ASCII that is made for it."""
_PIECE_BYTES = 1 << 20
_BLANKS = re.compile(rb"[ \t]+")


class Rewritten:
    """The bytes of a table, rewritten while they are read; a file for Arrow."""

    def __init__(self, data: IO[bytes], dialect: Dialect) -> None:
        self._pieces = _translated(_in_utf8(data, dialect), dialect)
        self._left = b""
        self.closed = False

    def read(self, count: int = -1) -> bytes:
        """The next bytes, up to so many; b"" at the end."""
        while not self._left:
            piece = next(self._pieces, None)
            if piece is None:
                return b""
            self._left = piece
        if count < 0:
            count = len(self._left)
        given, self._left = self._left[:count], self._left[count:]
        return given

    def readable(self) -> bool:
        """Always."""
        return True

    def close(self) -> None:
        """Ends the reading."""
        self.closed = True


def _in_utf8(data: IO[bytes], dialect: Dialect) -> Iterator[bytes]:
    if dialect.utf8:
        while piece := data.read(_PIECE_BYTES):
            yield piece
        return
    decoder = codecs.getincrementaldecoder(dialect.encoding)()
    while piece := data.read(_PIECE_BYTES):
        yield decoder.decode(piece).encode("utf-8")
    yield decoder.decode(b"", final=True).encode("utf-8")


def _translated(pieces: Iterator[bytes], dialect: Dialect) -> Iterator[bytes]:
    """The same with `SEPARATOR` for a delimiter of several characters, whole lines at a time."""
    if dialect.simple:
        yield from pieces
        return
    begun = b"\xef\xbb\xbf"
    rest = b""
    for number, piece in enumerate(pieces):
        rest += piece.removeprefix(begun) if number == 0 else piece
        end = rest.rfind(b"\n") + 1
        if end:
            yield _separated(rest[:end], dialect.delimiter)
            rest = rest[end:]
        elif len(rest) > LONGEST:
            raise DataError("found a line that is too long")  # in other words by the careful reader
    if rest:
        yield _separated(rest, dialect.delimiter)


def _separated(lines: bytes, delimiter: str) -> bytes:
    mark = SEPARATOR.encode()
    if mark in lines:
        raise DataError(
            f"found the control character {SEPARATOR!r}, which stands for a delimiter of several characters while a"
            " file is read; expected text without it"
        )
    if delimiter != WHITESPACE:
        return lines.replace(delimiter.encode(), mark)
    lines = _BLANKS.sub(mark, lines).replace(mark + b"\r\n", b"\n").replace(mark + b"\n", b"\n")
    return lines.replace(b"\n" + mark, b"\n").removeprefix(mark).removesuffix(mark)
