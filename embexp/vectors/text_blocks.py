"""Whole lines of vectors in text, parsed a block at a time without a Python step per line.

A line is a token, then `dim` numbers, with blanks (spaces or tabs) between them; the token is all that stands before
the last `dim` fields, so it may hold blanks itself. Nothing else separates: not U+00A0, nor a form feed. Line ends are
LF or CR LF.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from embexp.vectors.stored import excerpt, plural

_SPACE, _TAB, _CR, _LF = b" \t\r\n"


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
    _check_fields(data, starts, stops, ends, fields, dim)

    is_value = np.ones(starts.size, bool)
    regular = bool((fields == dim + 1).all())
    if regular:
        is_value[:: dim + 1] = False
    else:
        is_value = np.arange(starts.size) >= np.repeat(ends - dim, fields)
    first, last = ends - fields, ends - dim - 1
    tokens = _tokens(text, starts[first], stops[last])
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
) -> None:
    expected = f"a token and {plural(dim, 'number')}"
    unusual = np.flatnonzero(fields != dim + 1)
    for line in unusual.tolist():
        end, count = int(ends[line]), int(fields[line])
        if count == 0:
            raise MalformedError(line, "an empty line", expected)
        if count <= dim:
            raise MalformedError(line, plural(count - 1, "field") + " after the first", expected)
        before = end - dim - 1
        if is_number(data[starts[before] : stops[before]]):
            all_fields = [data[starts[n] : stops[n]] for n in range(end - count, end)]
            numbers = trailing_numbers(all_fields)
            if numbers > dim:
                raise MalformedError(line, f"a token and {plural(numbers, 'number')}", expected)


def _tokens(text: np.ndarray, starts: np.ndarray, stops: np.ndarray) -> pa.LargeStringArray:
    lengths = stops - starts
    offsets = np.zeros(lengths.size + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.arange(offsets[-1]) + np.repeat(starts - offsets[:-1], lengths)
    return pa.LargeStringArray.from_buffers(lengths.size, pa.py_buffer(offsets), pa.py_buffer(text[places]))


def invalid_rows(tokens: pa.LargeStringArray) -> np.ndarray:
    """Numbers of the tokens that are not UTF-8."""
    try:
        tokens.validate(full=True)
    except pa.ArrowInvalid:
        written = tokens.cast(pa.large_binary()).to_pylist()
        return np.array([row for row, token in enumerate(written) if not _is_utf8(token)], np.int64)
    return np.empty(0, np.int64)


def _is_utf8(token: bytes) -> bool:
    try:
        token.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


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
