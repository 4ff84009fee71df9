"""Columns that may leak the label, because they are known only after it: a refund, a closing date, a copy.

A column, or a pair of columns, is named where it tells the label and chance can't explain that. Chance is counted, not
drawn: a column whose G groups tell n labels apart, of which e are exceptions, is one of L^G · C(n, e) · L^e ways to
do so, and the labels are one of n! / (k_1! … k_L!) orders. Where the logarithm of the ways, and of how many columns and
pairs were looked at, is more than `_BITS` bits below that of the orders, chance gives such a column once in 2^`_BITS`
tables. A pair must be as much shorter than either of its columns, so that it tells what neither tells alone.

The orders of numbers are counted likewise: those with at most e inversions are fewer than 2^(3.7 √e) (Hardy & Ramanujan
1918, of partitions).
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from embexp.data.examples import Examples, Layout

FORMAT = 1
"""Version of what is looked for, raised when that changes."""
SAMPLE = 50_000
"""Examples that are looked at, evenly spread."""
_BITS = 40
_EXCEPTIONS = 0.001
"""Share of the rows outside the most frequent label that may be exceptions."""
_LEAST_AUC = 0.999
_FEWEST_OF_A_VALUE = 10
"""Rows with each value, or each pair of values, on average."""
_MOST_LABELS = 100
"""Different labels up to which they are looked at one by one; more are numbers, and are put into order."""
_MOST_CODES = 100
"""Different numbers of a column up to which they are also values."""
_MOST_IN_PAIRS = 100
"""Columns that are paired: those with the fewest values."""
_FIRST_LOOK = 2_000
"""Rows that sort out most columns and pairs."""
_FIRST_AUC, _SPARE = 0.99, 5
"""What they leave: an AUC as large as this, and so many exceptions, and so many times the share."""
_IN_ORDER = 0.99
"""Share of a copy's neighbours that are in the order of the label. Yesterday's value has the rank of today's, nearly,
but not its order among near ones."""
_LEAST_SHARE = 0.5
"""Of a label's rows, the share that is filled, or empty, where only its rows are."""

_NAMED = 3
"""Labels that a sentence names."""
_INVERSIONS = math.pi * math.sqrt(2 / 3) / math.log(2)
_DAY = 86_400
_YEARS = (7_305, 25_568)
"""1990 to 2040 in days since 1970."""


class Kind(StrEnum):
    """How a column tells the label."""

    VALUES = "values"
    """Each value goes with one label."""
    PAIR = "pair"
    """Each pair of values of two columns goes with one label, and neither column tells it alone."""
    FILLED = "filled"
    """It is filled exactly where the label is one of some values, and empty elsewhere."""
    ONLY_FILLED = "only_filled"
    """It is filled only where the label is a certain one, and for most of that."""
    ONLY_EMPTY = "only_empty"
    """It is empty only where the label is a certain one, and for most of that."""
    ORDER = "order"
    """The order of its numbers, or dates, puts the labels apart."""
    INTERVAL = "interval"
    """The days between two dates put the labels apart."""
    COPY = "copy"
    """It rises, or falls, with a label that is a number: a copy, perhaps rounded, or in another unit."""


@dataclass(frozen=True)
class Leak:
    """A column, or two, that may leak the label.

    Attributes:
        figure: of order and interval the AUC, from 0.5 to 1 (of neighbouring labels the least); of a copy the absolute
            rank correlation; else the share of the rows that follow the rule.
        labels: of the kinds that are about empty values: the labels where the column is filled, or of `ONLY_EMPTY`
            where it is empty.
    """

    kind: Kind
    columns: tuple[str, ...]
    figure: float
    labels: tuple[str, ...] = ()

    def why(self, label: str) -> str:
        """How it tells the label, of that name."""
        values = " or ".join(self.labels)
        match self.kind:
            case Kind.VALUES:
                return f"each value occurs with only one value of {label}"
            case Kind.PAIR:
                return f"each pair of values occurs with only one value of {label}"
            case Kind.FILLED:
                return f"it is filled exactly if {label} is {values}"
            case Kind.ONLY_FILLED:
                return f"it is filled only if {label} is {values}"
            case Kind.ONLY_EMPTY:
                return f"it is empty only if {label} is {values}"
            case Kind.ORDER:
                return f"its order alone predicts {label} (AUC {self.figure:.4f})"
            case Kind.INTERVAL:
                return f"the days between them predict {label} (AUC {self.figure:.4f})"
            case Kind.COPY:
                return f"it rises or falls with {label} (rank correlation {self.figure:.4f})"


