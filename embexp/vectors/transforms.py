"""The rows of a file, transformed step by step: what is fitted, how moments move, and the rows themselves.

Steps are fitted and computed in float64; in float32 only if none of them loses more than the rounding of its result, or
than `LOST_IN_SINGLE`. Blocks have always the same shape, as a matrix product may round a row otherwise in a product of
another shape: a row does not depend on which others are read with it. Moments are measured once for all steps up to the
next whose rows have moments that do not follow from those before, and are kept in the cache.

What each step of a transform does to rows, once it is fitted: in float64, or in float32 where that loses little.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from embexp.errors import DataError
from embexp.specs.base import implementation
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
from embexp.system import arrays, caching, digests
from embexp.system.arrays import SomeRows
from embexp.system.parallel import Progress, quiet
from embexp.vectors.file_source import VectorSource
from embexp.vectors.initial_rows import BLOCK_BYTES, ROWS_PER_DRAW, Drawn, InitializerRows, deviation_of
from embexp.vectors.moments import TINY, Moments, Part, linear_algebra, measure

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
        raise DataError(
            "transform: rows can't be scaled to a standard deviation because all their numbers are the same"
        )
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
        raise DataError("transform: rows can't be whitened because they are all the same")
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


_ROWS_AT_ONCE = 1_024
_BYTES_FOR_TWO = 1 << 20
"""From so many on, rows are transformed by two threads."""
_VERSION = 2
"""Of the moments in the cache."""
_WORTH_SINGLE = 1 << 24
"""Numbers from which on it is worth trying to fit in float32: with less, a pass through the file takes no time."""
_BLOCKS_AHEAD = 4
"""That are read from the disk while others are fitted to."""


class Transformation:
    """The rows of a source after all steps.

    Attributes:
        dim: length of a row.
        steps: with every length settled.
    """

    def __init__(
        self,
        source: VectorSource,
        steps: Sequence[Step],
        dim: int,
        table: TableRows,
        *,
        only_used: bool = False,
        identity: Mapping[str, Any],
        cache: Path,
        progress: Progress = quiet,
    ) -> None:
        """Takes a source and settled steps; reads nothing before the first row is asked for.

        Args:
            dim: length of the rows after all steps.
            only_used: whether steps are fitted on the rows that the table takes, not on all of the file.
            identity: what the source's rows depend on beside the content of its file.
            cache: folder for what is fitted.
        """
        self.steps, self.dim = tuple(steps), dim
        self._source, self._table, self._cache, self._progress = source, table, cache, progress
        self._used = table.used if only_used else None
        self._identity = dict(identity)

    def apply(self, rows: np.ndarray, numbers: np.ndarray, result: np.ndarray | None = None) -> np.ndarray:
        """Float32 [n, length of the file's rows], and their numbers in the file, int [n], to float32 [n, dim].

        Args:
            result: what to write them into; None: an array of its own.
        """
        made = np.empty((len(rows), self.dim), np.float32) if result is None else result
        operations = self._operations
        starts = iter(range(0, len(rows), _ROWS_AT_ONCE))  # each is taken by one thread
        # Blocks are too small for several threads in each product, which would wait for each other.
        with linear_algebra().limit(limits=1, user_api="blas"):
            if rows.nbytes < _BYTES_FOR_TWO or all(operation.exact for operation in operations):
                _through(operations, rows, numbers, made, starts)
            else:
                work = [functools.partial(_through, operations, rows, numbers, made, starts)]
                helping = self._helper.submit(lambda: [part() for part in work])
                work[0]()
                if helping.cancel():  # where processors are busy, it may not have begun
                    work.clear()  # it waits in the thread's queue, and the rows must not wait with it
                else:
                    helping.result()
        return made

    @cached_property
    def _helper(self) -> ThreadPoolExecutor:
        """A thread, as to start one for each range of rows takes long where processors are busy."""
        return ThreadPoolExecutor(1, "transform")

    @cached_property
    def _operations(self) -> tuple[Operation, ...]:
        """The steps, fitted one after the other."""
        directions = fitted_to_directions(self.steps)
        last = len(directions) == 1
        rows = self._source.rows if self._used is None else len(self._used)
        single = last and may_fit_in_single(directions[0]) and rows * self._source.dim >= _WORTH_SINGLE
        found = self._fitted(rows, last=last, single=True) if single else None
        return found or self._fitted(rows, last=last, single=False) or ()

    def _fitted(self, rows: int, *, last: bool, single: bool) -> tuple[Operation, ...] | None:
        """The steps, fitted to moments whose sums are of float32 or 64; None: float32 loses too much."""
        found: list[Operation] = []
        known: Moments | None = None
        dim = self._source.dim
        for place, step in enumerate(self.steps):
            takes_covariance = step.required() is Needs.COVARIANCE
            if step.required() is not Needs.NOTHING and known is None:
                known = self._measured(place, found, dim, single=single)
            if single and takes_covariance and not lost_by_fitting(step, known, rows) <= LOST_IN_SINGLE:
                return None
            operation = implementation(step)(Fitting(dim, known, self._source.rows, self._table, last=last))
            known = None if known is None or operation.moved is None else operation.moved(known)
            dim = step.resulting(dim, None)
            found.append(operation)
        return tuple(found)

    def _takes_covariance(self, place: int) -> bool:
        """Whether a step needs the covariance, from here to the first whose rows have other moments."""
        for step in self.steps[place:]:
            if step.required() is Needs.COVARIANCE or not step.affine:
                return step.required() is Needs.COVARIANCE
        return False

    def _measured(self, place: int, operations: Sequence[Operation], dim: int, *, single: bool) -> Moments:
        """Moments of the rows of length `dim` that the first steps make, kept in the cache."""
        covariance = self._takes_covariance(place)
        single = single and covariance
        folder = caching.folder(
            self._cache,
            "moments",
            self._key(place, covariance=covariance, single=single),
            lambda empty: measure(self._blocks(operations, dim), covariance=covariance, single=single).save(empty),
        )
        return Moments.load(folder)

    def _blocks(self, operations: Sequence[Operation], dim: int) -> Iterator[Part]:
        source, used = self._source, self._used
        rows, mapping = (source, source.memory_map()) if used is None else (SomeRows(source, used), None)
        step = max(BLOCK_BYTES // (4 * source.dim), 1)
        for start in range(0, rows.rows, step):
            stop = min(start + step, rows.rows)
            values = rows.read(start, stop) if mapping is None else mapping[start:stop]
            if mapping is not None:
                arrays.read_ahead(mapping[stop : stop + _BLOCKS_AHEAD * step])
            numbers = np.arange(start, stop) if used is None else used[start:stop]
            yield values if not operations else functools.partial(_made, operations, values, numbers, dim)
            self._progress("fitting the transform", stop / rows.rows)

    def _key(self, place: int, *, covariance: bool, single: bool) -> str:
        """Cache key of the moments of what the first steps make."""
        before, table = self.steps[:place], self._table
        parts: list[Any] = [_VERSION, self._source.digest, self._identity, self._source.rows, covariance]
        parts += [self._used is not None, [step.model_dump(mode="json") for step in before]]
        if single:
            parts.append("float32")
        if self._used is not None:
            parts += ["used", _digest(self._used)]
        if any(isinstance(step, Scale | RandomPad) for step in before):
            parts += [table.initializer.model_dump(mode="json"), table.dim]
        if any(step.drawn for step in before):
            parts += [table.name, table.seed]
        if any(isinstance(step, FrequencyWeight) and step.frequencies is Frequencies.COUNTS for step in before):
            parts += [_digest(table.used), _digest(table.counts), table.occurrences]
        return digests.of_json(parts)


def _digest(numbers: np.ndarray | None) -> str | None:
    return None if numbers is None else digests.of_rows([np.asarray(numbers, np.int64)])


def _made(operations: Sequence[Operation], rows: np.ndarray, numbers: np.ndarray, dim: int) -> np.ndarray:
    """Rows after some operations, float64 [n, dim]."""
    result = np.empty((len(rows), dim))
    _through(operations, rows, numbers, result, range(0, len(rows), _ROWS_AT_ONCE))
    return result


def _through(
    operations: Sequence[Operation], rows: np.ndarray, numbers: np.ndarray, result: np.ndarray, starts: Iterable[int]
) -> None:
    """Writes rows after some operations into `result`, [n, dim]: blocks that begin at `starts`."""
    single = all(operation.single or operation.exact for operation in operations)
    changed = not all(operation.exact for operation in operations)
    block = np.zeros((_ROWS_AT_ONCE, rows.shape[1]), np.float32 if single else np.float64)
    for start in starts:
        some = slice(start, start + _ROWS_AT_ONCE)
        values, made = rows[some], result[some]
        count = len(values)
        if changed:
            in_place = single and made.shape == values.shape and made.dtype == np.float32
            copy = made if in_place else block
            copy[:count] = values
            copy[count:] = 0
            values = copy
        for operation in operations:
            values = operation.apply(values, numbers[some])
        if values is not made:
            made[:] = values[:count]
