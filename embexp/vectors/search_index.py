"""Indexes that find the rows with the largest inner products, by faiss, hnswlib or usearch, tuned to a recall.

| library | form | effort |
|---|---|---|
| faiss, up to 20,000 rows | exact search | |
| faiss | codes of 4 bits a number, in inverted lists; the best again in float32 | lists probed |
| faiss | the codes of all rows; the best again in float32 | rows computed again |
| hnswlib, usearch | a graph of neighbors (HNSW, Malkov and Yashunin 2016) | rows visited |

A graph needs rows of one length: of many lengths, the longest would be everybody's neighbors. So a number is added to
each, the root of M² - |v|² where M is the largest length, and 0 to queries (Bachrach et al. 2014): products stay.

Each form gets the least effort whose recall on half of the queries reaches the one asked for, by two standard errors.
The fastest form is kept, and measured on the other half. A row counts as found if its score is among the best k, so
that rows with equal scores stand for each other.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from importlib import metadata
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from embexp.errors import RunError
from embexp.system import machine
from embexp.system.parallel import Progress, quiet

K = 10
"""Rows that a query asks for."""
_EXACT = 20_000
"""Rows up to which faiss searches them all."""
_TRAINED, _TRAINED_PER_LIST = 65_536, 64
"""Rows from which faiss learns codes and lists."""
_LENGTHS_ALIKE = 1e-4
_ROUNDING = 1e-9
_SECONDS = 0.2
"""For how long speed is measured, at least."""
_REFINED, _REFINED_IN_LISTS = (4, 8, 16, 32, 64), 16
"""Of faiss' codes: how many times k rows are computed again in float32."""
_VISITED = tuple(sorted({*(1 << power for power in range(4, 14)), *(3 << power for power in range(3, 12))}))
"""Of a graph: rows visited."""
_LARGE, _CONNECTED, _CONNECTED_LARGE, _BUILT_WITH = 100_000, 16, 32, 200
"""Of a graph: the rows from which it is large, the connections of a row, and rows visited to find these."""
_PACKAGES = {"faiss": "faiss-cpu", "hnswlib": "hnswlib", "usearch": "usearch"}


class Library(StrEnum):
    """What searches."""

    FAISS = "faiss"
    HNSWLIB = "hnswlib"
    USEARCH = "usearch"


def missing(library: Library) -> str | None:
    """What to say if a library is not installed."""
    package = _PACKAGES[library]
    if importlib.util.find_spec(library) is not None:
        return None
    return f"an index of {library} needs the package {package}, which is not installed: pip install {package}"


class Index(Protocol):
    """Rows that can be searched.

    Attributes:
        form: what it is, in the words of the library.
        efforts: settings of a search, by rising effort.
    """

    form: str

    @property
    def efforts(self) -> Sequence[dict[str, int]]:
        """Settings of a search, by rising effort."""

    def search(self, queries: np.ndarray, k: int, effort: dict[str, int]) -> np.ndarray:
        """Numbers of the best k rows, integers [n, k], for queries float32 [n, d]; -1 where fewer are found."""

    def save(self, path: Path, effort: dict[str, int]) -> None:
        """Writes the file, with the effort where the library keeps it."""


@dataclass(frozen=True)
class Measured:
    """An index, and how well it searches.

    Attributes:
        rows: of the index.
        dim: of its rows and queries.
        added: whether rows and queries have one more number than the vectors.
        effort: settings of the search.
        recall: share of the best `k` rows that are found; on `queries` queries by which nothing was chosen, unless
            there were too few.
        queries_per_second: in batches of so many, on `threads` threads.
        exact_queries_per_second: the same of NumPy's matrix products.
    """

    index: Index = field(repr=False)
    library: Library
    version: str
    form: str
    rows: int
    dim: int
    added: bool
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


