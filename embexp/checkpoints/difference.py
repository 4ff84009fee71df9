"""Figures of values, what differs between two checkpoints, and how far values moved. Values are read in blocks."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from embexp.checkpoints.contents import GRAPH, TABLES, Contents, KeyInfo, Stored, StoredKind

_BLOCK_BYTES = 1 << 21
_STATISTICS_BLOCK_BYTES = 1 << 23
FEW = 6
"""So many values are shown themselves."""
RowMatch = Callable[[int, int], np.ndarray]
"""For rows [start, stop) of a table in A, int64: the rows of B that have the same tokens; -1 for none."""


@dataclass(frozen=True)
class Statistics:
    """Figures of values.

    Attributes:
        minimum: of the finite ones; None where there are none, or they are complex.
        mean: of the finite ones; None where there are none.
        norm: L2 norm of the finite ones; None where they are no numbers.
        not_finite: how many are NaN or infinite.
        values: the values themselves where they are few, as Python's; strings that are no text as their `repr`.
    """

    minimum: float | None = None
    maximum: float | None = None
    mean: float | None = None
    norm: float | None = None
    not_finite: int = 0
    values: tuple[object, ...] | None = None


def statistics(entry: Stored) -> Statistics:
    """Reads all values of a key.

    Raises:
        DataError: they can't be read.
    """
    if entry.values.dtype is None:
        return Statistics()
    count = math.prod(entry.info.shape)
    values = tuple(map(_decoded, entry.values.value().reshape(-1).tolist())) if count <= FEW else None
    if not entry.numeric:
        return Statistics(values=values)
    low, high, total, squares, finite_ones = math.inf, -math.inf, 0.0, 0.0, 0
    ordered = entry.values.dtype.kind != "c"
    for _, block in entry.blocks(_STATISTICS_BLOCK_BYTES):
        numbers = block.reshape(-1)
        # Types of ml_dtypes lack most operations; complex numbers are only measured.
        with np.errstate(invalid="ignore", over="ignore"):
            numbers = numbers.astype(np.float64) if ordered else np.abs(numbers.astype(np.complex128))
        finite = numbers[np.isfinite(numbers)]
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
            total += float(finite.sum())
            squares += float(finite @ finite)
            finite_ones += finite.size
    some = finite_ones > 0 and ordered
    return Statistics(
        minimum=low if some else None,
        maximum=high if some else None,
        mean=total / finite_ones if some else None,
        norm=math.sqrt(squares),
        not_finite=count - finite_ones,
        values=values,
    )


def _decoded(value: object) -> object:
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError:
            return repr(value)
    return value if isinstance(value, bool | int | float) else str(value)


@dataclass(frozen=True)
class MovedRow:
    """A row that moved.

    Attributes:
        distance: L2 norm of its change.
        norm: L2 norm of the row in A.
    """

    row: int
    distance: float
    norm: float


@dataclass(frozen=True)
class Change:
    """How far the values of a key moved from A to B.

    Attributes:
        key_of_b: in B; another one where keys were matched by names of variables.
        compared: rows that were compared; a scalar is one row.
        changed: those with at least one other bit.
        largest: the largest absolute change of a number; None for strings.
        relative: L2 norm of the change, divided by that of A; infinite where A is 0; None for strings.
        moved: the rows that moved most, the farthest first; only of tables.
        first: the first rows with another bit, by number in A.
        unmatched: of tables matched by token, the rows of A and of B that have no partner; None: matched by number.
    """

    info: KeyInfo
    key_of_b: str
    compared: int
    changed: int
    largest: float | None = None
    relative: float | None = None
    moved: tuple[MovedRow, ...] = ()
    first: tuple[int, ...] = ()
    unmatched: tuple[int, int] | None = None


@dataclass(frozen=True)
class Difference:
    """What differs between two checkpoints.

    Attributes:
        by_variable: whether keys were matched by the global names of variables, as only one of the two is name-based.
        only_a: keys that B lacks.
        only_b: keys that A lacks.
        unlike: keys whose shapes or types differ, in A and in B.
        changes: of all keys that were compared, in the order in which A lists them.
        unread: keys whose values NumPy can't read.
    """

    by_variable: bool
    only_a: tuple[KeyInfo, ...]
    only_b: tuple[KeyInfo, ...]
    unlike: tuple[tuple[KeyInfo, KeyInfo], ...]
    changes: tuple[Change, ...]
    unread: tuple[KeyInfo, ...]

    @property
    def empty(self) -> bool:
        """Whether nothing differs."""
        return not (self.only_a or self.only_b or self.unlike or any(change.changed for change in self.changes))


def difference(a: Contents, b: Contents, *, rows: int, matches: Mapping[str, RowMatch] | None = None) -> Difference:
    """Compares two checkpoints.

    Args:
        rows: how many of the rows that moved most are named for each table, and how many of the first ones that differ.
        matches: for tables and slots whose rows are to be matched by token, by key in A.

    Raises:
        DataError: values can't be read.
    """
    by_variable = (a.kind is StoredKind.NAME) != (b.kind is StoredKind.NAME)
    of_a, of_b = (_named(a), _named(b)) if by_variable else (dict(a.entries), dict(b.entries))
    unlike, changes, unread = [], [], []
    for name, first in of_a.items():
        if name not in of_b:
            continue
        second = of_b[name]
        match = (matches or {}).get(first.info.key)
        if not _comparable(first.info, second.info, by_token=match is not None):
            unlike.append((first.info, second.info))
        elif first.values.dtype is None or second.values.dtype is None:
            unread.append(first.info)
        else:
            changes.append(_change(first, second, rows, match))
    return Difference(
        by_variable,
        tuple(entry.info for name, entry in of_a.items() if name not in of_b),
        tuple(entry.info for name, entry in of_b.items() if name not in of_a),
        tuple(unlike),
        tuple(changes),
        tuple(unread),
    )


def _named(contents: Contents) -> dict[str, Stored]:
    """Keys by names of variables; those without a name, or that share one, by key. Without the object graph."""
    named = [
        (entry.info.variable or entry.info.short, entry)
        for entry in contents.entries.values()
        if entry.info.group != GRAPH
    ]
    count: dict[str, int] = {}
    for name, _ in named:
        count[name] = count.get(name, 0) + 1
    return {name if count[name] == 1 else entry.info.short: entry for name, entry in named}


def _comparable(a: KeyInfo, b: KeyInfo, *, by_token: bool) -> bool:
    shapes = (a.shape[1:], b.shape[1:]) if by_token else (a.shape, b.shape)
    return a.dtype == b.dtype and shapes[0] == shapes[1]


def _change(a: Stored, b: Stored, rows: int, match: RowMatch | None) -> Change:
    moves = _Moves(rows if a.info.group == TABLES else 0, rows)
    for numbers, first, second in _pairs(a, b, match):
        if a.numeric:
            moves.add(numbers, first, second)
        else:
            moves.add_strings(numbers, first, second)
    return Change(
        info=a.info,
        key_of_b=b.info.key,
        compared=moves.compared,
        changed=moves.changed,
        largest=moves.largest if a.numeric else None,
        relative=_ratio(math.sqrt(moves.squares), math.sqrt(moves.squares_of_a)) if a.numeric else None,
        moved=tuple(moves.farthest),
        first=tuple(moves.first),
        unmatched=None if match is None else (a.info.rows - moves.compared, b.info.rows - moves.compared),
    )


class _Moves:
    """Adds up what changed, a block of rows at a time.

    Attributes:
        compared: rows so far.
        changed: those that changed.
        largest: the largest absolute change of a number.
        squares_of_a: sum of the squares of all numbers of A.
        farthest: the rows that moved most, the farthest first.
        first: the first rows that changed.
    """

    def __init__(self, rows: int, first: int) -> None:
        """Names so many of the rows that moved most, and of the first ones."""
        self._rows, self._first = rows, first
        self.first: list[int] = []
        self.compared = self.changed = 0
        self.largest = self.squares = self.squares_of_a = 0.0
        self.farthest: list[MovedRow] = []

    def add_strings(self, numbers: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
        some = np.flatnonzero((first != second).any(axis=1))
        self.compared += len(first)
        self._changed(numbers, some)

    def _changed(self, numbers: np.ndarray, some: np.ndarray) -> None:
        self.changed += len(some)
        self.first += numbers[some[: self._first - len(self.first)]].tolist()

    @np.errstate(invalid="ignore", over="ignore")
    def add(self, numbers: np.ndarray, first: np.ndarray, second: np.ndarray) -> None:
        other = _other_bits(first, second)
        some = np.flatnonzero(other.any(axis=1))
        before = _wide(first)
        self.compared += len(first)
        self._changed(numbers, some)
        self.squares_of_a += float(np.sum(np.abs(before) ** 2))
        if not len(some):
            return
        # Equal bits count as equal, also those of NaN and of infinity.
        moves = np.where(other[some], np.abs(_wide(second[some]) - before[some]), 0.0)
        self.largest = float(np.max([self.largest, moves.max()]))
        self.squares += float(np.sum(moves**2))
        if self._rows:
            distances = np.sqrt(np.sum(moves**2, axis=1))
            best = np.argsort(-np.nan_to_num(distances, nan=np.inf), kind="stable")[: self._rows]
            norms = np.sqrt(np.sum(np.abs(before[some[best]]) ** 2, axis=1))
            block = map(MovedRow, numbers[some[best]].tolist(), distances[best].tolist(), norms.tolist())
            # Not a number is the farthest.
            self.farthest = heapq.nsmallest(
                self._rows,
                [*self.farthest, *block],
                key=lambda each: (-math.inf if math.isnan(each.distance) else -each.distance, each.row),
            )


def _pairs(a: Stored, b: Stored, match: RowMatch | None) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Blocks of rows of A and their partners in B, as matrices, with the rows' numbers in A."""
    if not a.info.shape:
        yield np.zeros(1, np.int64), a.values.value().reshape(1, 1), b.values.value().reshape(1, 1)
        return
    for start, first in a.blocks(_BLOCK_BYTES):
        numbers = np.arange(start, start + len(first))
        if match is None:
            second = b.values.read(start, start + len(first))
        else:
            partners = match(start, start + len(first))
            kept = np.flatnonzero(partners >= 0)
            numbers, first, partners = numbers[kept], first[kept], partners[kept]
            if not len(kept):
                continue
            low = int(partners.min())
            second = b.values.read(low, int(partners.max()) + 1)[partners - low]
        yield numbers, _matrix(first), _matrix(second)


def _matrix(values: np.ndarray) -> np.ndarray:
    """Rows of any shape as vectors; a row of nothing has one number, 0."""
    return values.reshape(len(values), -1) if values.size else np.zeros((len(values), 1), values.dtype)


def _other_bits(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Bool [n, width]: which numbers have other bits; -0 and 0 do, equal NaN don't."""
    size = min(8, a.dtype.itemsize)  # complex128 has 16 bytes
    bits = [np.ascontiguousarray(each).view(f"u{size}").reshape(*each.shape, -1) for each in (a, b)]
    found: np.ndarray = (bits[0] != bits[1]).any(axis=-1)
    return found


def _wide(values: np.ndarray) -> np.ndarray:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _ratio(change: float, base: float) -> float:
    if change == 0:
        return 0.0
    return change / base if base else math.inf
