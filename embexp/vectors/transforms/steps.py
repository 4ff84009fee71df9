"""What each step of a transform does to rows, once it is fitted: in float64, or in float32 where that loses little."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from embexp.errors import DataError
from embexp.specs.tables import Normal, TruncatedNormal
from embexp.specs.transforms import (
    PCA,
    Center,
    Frequencies,
    FrequencyWeight,
    Needs,
    Normalize,
    RandomPad,
    RemoveTop,
    Scale,
    Select,
    SelectBy,
    Step,
    Truncate,
    Whiten,
    Whitening,
    ZeroPad,
)
from embexp.system import digests
from embexp.vectors.initial_rows import ROWS_PER_DRAW, Drawn, InitializerRows, deviation_of
from embexp.vectors.moments import TINY, Moments

LOST_IN_SINGLE = 2e-6
"""Of a number's standard deviation: what fitting, or computing, in float32 may cost, beside the number's rounding."""
_LEAST = 1e-30
"""Squares of lengths below, and above its inverse, are taken in float64: in float32 they overflow, or lose digits."""
_RANKS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class TableRows:
    """What a transform may depend on beside the file: the table that takes the rows.

    Attributes:
        seed: of the run.
        initializer: of the table.
        dim: of the table.
        used: int64, rows of the file that the table takes, each once, rising; None: all.
        counts: int64, for each of these how often its tokens were seen in training; None: not counted.
        occurrences: of all tokens of the table in training.
    """

    name: str
    seed: int
    initializer: Drawn
    dim: int
    used: np.ndarray | None = None
    counts: np.ndarray | None = None
    occurrences: int = 0


@dataclass(frozen=True)
class Fitting:
    """What a step is fitted to.

    Attributes:
        dim: length of the rows that it gets.
        moments: of these rows, as far as the step needs them.
        rows: of the file.
        last: whether no other step is fitted to directions, or columns, that come out otherwise by a little.
    """

    dim: int
    moments: Moments | None
    rows: int
    table: TableRows
    last: bool

    @property
    def known(self) -> Moments:
        """The moments of a step that needs some."""
        assert self.moments is not None  # by `Step.required`
        return self.moments


@dataclass(frozen=True)
class Operation:
    """A fitted step.

    Attributes:
        apply: rows, float64 [n, dim], which may be changed in place, and int64 [at most n], the numbers in the file of
            the first of them, to rows of the new length. Also float32, with `single`.
        moved: moments of the rows that it makes; None: they do not follow from those of the rows that it gets.
        exact: whether it only moves numbers, and changes no rows in place.
        single: whether float32 will do: it loses no more than the rounding of its result.
    """

    apply: Callable[[np.ndarray, np.ndarray], np.ndarray]
    moved: Callable[[Moments], Moments] | None = None
    exact: bool = False
    single: bool = False


def fitted_to_directions(steps: Sequence[Step]) -> list[Step]:
    """Those that are fitted to directions or columns, which come out otherwise if rows differ by little."""
    return [step for step in steps if isinstance(step, Select) or step.required() is Needs.COVARIANCE]


def may_fit_in_single(step: Step) -> bool:
    """Whether it may be fitted to sums in float32, as what that loses can be estimated."""
    match step:
        case PCA(exact=False) | RemoveTop() | Whiten(method=Whitening.ZCA):
            return True
    return False


def lost_by_fitting(step: Step, known: Moments | None, rows: int) -> float:
    """Of the standard deviation of a number that a step makes: what is lost if it is fitted to sums in float32.

    Args:
        known: moments of the rows that it gets.
        rows: that were summed.

    Raises:
        ValueError: it may not be fitted so.
    """
    assert known is not None  # only of steps that take a covariance
    error = known.error_in_single(rows)
    with np.errstate(divide="ignore", invalid="ignore"):
        match step:
            case Whiten(method=Whitening.ZCA):
                # An error of a variance is half as large in a deviation, and grows where a variance is small.
                return error / 2 * known.growth(known.whitening(step.floor))
            case PCA():
                variances = known.components[0]
                made = variances[: step.dim]
                return error * float(np.sqrt(np.max(known.turns[: step.dim] @ variances / made)))
            case RemoveTop():
                variances, count = known.components[0], removed(step, len(known.mean))
                both = variances[:count, None] + variances[count:]
                turned = np.sum(known.turns[:count, count:] * both)
                return error * float(np.sqrt(turned / np.sum(variances[count:])))
    raise ValueError(f"{step.kind} is fitted in float64")


def _minus(rows: np.ndarray, row: np.ndarray) -> np.ndarray:
    rows -= row
    return rows


def _along(to: Fitting, matrix: np.ndarray, *, exact: bool = False) -> Operation:
    """Deviations from the mean row, times a matrix; in float64 if that is asked for."""
    known, deviations, rounded = to.known, _deviations(to.known), matrix.astype(np.float32)
    return Operation(
        lambda rows, numbers: deviations(rows, numbers) @ (matrix if rows.dtype == np.float64 else rounded),
        lambda known: known.after(matrix),
        single=to.last and not exact and _lost_by_sums(len(matrix), known.growth(matrix)) <= LOST_IN_SINGLE,
    )


def _lost_by_sums(terms: int, growth: float) -> float:
    """What products lose in float32: in each sum, roundings of its largest partial sum that are independent.

    Args:
        growth: how much larger the terms are than the sum, as a ratio of variances.
    """
    return float(np.finfo(np.float32).eps) / 2 * math.sqrt(terms * growth)


def _deviations(known: Moments) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """Subtracts the mean row, in place."""
    mean = known.mean
    if not np.any(mean):
        return lambda rows, _: rows
    high = mean.astype(np.float32)
    # In float32, deviations from the mean and not from one that is rounded, where that makes a difference.
    low = (mean - high).astype(np.float32) if np.any(mean**2 > known.variance) else None

    def apply(rows: np.ndarray, _: np.ndarray) -> np.ndarray:
        if rows.dtype == np.float64:
            return _minus(rows, mean)
        return _minus(rows, high) if low is None else _minus(_minus(rows, high), low)

    return apply


def _times(factor: float) -> Operation:
    return Operation(
        lambda rows, _: np.multiply(rows, factor, out=rows),
        lambda known: Moments(known.mean * factor, known.spread * factor**2),
        single=True,
    )


def _columns(columns: np.ndarray) -> Operation:
    first, last = int(columns[0]), int(columns[-1])
    # A slice is a view, which is as good: rows that are changed in place are those of a block.
    step = int(columns[1]) - first if len(columns) > 1 else 1
    if np.all(np.diff(columns) == step):
        even = slice(first, last + 1, step)
        return Operation(lambda rows, _: rows[:, even], lambda known: known.of_columns(columns), exact=True)
    return Operation(lambda rows, _: rows.take(columns, axis=1), lambda known: known.of_columns(columns), exact=True)


def center(step: Center, to: Fitting) -> Operation:
    """Subtracts the mean row."""
    return Operation(_deviations(to.known), lambda known: Moments(np.zeros_like(known.mean), known.spread), single=True)


def normalize(step: Normalize, to: Fitting) -> Operation:
    """Divides each row by its Euclidean length."""

    def apply(rows: np.ndarray, _: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore"):
            squares = np.einsum("ij,ij->i", rows, rows)
        beyond = np.flatnonzero(~((squares > _LEAST) & (squares < 1 / _LEAST)))
        whole = rows[beyond].astype(np.float64)
        squares[beyond] = 1
        rows /= np.sqrt(squares)[:, None]
        lengths = np.sqrt(np.einsum("ij,ij->i", whole, whole))
        lengths[lengths == 0] = 1
        rows[beyond] = whole / lengths[:, None]
        return rows

    return Operation(apply, single=True)


def scale(step: Scale, to: Fitting) -> Operation:
    """Gives all numbers together a standard deviation.

    Raises:
        DataError: they are all the same.
    """
    known = to.known
    # Of all numbers: the mean of their squares less the square of their mean, and the same of each column.
    variance = float(np.mean(known.variance) + np.var(known.mean))
    if not variance > 0:
        raise DataError("transform: rows can't be scaled to a standard deviation, as all their numbers are the same")
    wanted = deviation_of(to.table.initializer, to.table.dim) if step.std is None else step.std
    return _times(wanted / np.sqrt(variance))


def pca(step: PCA, to: Fitting) -> Operation:
    """Deviations from the mean row, along the first principal components."""
    _, directions = to.known.components
    return _along(to, np.ascontiguousarray(directions[:, : step.dim]), exact=step.exact)


def whiten(step: Whiten, to: Fitting) -> Operation:
    """Deviations from the mean row, along the principal components, each divided by its standard deviation.

    Raises:
        DataError: all rows are the same.
    """
    known = to.known
    if not np.any(known.variance > 0):
        raise DataError("transform: rows can't be whitened, as they are all the same")
    return _along(to, known.whitening(step.floor, components=step.method is Whitening.PCA))


def select(step: Select, to: Fitting) -> Operation:
    """Keeps `dim` columns, in their order."""
    count = step.dim or to.dim
    match step.by:
        case SelectBy.VARIANCE:
            chosen = np.argsort(-to.known.variance, kind="stable")[:count]
        case SelectBy.UNIFORM:
            chosen = np.arange(count) * to.dim // count
        case SelectBy.RANDOM:
            key = digests.seed_of(to.table.seed, "selected columns", to.table.name)
            chosen = np.random.Generator(np.random.Philox(key=key)).permutation(to.dim)[:count]
        case SelectBy.FIRST:
            chosen = np.arange(count)
    return _columns(np.sort(chosen))


def remove_top(step: RemoveTop, to: Fitting) -> Operation:
    """Subtracts the mean row, and what is left along the first principal components."""
    known, count, deviations = to.known, removed(step, to.dim), _deviations(to.known)
    variances, directions = known.components
    top = np.ascontiguousarray(directions[:, :count])
    rounded = top.astype(np.float32)
    # Of all numbers together: one of which little is left has little to say.
    growth = (np.sum(variances) + np.sum(variances[:count])) / max(float(np.sum(variances[count:])), TINY)

    def apply(rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        axes = top if rows.dtype == np.float64 else rounded
        along = deviations(rows, numbers) @ axes
        # The same products: the library takes four times as long for matrices of one column.
        return _minus(rows, along * axes.T if count == 1 else along @ axes.T)

    return Operation(
        apply,
        lambda known: known.after(np.eye(to.dim) - top @ top.T),
        single=to.last and _lost_by_sums(to.dim, growth) <= LOST_IN_SINGLE,
    )


def removed(step: RemoveTop, dim: int) -> int:
    """How many directions of rows of a length are removed."""
    return max(dim // 100, 1) if step.count is None else step.count


def frequency_weight(step: FrequencyWeight, to: Fitting) -> Operation:
    """Multiplies each row by a / (a + p)."""
    share = _by_rank(to.rows) if step.frequencies is Frequencies.RANKS else _by_count(to.table)

    def apply(rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        rows[: len(numbers)] *= (step.a / (step.a + share(numbers))).astype(rows.dtype)[:, None]
        return rows

    return Operation(apply, single=True)


def _by_rank(rows: int) -> Callable[[np.ndarray], np.ndarray]:
    """Of rows of a file, by number: the share of each, as 1 / (number + 1)."""
    ranges = range(0, rows, _RANKS_AT_ONCE)
    total = sum(float(np.sum(1 / np.arange(start + 1, min(start + _RANKS_AT_ONCE, rows) + 1))) for start in ranges)
    return lambda numbers: 1 / ((numbers + 1) * total)


def _by_count(table: TableRows) -> Callable[[np.ndarray], np.ndarray]:
    """Of rows of a file, by number: the share of the training split's tokens that take it."""
    assert table.counts is not None  # checked when the table was aligned
    counts, used = table.counts, table.used

    def share(numbers: np.ndarray) -> np.ndarray:
        if used is None:
            return np.asarray(counts[numbers] / table.occurrences)
        places = np.minimum(np.searchsorted(used, numbers), len(used) - 1)
        return np.where(used[places] == numbers, counts[places], 0) / table.occurrences

    return share