def build(
    rows: np.ndarray, queries: np.ndarray, library: Library, *, recall: float = 0.99, progress: Progress = quiet
) -> Measured:
    """Builds the fastest index of a library that has a recall.

    Args:
        rows: float32 [n, d].
        queries: float32 [q, d], such as are asked; what is tuned and measured.
        recall: the share of the best `K` rows that are to be found.
        progress: called with what is being done.

    Raises:
        RunError: no form of the library reaches that recall.
    """
    threads = machine.cores()
    k = min(K, len(rows))
    tuning, asked = (queries, queries) if len(queries) < 2 * K else (queries[::2], queries[1::2])
    progress("searching all rows", None)
    truth, _ = exact(rows, tuning, k)
    wanted, exact_speed = exact(rows, asked, k)
    found: list[tuple[float, Index, dict[str, int], float]] = []
    best = 0.0
    added = library is not Library.FAISS and lengths_differ(rows)
    stored, first, last = (lengthened(rows), with_zero(tuning), with_zero(asked)) if added else (rows, tuning, asked)
    for make in _forms(library, stored.shape, threads):
        progress(f"building the index of {library}", None)
        began = time.perf_counter()
        index = make(stored)
        seconds = time.perf_counter() - began
        progress("tuning the index", None)
        effort, reached = _tuned(index, rows, (tuning, first), truth, k, recall)
        best = max(best, reached)
        if effort is not None:
            found.append((_speed(index, last, k, effort), index, effort, seconds))
    if not found:
        raise RunError(
            f"{library}: recall@{k} is {best:.4f} at the most effort, less than the {recall:g} asked for: ask for a"
            " lower recall, or take the index of faiss"
        )
    speed, index, effort, seconds = max(found, key=lambda each: each[0])
    numbers = index.search(last, k, effort)
    return Measured(
        index=index,
        library=library,
        version=metadata.version(_PACKAGES[library]),
        form=index.form,
        rows=len(stored),
        dim=stored.shape[1],
        added=added,
        effort=effort,
        k=k,
        recall=float(_hits(rows, asked, numbers, wanted).mean()),
        queries=len(asked),
        queries_per_second=speed,
        exact_queries_per_second=exact_speed,
        threads=threads,
        build_seconds=seconds,
    )


def exact(rows: np.ndarray, queries: np.ndarray, k: int) -> tuple[np.ndarray, float]:
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


def lengths_differ(rows: np.ndarray) -> bool:
    """Whether the lengths of rows differ by more than rounding."""
    lengths = np.linalg.norm(rows, axis=1)
    return bool(lengths.max() - lengths.min() > _LENGTHS_ALIKE * lengths.max())


def lengthened(rows: np.ndarray) -> np.ndarray:
    """Rows of one length, float32 [n, d + 1]: their last number is the root of what lacks to the largest square."""
    squares = np.einsum("nd,nd->n", rows, rows, dtype=np.float64)
    return np.concatenate([rows, np.sqrt(squares.max() - squares)[:, None].astype(np.float32)], axis=1)


def with_zero(queries: np.ndarray) -> np.ndarray:
    """Queries of such rows: float32 [q, d + 1]."""
    return np.pad(queries, ((0, 0), (0, 1)))


def _tuned(
    index: Index,
    rows: np.ndarray,
    queries: tuple[np.ndarray, np.ndarray],
    truth: np.ndarray,
    k: int,
    recall: float,
) -> tuple[dict[str, int] | None, float]:
    """The least effort with a recall, None if there is none; and the largest recall.

    Args:
        queries: as they are, and as the index takes them.
    """
    efforts, best = index.efforts, 0.0

    def enough(effort: dict[str, int]) -> bool:
        nonlocal best
        hits = _hits(rows, queries[0], index.search(queries[1], k, effort), truth)
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


def _speed(index: Index, queries: np.ndarray, k: int, effort: dict[str, int]) -> float:
    """Queries per second, the median of three times."""
    speeds = []
    for _ in range(3):
        done, seconds, began = 0, 0.0, time.perf_counter()
        while not done or seconds < _SECONDS:
            index.search(queries, k, effort)
            done, seconds = done + len(queries), time.perf_counter() - began
        speeds.append(done / seconds)
    return float(np.median(speeds))


def _forms(library: Library, shape: tuple[int, ...], threads: int) -> Iterator[Any]:
    """What makes the indexes that are tried, from rows."""
    count, dim = shape
    match library:
        case Library.HNSWLIB:
            yield lambda rows: Hnswlib(rows, threads)
        case Library.USEARCH:
            yield lambda rows: Usearch(rows, threads)
        case Library.FAISS if count <= _EXACT:
            yield lambda rows: Faiss(rows, "Flat", 0, threads)
        case Library.FAISS:
            lists = 1 << round(np.log2(np.sqrt(count)))
            yield lambda rows: Faiss(rows, f"IVF{lists},PQ{dim}x4fs,RFlat", lists, threads)
            yield lambda rows: Faiss(rows, f"PQ{dim}x4fs,RFlat", 0, threads)