class Sentence(NamedTuple):
    """What is said of some columns.

    Attributes:
        columns: without which it does not hold: all that it names, or one of two.
        text: without an end.
        lacking: what new examples may lack, in words.
    """

    columns: tuple[str, ...]
    text: str
    lacking: str


def sentences(found: Sequence[Leak], label: str) -> list[Sentence]:
    """Which columns may leak the label, of that name, and why: leaks of the same kind in one sentence."""
    alike: dict[str, list[Leak]] = {}
    for leak in found:
        alike.setdefault(leak.why(label) + (str(leak.columns) if len(leak.columns) > 1 else ""), []).append(leak)
    lines = []
    for some in alike.values():
        first, names = some[0], tuple(leak.columns[0] for leak in some)
        pair = len(first.columns) > 1
        shown = " and ".join(first.columns) if pair else ", ".join(names)
        lacking = "one of the two" if pair else "it" if len(names) == 1 else "them"
        lines.append(Sentence(names, f"{shown} may leak the label: {first.why(label)}", lacking))
    return lines


@dataclass(frozen=True)
class Column:
    """A column of some rows.

    Attributes:
        codes: integers [n], of values: -1 where it is empty; None: it has numbers only.
        numbers: float64 [n], NaN where it is empty; None: it has values only.
        dates: whether its numbers are dates, in days.
        alone: whether it is looked at by itself, and not only for the days from it, as the time that divides is.
    """

    name: str
    codes: np.ndarray | None = None
    numbers: np.ndarray | None = None
    dates: bool = False
    alone: bool = True

    @cached_property
    def empty(self) -> np.ndarray:
        """Whether it is empty in each row, bool [n]."""
        if self.numbers is not None:
            return np.asarray(np.isnan(self.numbers))
        return np.zeros(0, bool) if self.codes is None else np.asarray(self.codes < 0)

    @cached_property
    def values(self) -> np.ndarray | None:
        """int64 [n], from 0 on without gaps, -1 where it is empty; None: it has no values, or too many to count."""
        if self.codes is not None:
            return _closed_up(self.codes)
        if self.numbers is None or self.dates or _differ(self.numbers[first_look(len(self.numbers))]) > _MOST_CODES:
            return None
        found, places = np.unique(self.numbers, return_inverse=True)
        places[self.empty] = -1
        return None if len(found) > _MOST_CODES else places.astype(np.int64)


def leaks(columns: Sequence[Column], labels: np.ndarray, name: Callable[[float], str] = "{:g}".format) -> list[Leak]:
    """The columns, and pairs of columns, that may restate a label, each once.

    Args:
        columns: of the same rows.
        labels: float64 [n], finite.
        name: of a label, for `Leak.labels`.
    """
    distinct, classes = np.unique(labels, return_inverse=True)
    if len(distinct) < 2:
        return []
    alone = [column for column in columns if column.alone]
    look = _Look(labels, classes, len(distinct), [name(each) for each in distinct.tolist()])
    look.looks = max(1, len(alone) ** 2)
    found = [leak for column in alone if (leak := look.alone(column)) is not None]
    known = {leak.columns[0] for leak in found}
    dates = [column for column in columns if column.dates and column.name not in known]
    dates.sort(key=lambda column: not column.alone)  # the first of two is left out
    found += [leak for pair in itertools.combinations(dates, 2) if (leak := look.interval(*pair)) is not None]
    return found + list(look.pairs([column for column in alone if column.name not in known]))