def truncate(step: Truncate, to: Fitting) -> Operation:
    """Keeps the first columns."""
    return _columns(np.arange(step.dim or to.dim))


def zero_pad(step: ZeroPad, to: Fitting) -> Operation:
    """Appends columns of zeros."""
    dim = step.dim or to.dim

    def apply(rows: np.ndarray, _: np.ndarray) -> np.ndarray:
        result = np.zeros((len(rows), dim), rows.dtype)
        result[:, : to.dim] = rows
        return result

    return Operation(apply, lambda known: known.padded(dim), exact=True)


def random_pad(step: RandomPad, to: Fitting) -> Operation:
    """Appends random columns."""
    table, width = to.table, (step.dim or to.dim) - to.dim
    initializer = table.initializer if step.std is None else Normal(stddev=step.std)
    if isinstance(initializer, TruncatedNormal) and initializer.stddev is None:
        initializer = TruncatedNormal(stddev=1 / math.sqrt(table.dim))  # of whole rows, not of what is appended
    name = f"{table.name} (padding)"
    source = InitializerRows(initializer, rows=to.rows, dim=width, seed=table.seed, table=name)

    @functools.lru_cache(maxsize=1)
    def block(number: int) -> np.ndarray:
        return source.read(number * ROWS_PER_DRAW, min((number + 1) * ROWS_PER_DRAW, to.rows))

    def apply(rows: np.ndarray, numbers: np.ndarray) -> np.ndarray:
        result = np.zeros((len(rows), to.dim + width))
        result[:, : to.dim] = rows
        of = numbers // ROWS_PER_DRAW
        for each in np.unique(of):
            places = np.flatnonzero(of == each)
            result[places, to.dim :] = block(int(each))[numbers[places] % ROWS_PER_DRAW]
        return result

    return Operation(apply)
