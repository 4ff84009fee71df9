"""The rows of a matrix that are nearest to some of its rows, by the cosine of their angle; and indexes for more.

Indexes of faiss find the rows with the largest inner products. They are tuned to a recall.

| rows | form | effort |
|---|---|---|
| up to 20,000 | exact search | |
| more | codes of 4 bits a number, in inverted lists; the best again in float32 | lists probed |
| more | the codes of all rows; the best again in float32 | rows computed again |

Each form gets the least effort whose recall on half of the queries reaches the one asked for, by two standard errors.
The fastest form is kept, and measured on the other half. A row counts as found if its score is among the best k, so
that rows with equal scores stand for each other.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import DTypeLike

from embexp.errors import DataError, RunError, VocabularyError
from embexp.system import arrays, machine
from embexp.system.arrays import Rows
from embexp.system.parallel import Progress, quiet

_CHUNK_BYTES = 16 * 1024 * 1024
_LAST = (1 << 32) - 1
K = 10
"""Rows that a query asks for."""
_EXACT = 20_000
"""Rows up to which all are searched."""
_TRAINED, _TRAINED_PER_LIST = 65_536, 64
"""Rows from which codes and lists are learned."""
_ROUNDING = 1e-9
_SECONDS = 0.2
"""For how long speed is measured, at least."""
_REFINED, _REFINED_IN_LISTS = (4, 8, 16, 32, 64), 16
"""Of codes: how many times k rows are computed again in float32."""
_MODULE, _PACKAGE = "faiss", "faiss-cpu"


@dataclass(frozen=True)
class Neighbor:
    """A row near another.

    Attributes:
        cosine: of the angle between the two, in [-1, 1] but for rounding.
    """

    row: int
    cosine: float


def nearest(matrix: Rows, queries: Sequence[int], count: int) -> list[list[Neighbor]]:
    """For each of some rows, the others with the greatest cosine, greatest first; of equals the first rows.

    Rows of zeros have no direction and are near to none. Memory is bounded by a chunk of rows.

    Args:
        queries: the rows whose neighbors are wanted.

    Raises:
        DataError: one of the queries has no direction: it is all zeros, or not finite.
    """
    vectors = np.concatenate([matrix.read(row, row + 1) for row in queries])
    return [
        [Neighbor(int(row), float(cosine)) for row, cosine in zip(rows, cosines, strict=True) if row >= 0]
        for rows, cosines in zip(*nearest_rows(matrix, vectors, np.array(queries), count), strict=True)
    ]


def nearest_rows(
    matrix: Rows, vectors: np.ndarray, queries: np.ndarray, count: int, *, progress: Progress = quiet
) -> tuple[np.ndarray, np.ndarray]:
    """As `nearest`, as arrays.

    Args:
        vectors: [queries, dim], the rows whose neighbors are wanted.
        queries: int [queries], their numbers.

    Returns:
        Rows, int64 [queries, n], and cosines, float32; n is `count`, or less where the matrix has fewer rows. Where
        there are fewer neighbors, rows are -1.

    Raises:
        DataError: one of the queries has no direction: it is all zeros, or not finite.
    """
    wanted, nowhere = directions(vectors, np.float64)
    if nowhere.any():
        raise DataError(
            f"row {queries[nowhere][0] + 1} is all zeros or not finite, so it has no direction and no neighbors"
        )
    wanted = wanted.astype(np.float32)
    best = np.empty((len(queries), 0), np.int64)
    size = max(min(_CHUNK_BYTES, _CHUNK_BYTES // len(queries) * matrix.dim), 1)
    for start, values in arrays.blocks(matrix, size):
        units, nowhere = directions(values)
        found = wanted @ units.T
        found[:, nowhere] = -np.inf
        itself = np.flatnonzero((queries >= start) & (queries < start + len(values)))
        found[itself, queries[itself] - start] = -np.inf
        keys = _keys(found, np.arange(start, start + len(values)))
        if best.shape[1] == count:  # few rows of a later block are nearer to anything than what was found before
            keys = keys[:, (keys > best.min(axis=1, keepdims=True)).any(axis=0)]
        best = np.concatenate([best, keys], axis=1)
        if best.shape[1] > count:
            best = np.partition(best, -count, axis=1)[:, -count:]
        progress("finding neighbors", (start + len(values)) / matrix.rows)
    best = -np.sort(-best, axis=1)
    cosines = _ordered((best >> 32).astype(np.int32)).view(np.float32)
    return np.where(cosines > -np.inf, _LAST - (best & _LAST), -1), cosines


def _keys(cosines: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Integers in the order of cosines, and of equal ones the first row last: what sorts them finds no ties.

    Args:
        cosines: float32 [queries, rows].
        rows: int64 [rows], below 2³².
    """
    signed = _ordered((cosines + np.float32(0)).view(np.int32))  # which makes -0 the 0 that it is equal to
    return np.asarray((signed.astype(np.int64) << 32) | (_LAST - rows))


def _ordered(bits: np.ndarray) -> np.ndarray:
    """The bits of float32, as int32 in the order of the numbers; and back."""
    return np.asarray(bits ^ ((bits >> 31) & np.int32(0x7FFFFFFF)))


