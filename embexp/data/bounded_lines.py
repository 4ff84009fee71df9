"""Lines of text files, none longer than memory should hold. Standard library only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import IO, AnyStr

from embexp.data import decompressed
from embexp.errors import DataError
from embexp.system import regular

LONGEST = 1 << 23
"""Bytes, or characters, that a line may have; as words it takes some twenty times as much memory."""
TOO_LONG = f"more than {LONGEST:,} bytes without a line end, expected a shorter line"
"""What is said about one that has more."""


def lines_of(path: Path) -> Iterator[bytes]:
    """The lines of a file with their ends; of one that is compressed, see `decompressed`.

    Raises:
        DataError: it is no regular file, damaged, or a line is too long.
    """
    if fault := regular.fault_of(path):
        raise DataError(f"{path}: {fault}")
    with decompressed.opened(path) as (file, _):
        for number, line in enumerate(bounded(file), 1):
            if len(line) > LONGEST:
                raise DataError(f"{path}, line {number}: found {TOO_LONG}")
            yield line


def bounded(file: IO[AnyStr]) -> Iterator[AnyStr]:
    """The lines of an open file; of a line that is too long, a beginning of more than `LONGEST`."""
    while line := file.readline(LONGEST + 1):
        yield line


def whole(path: Path) -> bytes:
    """The bytes of a file that is one text.

    Raises:
        DataError: it is no regular file, or too long.
    """
    if fault := regular.fault_of(path):
        raise DataError(f"{path}: {fault}")
    with regular.opened(path) as file:
        content = file.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise DataError(f"{path}: found a text of more than {LONGEST:,} bytes, expected a shorter one")
    return content