class Faiss:
    """An index of faiss' factory, by inner product."""

    def __init__(self, rows: np.ndarray, form: str, lists: int, threads: int) -> None:
        """Builds it; `lists` is the number of inverted lists, 0 if it has none."""
        faiss: Any = importlib.import_module("faiss")  # its stubs lack what is used here

        faiss.omp_set_num_threads(threads)
        self.form, self._lists, self._faiss = form, lists, faiss
        self._index = faiss.index_factory(rows.shape[1], form, faiss.METRIC_INNER_PRODUCT)
        if not self._index.is_trained:
            step = -(-len(rows) // max(_TRAINED, _TRAINED_PER_LIST * lists))
            self._index.train(np.ascontiguousarray(rows[::step]))
        self._index.add(np.ascontiguousarray(rows))

    @property
    def efforts(self) -> Sequence[dict[str, int]]:
        """Lists probed, and rows computed again; see `Index`."""
        if "RFlat" not in self.form:
            return [{}]
        if not self._lists:
            return [{"k_factor": factor} for factor in _REFINED]
        probes = [1 << power for power in range(self._lists.bit_length())]
        probed = sorted({*probes, *(each * 3 // 2 for each in probes[1:-1])})
        found = [{"nprobe": each, "k_factor": _REFINED_IN_LISTS} for each in probed]
        return [*found, {"nprobe": self._lists, "k_factor": _REFINED[-1]}]

    def search(self, queries: np.ndarray, k: int, effort: dict[str, int]) -> np.ndarray:
        """See `Index`."""
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


class Hnswlib:
    """A graph of hnswlib, by inner product."""

    def __init__(self, rows: np.ndarray, threads: int) -> None:
        hnswlib: Any = importlib.import_module("hnswlib")

        count, dim = rows.shape
        connected = _connected(count)
        self.form, self._count = f"HNSW, M={connected}, ef_construction={_BUILT_WITH}", count
        self._index = hnswlib.Index("ip", dim)
        self._index.init_index(count, M=connected, ef_construction=_BUILT_WITH)
        self._index.set_num_threads(threads)
        self._index.add_items(rows, np.arange(count))

    @property
    def efforts(self) -> Sequence[dict[str, int]]:
        """Rows visited; see `Index`."""
        return [{"ef": each} for each in _visited(self._count)]

    def search(self, queries: np.ndarray, k: int, effort: dict[str, int]) -> np.ndarray:
        """See `Index`."""
        self._index.set_ef(effort["ef"])
        try:
            return np.asarray(self._index.knn_query(queries, k)[0].astype(np.int64))
        except RuntimeError:  # some query has found fewer than k rows
            return np.full((len(queries), k), -1, np.int64)

    def save(self, path: Path, effort: dict[str, int]) -> None:
        """Writes the file, which does not keep the effort."""
        self._index.save_index(os.fspath(path))


class Usearch:
    """A graph of usearch, by inner product, in float32."""

    def __init__(self, rows: np.ndarray, threads: int) -> None:
        usearch: Any = importlib.import_module("usearch.index")

        count, dim = rows.shape
        connected = _connected(count)
        self.form, self._count = f"HNSW, connectivity={connected}, expansion_add={_BUILT_WITH}", count
        self._index, self._threads = (
            usearch.Index(ndim=dim, metric="ip", dtype="f32", connectivity=connected, expansion_add=_BUILT_WITH),
            threads,
        )
        self._index.add(np.arange(count), rows, threads=threads)

    @property
    def efforts(self) -> Sequence[dict[str, int]]:
        """Rows visited; see `Index`."""
        return [{"expansion_search": each} for each in _visited(self._count)]

    def search(self, queries: np.ndarray, k: int, effort: dict[str, int]) -> np.ndarray:
        """See `Index`."""
        self._index.expansion_search = effort["expansion_search"]
        found = self._index.search(queries, k, threads=self._threads)
        if len(queries) == 1:
            keys, counts = np.asarray(found.keys)[None], np.array([len(found.keys)])
            keys = np.pad(keys, ((0, 0), (0, k - keys.shape[1])))
        else:
            keys, counts = found.keys, found.counts
        return np.where(np.arange(k) < counts[:, None], keys.astype(np.int64), -1)

    def save(self, path: Path, effort: dict[str, int]) -> None:
        """Writes the file, which does not keep the effort."""
        self._index.save(os.fspath(path))


def _connected(count: int) -> int:
    return _CONNECTED_LARGE if count >= _LARGE else _CONNECTED


def _visited(count: int) -> list[int]:
    """Rows visited in a graph of so many: up to all of them."""
    return [each for each in _VISITED if each < 2 * count] or [_VISITED[0]]
