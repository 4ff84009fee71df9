"""The freeze policies: the rows that each one names, as a mask, from what is known of the rows of a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from embexp.data.vocabularies.vocabulary import Vocabulary
from embexp.errors import DataError
from embexp.specs.freezing import CustomFreeze, FreezeOldRows, FreezePretrainedRows, FreezeRows, FreezeTable, TableRule
from embexp.system import arrays, files
from embexp.system.user_code import NamedFunction, kind_of


@dataclass(frozen=True)
class RowFacts:
    """Facts about a table's rows.

    Attributes:
        rows_of: int64 row of each token, -1 for one without a row of its own; None: no vocabulary is at hand.
        pretrained: bool [rows], whether a row came from a file or a checkpoint; None: the table has none.
        old: bool [rows], whether a row came from a checkpoint as a trained one; None: the table has none.
    """

    rows: int
    rows_of: Callable[[Sequence[str]], np.ndarray] | None = None
    pretrained: np.ndarray | None = None
    old: np.ndarray | None = None


@dataclass(frozen=True)
class NamedRows:
    """The rows of a table that a rule names.

    Attributes:
        mask: bool [rows].
        shortfall: why it names fewer rows than the config lists, or "".
    """

    mask: np.ndarray
    shortfall: str = ""


def row_facts(
    vocabulary: Vocabulary | None, rows: int, pretrained: np.ndarray | None, old: np.ndarray | None
) -> RowFacts:
    """The facts about a table.

    Args:
        vocabulary: what its rows stand for; None: it is not at hand.
        pretrained: see `RowFacts`.
        old: see `RowFacts`.
    """
    return RowFacts(rows, None if vocabulary is None else partial(_own_rows, vocabulary), pretrained, old)


def _own_rows(vocabulary: Vocabulary, tokens: Sequence[str]) -> np.ndarray:
    """Row of each token; -1 also for those that share a row, such as the OOV row or a hash bucket."""
    rows = vocabulary.rows(list(tokens))
    return np.where(rows < vocabulary.first, -1, rows)


def listed_rows(rule: FreezeRows, path: str, facts: RowFacts) -> NamedRows:
    """Rows that are listed by number, by token or by a mask.

    Raises:
        DataError: a file is malformed.
        ValueError: there are tokens, and no vocabulary is at hand.
    """
    mask = np.zeros(facts.rows, np.bool_)
    shortfalls = []
    for start, stop in rule.rows:
        mask[start:stop] = True
        if stop > facts.rows:
            shortfalls.append(f"[{start}, {stop}] goes beyond the table's {facts.rows} rows")
    tokens = [*rule.tokens, *([] if rule.tokens_file is None else _tokens(Path(rule.tokens_file)))]
    if tokens:
        if facts.rows_of is None:
            raise ValueError("a rule about tokens needs the table's vocabulary")
        found = facts.rows_of(tokens)
        mask[found[found >= 0]] = True
        lacking = [token for token, row in zip(tokens, found, strict=True) if row < 0]
        if lacking:
            some = ", ".join(map(repr, lacking[:3])) + (", …" if len(lacking) > 3 else "")
            shortfalls.append(f"{len(lacking)} of {len(tokens)} tokens are not in the vocabulary ({some})")
    if rule.mask_file is not None:
        of_file = _mask(Path(rule.mask_file))
        if len(of_file) == facts.rows:
            mask |= of_file
        else:
            shortfalls.append(f"{rule.mask_file} has {len(of_file)} values, and the table {facts.rows} rows")
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
        mask, _ = arrays.mapped(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{path}: found no .npy file of booleans: {error}") from error
    if mask.dtype != np.bool_ or mask.ndim != 1:
        raise DataError(f"{path}: found no .npy file of booleans, one for each row of a table")
    return mask


def old_rows(rule: FreezeOldRows, path: str, facts: RowFacts) -> NamedRows:
    """Rows that an earlier run trained; rows that are new since are not named."""
    if facts.old is None:
        return NamedRows(np.zeros(facts.rows, np.bool_), "the table has no rows of a checkpoint")
    return NamedRows(facts.old)


def pretrained_rows(rule: FreezePretrainedRows, path: str, facts: RowFacts) -> NamedRows:
    """Rows of the pretrained file; those that it lacks are not named."""
    if facts.pretrained is None:
        return NamedRows(np.zeros(facts.rows, np.bool_), "the table has no pretrained file")
    return NamedRows(facts.pretrained)


def custom_rows(rule: CustomFreeze, path: str, facts: RowFacts) -> NamedRows:
    """Rows that the user's own function names: `function(facts, **args)` returns bool [rows].

    Raises:
        ConfigError: it can't be imported or called, or returns something else.
    """
    function = NamedFunction(path, rule.function, rule.args, "facts")
    mask = function(facts)
    if not isinstance(mask, np.ndarray) or mask.dtype != np.bool_ or mask.shape != (facts.rows,):
        found = f"{mask.dtype} {list(mask.shape)}" if isinstance(mask, np.ndarray) else kind_of(mask)
        raise function.fault(f"it must return an array of bool [{facts.rows}], one for each row, but returned {found}")
    return NamedRows(mask, "" if mask.any() else f"{function.name} names none")


def whole_table(rule: FreezeTable | TableRule, path: str, facts: RowFacts) -> NamedRows:
    """Every row."""
    return NamedRows(np.ones(facts.rows, np.bool_))


def check_random(name: str, random: bool | None, facts: RowFacts) -> None:
    """Raises ValueError if a table would be frozen at random values that the config forbids (`random: false`)."""
    if random is False and not np.any(facts.pretrained):
        raise ValueError(
            f"random is false, and the pretrained file has nothing for table {name}, so that random values would"
            " stay as they are"
        )