def directions(values: np.ndarray, dtype: DTypeLike = np.float32) -> tuple[np.ndarray, np.ndarray]:
    """Rows with length 1.

    Args:
        values: [rows, dim].
        dtype: to compute in.

    Returns:
        The rows, zeros where they have no direction; and whether they have none, bool [rows], as they are all zeros or
        not finite, which a policy may keep.
    """
    values = np.asarray(values, dtype)
    largest = np.abs(values).max(axis=1, keepdims=True)
    nowhere = ~((largest > 0) & (largest < np.inf))
    if nowhere.any():
        values, largest = np.where(nowhere, 0, values), np.where(nowhere, 1, largest)
    scaled = values / largest  # squares of very large or small numbers leave float32
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    return scaled / np.where(nowhere, 1, lengths), nowhere[:, 0]


def row_of_token(tokens: pa.Array, token: str, where: str) -> int:
    """The row of a token.

    Args:
        tokens: of each row.
        where: what has the tokens, for the error.

    Raises:
        VocabularyError: there is none.
    """
    row = pc.index(tokens, token).as_py()
    if row >= 0:
        return int(row)
    alike = tokens.filter(pc.equal(pc.utf8_lower(tokens), token.lower())).to_pylist()
    hint = f"; did you mean {alike[0]!r}?" if alike else ""
    raise VocabularyError(f"{where}: found no token {token!r} among {len(tokens):,}{hint}")


def missing_faiss() -> str | None:
    """What to say if faiss is not installed."""
    if importlib.util.find_spec(_MODULE) is not None:
        return None
    return f"an index needs the package {_PACKAGE}, which is not installed: pip install {_PACKAGE}"


@dataclass(frozen=True)
class Measured:
    """An index, and how well it searches.

    Attributes:
        rows: of the index.
        dim: of its rows and queries.
        effort: settings of the search.
        recall: share of the best `k` rows that are found; on `queries` queries by which nothing was chosen, unless
            there were too few.
        queries_per_second: in batches of so many, on `threads` threads.
        exact_queries_per_second: the same of NumPy's matrix products.
    """

    index: Faiss = field(repr=False)
    version: str
    form: str
    rows: int
    dim: int
    effort: dict[str, int]
    k: int
    recall: float
    queries: int
    queries_per_second: float
    exact_queries_per_second: float
    threads: int
    build_seconds: float

    @property
    def facts(self) -> dict[str, Any]:
        """All but the index itself, for JSON."""
        rounded = {name: round(value, 4) if isinstance(value, float) else value for name, value in vars(self).items()}
        del rounded["index"]
        return rounded | {"metric": "inner product"}


def build_index(rows: np.ndarray, queries: np.ndarray, *, recall: float = 0.99, progress: Progress = quiet) -> Measured:
    """Builds the fastest index that has a recall.

    Args:
        rows: float32 [n, d].
        queries: float32 [q, d], such as are asked; what is tuned and measured.
        recall: the share of the best `K` rows that are to be found.
        progress: called with what is being done.

    Raises:
        RunError: no form reaches that recall.
    """
    threads = machine.cores()
    k = min(K, len(rows))
    tuning, asked = (queries, queries) if len(queries) < 2 * K else (queries[::2], queries[1::2])
    progress("searching all rows", None)
    truth, _ = exact_search(rows, tuning, k)
    wanted, exact_speed = exact_search(rows, asked, k)
    found: list[tuple[float, Faiss, dict[str, int], float]] = []
    best = 0.0
    for make in _forms(len(rows), rows.shape[1], threads):
        progress("building the index", None)
        began = time.perf_counter()
        index = make(rows)
        seconds = time.perf_counter() - began
        progress("tuning the index", None)
        effort, reached = _tuned(index, rows, tuning, truth, k, recall)
        best = max(best, reached)
        if effort is not None:
            found.append((_speed(index, asked, k, effort), index, effort, seconds))
    if not found:
        raise RunError(
            f"recall@{k} is {best:.4f} at most effort, which is below the requested {recall:g}: request a lower recall"
        )
    speed, index, effort, seconds = max(found, key=lambda each: each[0])
    numbers = index.search(asked, k, effort)
    return Measured(
        index=index,
        version=metadata.version(_PACKAGE),
        form=index.form,
        rows=len(rows),
        dim=rows.shape[1],
        effort=effort,
        k=k,
        recall=float(_hits(rows, asked, numbers, wanted).mean()),
        queries=len(asked),
        queries_per_second=speed,
        exact_queries_per_second=exact_speed,
        threads=threads,
        build_seconds=seconds,
    )


