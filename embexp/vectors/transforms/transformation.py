"""The rows of a file, transformed step by step: what is fitted, how moments move, and the rows themselves.

Steps are fitted and computed in float64; in float32 only if none of them loses more than the rounding of its result, or
than `LOST_IN_SINGLE`. Blocks have always the same shape, as a matrix product may round a row otherwise in a product of
another shape: a row does not depend on which others are read with it. Moments are measured once for all steps up to the
next whose rows have moments that do not follow from those before, and are kept in the cache.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from embexp.specs.base import implementation
from embexp.specs.transforms import (
    Frequencies,
    FrequencyWeight,
    Needs,
    RandomPad,
    Scale,
    Step,
)
from embexp.system import arrays, caching, digests
from embexp.system.arrays import SomeRows
from embexp.system.parallel import Progress, quiet
from embexp.vectors.file_source import VectorSource
from embexp.vectors.initial_rows import BLOCK_BYTES
from embexp.vectors.moments import Moments, Part, linear_algebra, measure
from embexp.vectors.transforms.steps import (
    LOST_IN_SINGLE,
    Fitting,
    Operation,
    TableRows,
    fitted_to_directions,
    lost_by_fitting,
    may_fit_in_single,
)

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