@dataclass
class _Look:
    """A look at columns next to labels.

    Attributes:
        classes: int64 [n], numbers of the labels.
        count: how many different labels there are.
        looks: columns and pairs that are looked at.
    """

    labels: np.ndarray
    classes: np.ndarray
    count: int
    names: Sequence[str]
    looks: int = 1

    def alone(self, column: Column) -> Leak | None:
        """What a column tells by itself."""
        return self._filled(column) or self._values(column) or self._order(column)

    def _enough(self, bits: float) -> bool:
        return bits >= _BITS + math.log2(self.looks)

    def _filled(self, column: Column) -> Leak | None:
        empty = column.empty
        count, rows = int(np.count_nonzero(empty)), len(empty)
        if not 0 < count < rows:
            return None
        of_empty = np.bincount(self.classes[empty], minlength=self.count)
        of_filled = np.bincount(self.classes[~empty], minlength=self.count)
        exceptions = int(np.minimum(of_empty, of_filled).sum())
        bits = _ways(rows, count) - self.count - _ways(rows, exceptions)
        if exceptions <= _EXCEPTIONS * min(count, rows - count) and self._enough(bits):
            filled, others = (np.flatnonzero(some).tolist() for some in (of_filled > of_empty, of_filled <= of_empty))
            labels = [self.names[each] for each in filled[:_NAMED]]
            if len(filled) > _NAMED:
                few = len(others) <= _NAMED
                labels = [f"not {self.names[each]}" for each in others] if few else [*labels, "others"]
            return Leak(Kind.FILLED, (column.name,), 1 - exceptions / rows, tuple(labels))
        if self.count > _MOST_LABELS:
            return None
        for kind, inside, outside in (
            (Kind.ONLY_FILLED, of_filled, of_empty),
            (Kind.ONLY_EMPTY, of_empty, of_filled),
        ):
            present = np.flatnonzero(inside).tolist()
            if len(present) != 1:
                continue
            own, all_own = int(inside[present[0]]), int(inside[present[0]] + outside[present[0]])
            bits = _ways(rows, own) - _ways(all_own, own) - math.log2(self.count)
            if _LEAST_SHARE * all_own <= own and 2 * all_own <= rows and self._enough(bits):
                return Leak(kind, (column.name,), own / all_own, (self.names[present[0]],))
        return None

    def _values(self, column: Column) -> Leak | None:
        values = column.values
        if values is None or self.count > _MOST_LABELS:
            return None
        filled = values >= 0
        whole = np.ones(len(values), bool)
        for some in (whole,) if filled.all() else (filled, whole):
            groups, classes = values[some], self.classes[some]
            if self._hardly_told(groups, classes):
                continue
            told = self._told(groups - groups.min(initial=0), classes)
            if told is not None and self._enough(_orders(np.bincount(classes)) - told.bits):
                return Leak(Kind.VALUES, (column.name,), 1 - told.exceptions / len(groups))
        return None

    def _hardly_told(self, groups: np.ndarray, classes: np.ndarray) -> bool:
        """Whether a first look has more exceptions than all rows may have, several times."""
        few = first_look(len(groups))
        _, some = np.unique(groups[few], return_inverse=True)
        exceptions = _exceptions(some, classes[few], self.count)
        return exceptions > self._exceptions_of_first_look(classes[few])

    def _exceptions_of_first_look(self, classes: np.ndarray) -> float:
        most = len(classes) - int(np.bincount(classes).max(initial=0))
        return _SPARE + _SPARE * _EXCEPTIONS * most

    def _told(self, groups: np.ndarray, classes: np.ndarray) -> _Told | None:
        """How well groups of rows, numbered from 0 on, determine the labels; None if they do not."""
        size = int(groups.max(initial=-1)) + 1
        table = np.bincount(groups * self.count + classes, minlength=size * self.count).reshape(size, self.count)
        of_groups, of_classes = table.sum(1), table.sum(0)
        occupied, rows = int(np.count_nonzero(of_groups)), len(groups)
        exceptions = rows - int(table.max(1, initial=0).sum())
        if occupied < 2 or occupied * _FEWEST_OF_A_VALUE > rows or np.count_nonzero(of_classes) < 2:
            return None
        told = _Told(occupied, exceptions, self._cost(occupied, exceptions, rows))
        return told if exceptions <= _EXCEPTIONS * (rows - int(of_classes.max())) else None

    def _cost(self, groups: int, exceptions: int, rows: int) -> float:
        """The logarithm, in bits, of the number of ways in which `groups` determine labels with `exceptions`."""
        return (groups + exceptions) * math.log2(self.count) + _ways(rows, exceptions)

    def _order(self, column: Column) -> Leak | None:
        numbers = column.numbers
        if numbers is None:
            return None
        filled = ~column.empty
        return self._ordered(numbers[filled], filled, (column.name,), Kind.ORDER, copies=not column.dates)

    def interval(self, first: Column, second: Column) -> Leak | None:
        """What the days between two dates tell."""
        assert first.numbers is not None  # dates have numbers
        assert second.numbers is not None
        days = second.numbers - first.numbers
        filled = ~np.isnan(days)
        return self._ordered(days[filled], filled, (first.name, second.name), Kind.INTERVAL, copies=False)

    def _ordered(
        self, numbers: np.ndarray, filled: np.ndarray, columns: tuple[str, ...], kind: Kind, *, copies: bool
    ) -> Leak | None:
        if self.count > _MOST_LABELS:
            if not copies or len(numbers) < _FEWEST_OF_A_VALUE**2 or len(np.unique(numbers)) <= _MOST_CODES:
                return None
            labels, few = self.labels[filled], first_look(len(numbers))
            if abs(_rank_correlation(numbers[few], labels[few])) < _FIRST_AUC:
                return None
            correlation = abs(_copied(numbers, labels))
            return Leak(Kind.COPY, columns, correlation) if correlation > _LEAST_AUC else None
        if not len(numbers) or numbers.min() == numbers.max():
            return None
        few = first_look(len(numbers))
        if len(few) < len(numbers) and self._areas(numbers[few], self.classes[filled][few])[1] < _FIRST_AUC:
            return None
        counts, least, inversions = self._areas(numbers, self.classes[filled])
        if len(counts) < 2 or least <= _LEAST_AUC:
            return None
        bits = _orders(counts) - len(counts) * math.log2(len(counts)) - _INVERSIONS * math.sqrt(inversions)
        return Leak(kind, columns, least) if self._enough(bits) else None

    def _areas(self, numbers: np.ndarray, classes: np.ndarray) -> tuple[np.ndarray, float, float]:
        """How numbers put labels into order.

        Returns:
            How often each label occurs; the least AUC of two labels with neighbouring mean ranks, as far as the first
            that is too small; and the inversions of all these.
        """
        _, classes, counts = np.unique(classes, return_inverse=True, return_counts=True)
        ranks = midranks(numbers)
        means = np.bincount(classes, ranks) / counts
        least, inversions = 1.0, 0.0
        for low, high in itertools.pairwise(np.argsort(means, kind="stable").tolist()):
            some = (classes == low) | (classes == high) if len(counts) > 2 else slice(None)
            area = auc(numbers[some], classes[some] == high)
            least, inversions = min(least, area), inversions + (1 - area) * int(counts[low]) * int(counts[high])
            if least <= _FIRST_AUC:
                break
        return counts, least, inversions

    def pairs(self, columns: Sequence[Column]) -> Iterator[Leak]:
        """The pairs of columns that tell together what neither tells alone."""
        rows = len(self.classes)
        if self.count > _MOST_LABELS or rows < _FEWEST_OF_A_VALUE * 2:
            return
        sized = [
            (int(values.max()) + 2, column.name, values + 1)
            for column in columns
            if (values := column.values) is not None
        ]
        chosen = [each for each in sorted(sized, key=lambda each: each[0]) if each[0] * _FEWEST_OF_A_VALUE <= rows]
        few = first_look(rows)
        classes = self.classes[few]
        most, orders = self._exceptions_of_first_look(classes), _orders(np.bincount(self.classes))
        seen = {name: values[few] for _, name, values in chosen}
        alone: dict[str, float] = {}
        for one, other in itertools.combinations(chosen[:_MOST_IN_PAIRS], 2):
            if _exceptions(seen[one[1]] * other[0] + seen[other[1]], classes, self.count) > most:
                continue
            told = self._told(_closed_up(one[2] * other[0] + other[2]), self.classes)
            if told is None:
                continue
            for size, name, values in (one, other):
                if name not in alone:
                    alone[name] = self._cost(size, _exceptions(values, self.classes, self.count), rows)
            if self._enough(min(orders, alone[one[1]], alone[other[1]]) - told.bits):
                yield Leak(Kind.PAIR, (one[1], other[1]), 1 - told.exceptions / rows)