def exact_search(rows: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, float]:
    """The k-th largest score of each query, float64 [q], by products in float32; and queries per second."""
    least, step, columns = np.empty(len(queries)), max(64, (1 << 24) // len(rows)), rows.T
    began = time.perf_counter()
    for start in range(0, len(queries), step):
        scores = queries[start : start + step] @ columns
        kth = np.partition(scores, len(rows) - k, axis=1)[:, len(rows) - k]
        for place, (row, value) in enumerate(zip(scores, kth, strict=True), start):
            best = np.flatnonzero(row >= value)
            least[place] = _scores(rows, queries[place : place + 1], best[None]).min()
    return least, len(queries) / (time.perf_counter() - began)


def _tuned(
    index: Faiss, rows: np.ndarray, queries: np.ndarray, truth: np.ndarray, k: int, recall: float
) -> tuple[dict[str, int] | None, float]:
    """The least effort with a recall, None if there is none; and the largest recall."""
    efforts, best = index.efforts, 0.0

    def enough(effort: dict[str, int]) -> bool:
        nonlocal best
        hits = _hits(rows, queries, index.search(queries, k, effort), truth)
        best = max(best, float(hits.mean()))
        return bool(hits.mean() - 2 * hits.std() / np.sqrt(len(hits)) >= recall)

    low, high = 0, len(efforts)  # recall rises with effort
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(efforts[middle]) else (middle + 1, high)
    return (efforts[low] if low < len(efforts) else None), best


def _hits(rows: np.ndarray, queries: np.ndarray, numbers: np.ndarray, least: np.ndarray) -> np.ndarray:
    """The share of rows found for each query whose score is at least the k-th best: float64 [q]."""
    scores = _scores(rows, queries, np.maximum(numbers, 0))
    least = least - _ROUNDING * np.abs(least)
    return np.asarray(((scores >= least[:, None]) & (numbers >= 0)).mean(axis=1))


def _scores(rows: np.ndarray, queries: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """float64 [q, k] of rows by number."""
    found = [
        np.einsum("kd,d->k", rows[each].astype(np.float64), query.astype(np.float64))
        for query, each in zip(queries, numbers, strict=True)
    ]
    return np.stack(found)


def _speed(index: Faiss, queries: np.ndarray, k: int, effort: dict[str, int]) -> float:
    """Queries per second, the median of three times."""
    speeds = []
    for _ in range(3):
        done, seconds, began = 0, 0.0, time.perf_counter()
        while not done or seconds < _SECONDS:
            index.search(queries, k, effort)
            done, seconds = done + len(queries), time.perf_counter() - began
        speeds.append(done / seconds)
    return float(np.median(speeds))


def _forms(count: int, dim: int, threads: int) -> Iterator[Callable[[np.ndarray], Faiss]]:
    """What makes the indexes that are tried, from rows."""
    if count <= _EXACT:
        yield lambda rows: Faiss(rows, "Flat", 0, threads)
    else:
        lists = 1 << round(np.log2(np.sqrt(count)))
        yield lambda rows: Faiss(rows, f"IVF{lists},PQ{dim}x4fs,RFlat", lists, threads)
        yield lambda rows: Faiss(rows, f"PQ{dim}x4fs,RFlat", 0, threads)


class Faiss:
    """An index of faiss' factory, by inner product."""

    def __init__(self, rows: np.ndarray, form: str, lists: int, threads: int) -> None:
        """Builds it; `lists` is the number of inverted lists, 0 if it has none."""
        faiss: Any = importlib.import_module(_MODULE)  # its stubs lack what is used here

        faiss.omp_set_num_threads(threads)
        self.form, self._lists, self._faiss = form, lists, faiss
        self._index = faiss.index_factory(rows.shape[1], form, faiss.METRIC_INNER_PRODUCT)
        if not self._index.is_trained:
            step = -(-len(rows) // max(_TRAINED, _TRAINED_PER_LIST * lists))
            self._index.train(np.ascontiguousarray(rows[::step]))
        self._index.add(np.ascontiguousarray(rows))

    @property
    def efforts(self) -> Sequence[dict[str, int]]:
        """Settings of a search, by rising effort: lists probed, and rows computed again."""
        if "RFlat" not in self.form:
            return [{}]
        if not self._lists:
            return [{"k_factor": factor} for factor in _REFINED]
        probes = [1 << power for power in range(self._lists.bit_length())]
        probed = sorted({*probes, *(each * 3 // 2 for each in probes[1:-1])})
        found = [{"nprobe": each, "k_factor": _REFINED_IN_LISTS} for each in probed]
        return [*found, {"nprobe": self._lists, "k_factor": _REFINED[-1]}]

    def search(self, queries: np.ndarray, k: int, effort: dict[str, int]) -> np.ndarray:
        """Numbers of the best k rows, integers [n, k], for queries float32 [n, d]; -1 where fewer are found."""
        parameters = None
        if effort:
            inner = self._faiss.SearchParametersIVF(nprobe=effort["nprobe"]) if self._lists else None
            parameters = self._faiss.IndexRefineSearchParameters(k_factor=effort["k_factor"], base_index_params=inner)
        return np.asarray(self._index.search(queries, k, params=parameters)[1])

    def save(self, path: Path, effort: dict[str, int]) -> None:
        """Writes the file, whose searches have this effort."""
        if effort:
            self._index.k_factor = effort["k_factor"]
            if self._lists:
                self._faiss.extract_index_ivf(self._index).nprobe = effort["nprobe"]
        self._faiss.write_index(self._index, os.fspath(path))
