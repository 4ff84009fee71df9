"""freeze=rows: rows that the config lists, by number, by token, or by a mask."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from embexp.errors import DataError
from embexp.freezing.row_facts import NamedRows, RowFacts
from embexp.system import files, npy


def named(
    facts: RowFacts,
    *,
    ranges: Sequence[tuple[int, int]],
    tokens: Sequence[str],
    tokens_file: Path | None,
    mask_file: Path | None,
) -> NamedRows:
    """Rows that are listed in any of these ways.

    Args:
        facts: of the table.
        ranges: half-open, [start, stop), of row numbers.
        tokens: of the table's vocabulary.
        tokens_file: further tokens, one a line.
        mask_file: a `.npy` file of booleans, one for each row.

    Raises:
        DataError: a file is malformed.
        ValueError: there are tokens, and no vocabulary is at hand.
    """
    mask = np.zeros(facts.rows, np.bool_)
    shortfalls = []
    for start, stop in ranges:
        mask[start:stop] = True
        if stop > facts.rows:
            shortfalls.append(f"[{start}, {stop}] goes beyond the table's {facts.rows} rows")
    tokens = [*tokens, *([] if tokens_file is None else _tokens(tokens_file))]
    if tokens:
        if facts.rows_of is None:
            raise ValueError("a rule about tokens needs the table's vocabulary")
        found = facts.rows_of(tokens)
        mask[found[found >= 0]] = True
        lacking = [token for token, row in zip(tokens, found, strict=True) if row < 0]
        if lacking:
            some = ", ".join(map(repr, lacking[:3])) + (", …" if len(lacking) > 3 else "")
            shortfalls.append(f"{len(lacking)} of {len(tokens)} tokens are not in the vocabulary ({some})")
    if mask_file is not None:
        of_file = _mask(mask_file)
        if len(of_file) == facts.rows:
            mask |= of_file
        else:
            shortfalls.append(f"{mask_file} has {len(of_file)} values, and the table {facts.rows} rows")
    return NamedRows(mask, "; ".join(shortfalls))


def _tokens(path: Path) -> list[str]:
    try:
        with files.opened(path) as file:
            lines = file.read().decode("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: found no UTF-8 text with a token per line: {error}") from error
    lines = lines[:-1] if lines[-1] == "" else lines
    return [line.removesuffix("\r") for line in lines]


def _mask(path: Path) -> np.ndarray:
    try:
        mask, _ = npy.mapped(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: found no .npy file of booleans: {error}") from error
    if mask.dtype != np.bool_ or mask.ndim != 1:
        raise DataError(f"{path}: found no .npy file of booleans, one for each row of a table")
    return mask
