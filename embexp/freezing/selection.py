"""Which rows of a table a rule names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import assert_never

import numpy as np

from embexp.errors import DataError
from embexp.specs.freezing import OldRowsRule, PretrainedRowsRule, RowsRule, Rule, TableRule


@dataclass(frozen=True)
class RowFacts:
    """What is known of a table's rows.

    Attributes:
        rows: vocabulary size.
        rows_of: int64 row of each token, -1 for one without a row of its own; None: no vocabulary has been looked at.
        pretrained: bool [rows], whether a row came from a file or a checkpoint; None: the table has none.
        old: bool [rows], whether a row came from a checkpoint as a trained one; None: the table has none.
    """

    rows: int
    rows_of: Callable[[Sequence[str]], np.ndarray] | None = None
    pretrained: np.ndarray | None = None
    old: np.ndarray | None = None


@dataclass(frozen=True)
class Named:
    """The rows that a rule names.

    Attributes:
        mask: bool [rows].
        misfit: why it names fewer than it says, or "".
    """

    mask: np.ndarray
    misfit: str = ""


def named(rule: Rule, facts: RowFacts) -> Named:
    """The rows of a table that a rule names.

    Raises:
        DataError: a file is not what it should be.
        ValueError: the rule is about tokens, and no vocabulary has been looked at.
    """
    match rule:
        case TableRule():
            return Named(np.ones(facts.rows, bool))
        case PretrainedRowsRule():
            if facts.pretrained is None:
                return Named(np.zeros(facts.rows, bool), "the table has no pretrained file")
            return Named(facts.pretrained)
        case OldRowsRule():
            if facts.old is None:
                return Named(np.zeros(facts.rows, bool), "the table has no rows of a checkpoint")
            return Named(facts.old)
        case RowsRule():
            return _rows(rule, facts)
        case _:
            assert_never(rule)


def _rows(rule: RowsRule, facts: RowFacts) -> Named:
    mask = np.zeros(facts.rows, bool)
    misfits = []
    for start, stop in rule.rows:
        mask[start:stop] = True
        if stop > facts.rows:
            misfits.append(f"[{start}, {stop}] goes beyond the table's {facts.rows} rows")
    tokens = [*rule.tokens, *([] if rule.tokens_file is None else _tokens(Path(rule.tokens_file)))]
    if tokens:
        if facts.rows_of is None:
            raise ValueError("a rule about tokens needs the table's vocabulary")
        found = facts.rows_of(tokens)
        mask[found[found >= 0]] = True
        lacking = [token for token, row in zip(tokens, found, strict=True) if row < 0]
        if lacking:
            some = ", ".join(map(repr, lacking[:3])) + (", …" if len(lacking) > 3 else "")
            misfits.append(f"{len(lacking)} of {len(tokens)} tokens are not in the vocabulary ({some})")
    if rule.mask_file is not None:
        of_file = _mask(Path(rule.mask_file))
        if len(of_file) == facts.rows:
            mask |= of_file
        else:
            misfits.append(f"{rule.mask_file} has {len(of_file)} values, and the table {facts.rows} rows")
    return Named(mask, "; ".join(misfits))


def _tokens(path: Path) -> list[str]:
    try:
        lines = path.read_text("utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: found no UTF-8 text with a token per line: {error}") from error
    lines = lines[:-1] if lines[-1] == "" else lines
    return [line.removesuffix("\r") for line in lines]


def _mask(path: Path) -> np.ndarray:
    try:
        mask: np.ndarray = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path}: found no .npy file of booleans: {error}") from error
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.ndim != 1:
        raise DataError(f"{path}: found no .npy file of booleans, one for each row of a table")
    return mask