@dataclass(frozen=True)
class _Told:
    """How groups tell labels, and the bits of the ways to do so."""

    groups: int
    exceptions: int
    bits: float


def first_look(rows: int) -> np.ndarray:
    """int64: the rows that sort out most columns, evenly spread."""
    return spread(rows, _FIRST_LOOK)


def spread(rows: int, most: int) -> np.ndarray:
    """int64, rising: numbers of at most so many rows, evenly spread."""
    return np.arange(rows) if rows <= most else np.linspace(0, rows - 1, most).astype(np.int64)


def _differ(numbers: np.ndarray) -> int:
    """How many different numbers there are."""
    return len(np.unique(numbers[~np.isnan(numbers)]))


def _closed_up(codes: np.ndarray) -> np.ndarray:
    """Codes from -1 on, in the same order, without gaps from 0 on."""
    if codes.max(initial=-1) > 8 * len(codes):
        found, places = np.unique(codes, return_inverse=True)
        return places.astype(np.int64) - int(len(found) > 0 and found[0] < 0)
    used = np.bincount(codes + 1) > 0
    used[:1] = True
    return np.asarray((np.cumsum(used) - 2)[codes + 1])


def _exceptions(groups: np.ndarray, classes: np.ndarray, count: int) -> int:
    """Rows whose label, one of `count`, is not the most frequent one of their group, numbered from 0 on."""
    size = int(groups.max(initial=-1)) + 1
    if size * count > 8 * len(groups) + 1_024:
        _, groups = np.unique(groups, return_inverse=True)
        size = int(groups.max(initial=-1)) + 1
    table = np.bincount(groups * count + classes, minlength=size * count).reshape(size, count)
    return len(groups) - int(table.max(1, initial=0).sum())


