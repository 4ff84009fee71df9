"""Files of tokens beside a matrix that has none: one per line, in the order of the rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from embexp.errors import DataError
from embexp.system import regular
from embexp.vectors.stored import counted

SUFFIX = ".tokens.txt"


def beside(path: Path) -> Path:
    """Where the tokens of a file of vectors are looked for: `a.tokens.txt` for `a.npy`."""
    return path.with_name(path.stem + SUFFIX)


def lines(path: Path) -> pa.LargeStringArray:
    """The lines of a file.

    Args:
        path: of the file, UTF-8, with LF or CR LF.

    Raises:
        DataError: it is not UTF-8, or no file.
    """
    if fault := regular.fault_of(path):
        raise DataError(f"{path}: {fault}")
    data = path.read_bytes().replace(b"\r\n", b"\n")
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        found = f"bytes that are not UTF-8 ({data[error.start : error.end]!r})"
        raise DataError(f"{path}, line {line}: found {found}, expected text in UTF-8") from None
    if not text:
        return pa.array([], pa.large_string())
    # Not as Python's strings, which take several times the memory.
    return pc.split_pattern(pa.scalar(text.removesuffix("\n"), pa.large_string()), "\n").values


def read(path: Path, rows: int) -> pa.LargeStringArray:
    """The tokens of a file, one per line.

    Args:
        path: of the file, UTF-8, with LF or CR LF.
        rows: how many there must be.

    Raises:
        DataError: it is not UTF-8, or has another number of lines.
    """
    tokens = lines(path)
    if len(tokens) != rows:
        raise DataError(f"{path}: found {counted(len(tokens), 'line')}, expected {rows:,}, one for each row")
    return tokens
