"""Recall and speed of the indexes that `embexp export --as index` writes, compared with faiss' exact search.

    python -m bench.index [--quick] [--json FILE]

There are two data sets: Gaussian rows without any structure that would help, and rows around 2,000 Gaussian centres.
Queries come from the same distribution as the rows. The index is tuned on 1,000 queries. Recall@10 compares the results
for 1,000 other queries with exact search. Speed is measured on batches of these, on all cores. The targets are a recall
of 0.99 and 1,000 queries per second.
"""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

import numpy as np

from bench import harness
from embexp.vectors import neighbors

DIM, QUERIES, CENTRES, K = 64, 2_000, 2_000, neighbors.K
RECALL, SPEED = 0.99, 1_000


def gaussian(random: np.random.Generator, rows: int) -> np.ndarray:
    return random.standard_normal((rows, DIM), np.float32)


def clustered(random: np.random.Generator, rows: int) -> np.ndarray:
    centres = np.random.default_rng(1).standard_normal((CENTRES, DIM), np.float32)
    return centres[random.integers(CENTRES, size=rows)] + gaussian(random, rows) / 2


def flat(rows: np.ndarray, queries: np.ndarray) -> tuple[np.ndarray, float]:
    """The best rows by faiss' exact search, and its queries per second."""
    faiss: Any = importlib.import_module("faiss")

    faiss.omp_set_num_threads(harness.CORES)
    index = faiss.IndexFlatIP(DIM)
    index.add(rows)
    began = time.perf_counter()
    found = index.search(queries, K)[1]
    return found, len(queries) / (time.perf_counter() - began)


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if every target is met, else 1."""
    parser = harness.parser("index", __doc__, quick="a tenth of the rows")
    options = parser.parse_args(argv)
    described = harness.introduce_in_a_line()
    count, results = 100_000 if options.quick else 1_000_000, {}
    for name, make in (("gaussian", gaussian), ("clustered", clustered)):
        random = np.random.default_rng(0)
        rows, queries = make(random, count), make(random, QUERIES)
        asked = queries[1::2]
        truth, exact_speed = flat(rows, asked)
        print(f"\n{name}, {count:,} x {DIM}: faiss' exact search, {exact_speed:,.0f} queries per second", flush=True)
        found = neighbors.build_index(rows, queries, recall=RECALL)
        ours = found.index.search(asked, K, found.effort)
        recall = float(np.mean([len(np.intersect1d(*each)) / K for each in zip(ours, truth, strict=True)]))
        again = flat(rows, asked[:500])[1]
        ratio = found.queries_per_second / again
        met = recall >= RECALL and found.queries_per_second >= SPEED
        results[name] = found.facts | {"recall": recall, "flat": again, "ratio": ratio, "met": met}
        print(
            f"{found.form}, {found.effort}: built in {found.build_seconds:.0f} s; recall@{K}"
            f" {recall:.4f}, {found.queries_per_second:,.0f} queries per second, {ratio:.1f} × exact search;"
            f" >= {RECALL} and >= {SPEED:,} {harness.word(met)}",
            flush=True,
        )
    harness.save(options, described, results=results)
    return 0 if all(each["met"] for each in results.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