def _ways(rows: int, chosen: int) -> float:
    """Bits of the ways to choose some of the rows: log2 of the binomial coefficient."""
    return (math.lgamma(rows + 1) - math.lgamma(chosen + 1) - math.lgamma(rows - chosen + 1)) / math.log(2)


def _orders(counts: np.ndarray) -> float:
    """Bits of the orders of labels that occur so often: log2 of the multinomial coefficient."""
    counted = sum(math.lgamma(each + 1) for each in counts.tolist())
    return (math.lgamma(int(counts.sum()) + 1) - counted) / math.log(2)


def midranks(numbers: np.ndarray) -> np.ndarray:
    """float64 [n]: the rank of each number, from 1 on; equal numbers have the mean of theirs."""
    _, places, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return (ends - (counts - 1) / 2)[places]


def auc(numbers: np.ndarray, positive: np.ndarray) -> float:
    """The chance that a positive row has a larger number than a negative one, ties counted half (Mann & Whitney 1947).

    Args:
        numbers: float [n], none missing.
        positive: bool [n], some of both.
    """
    count = int(np.count_nonzero(positive))
    above = float(midranks(numbers)[positive].sum()) - count * (count + 1) / 2
    return above / (count * (len(numbers) - count))


def _rank_correlation(one: np.ndarray, other: np.ndarray) -> float:
    """That of Spearman (1904); 0 of a constant."""
    ranks = midranks(one), midranks(other)
    return 0.0 if min(each.std() for each in ranks) == 0 else float(np.corrcoef(*ranks)[0, 1])


def _copied(numbers: np.ndarray, labels: np.ndarray) -> float:
    """The rank correlation of a column with a label that has its order; 0 if the label has another."""
    correlation = _rank_correlation(numbers, labels)
    order = np.lexsort((labels, numbers))
    starts = np.flatnonzero(np.concatenate([[True], np.diff(numbers[order]) > 0]))
    rising = labels[order] if correlation > 0 else -labels[order]
    least, largest = np.minimum.reduceat(rising, starts), np.maximum.reduceat(rising, starts)
    return correlation if float(np.mean(largest[:-1] <= least[1:])) >= _IN_ORDER else 0.0


def of_examples(
    examples: Examples,
    layout: Layout,
    rows: np.ndarray,
    *,
    ages: Mapping[str, tuple[str, float]],
    bucketed: np.ndarray | None = None,
    time: Time | None = None,
) -> list[Column]:
    """The columns of some encoded examples that have codes yet, not rows of tables.

    Args:
        rows: int64 [n], rising.
        ages: by name of a column of ages, in days: the column of the dates, and the day to which they are counted.
        bucketed: float32 [count, len(layout.bucketed)], the numbers for buckets.
        time: the column by which the examples are divided, and its values.
    """
    found: dict[str, Column] = {}
    for name, table in ((name, layout.tables.get(name)) for name in layout.ids):
        codes = examples.column(name, rows)
        found[name] = Column(name, codes - 1 if table in layout.token_tables else codes)  # code 0 is a missing value
    for name, column in examples.lists.items():
        found[name] = Column(name, np.where(column.splits[rows + 1] > column.splits[rows], 0, -1))
    for place, name in enumerate(layout.dense):
        numbers = examples.dense[rows, place].astype(np.float64)
        if name in ages:
            dates, last = ages[name]
            found[dates] = Column(dates, None, last - numbers, dates=True)
        else:
            found[name] = Column(name, found[name].codes if name in found else None, numbers)
    for place, name in enumerate(layout.bucketed):
        if name not in found:
            assert bucketed is not None  # the layout has such columns
            found[name] = Column(name, None, bucketed[rows, place].astype(np.float64))
    if time is not None and time.name not in found and any(column.dates for column in found.values()):
        days = time.values[rows].astype(np.float64) / _DAY
        if len(days) and _YEARS[0] <= days.min() and days.max() <= _YEARS[1]:
            found[time.name] = Column(time.name, None, days, dates=True, alone=False)
    return list(found.values())


@dataclass(frozen=True)
class Time:
    """The column of the time by which examples are divided: float64 [count], in seconds if it is dates."""

    name: str
    values: np.ndarray


def write(found: Sequence[Leak], path: Path) -> None:
    """Writes leaks as JSON."""
    path.write_text(json.dumps([asdict(leak) for leak in found]), "utf-8")


def read(path: Path) -> tuple[Leak, ...]:
    """Reads what `write` wrote."""
    return tuple(
        Leak(Kind(each["kind"]), tuple(each["columns"]), each["figure"], tuple(each["labels"]))
        for each in json.loads(path.read_text("utf-8"))
    )
