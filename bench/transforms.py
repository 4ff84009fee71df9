"""Time and memory of transforms, from a pretrained file to a table's rows, relative to one reading of the file.

    python -m bench.transforms [--quick] [--megabytes N] [--dim N] [--steps A,B] [--cached] [--repetitions N]

The file is float32 in `.npy`. A reading copies all rows, block by block, into a single block. A transform is fitted,
and then copies the rows that it makes in the same way. embexp's cache is empty. Every measurement runs twice in a new
process after its imports, and the second one counts. Before each, the file is dropped from the page cache; with
--cached, it stays there. Ratios are taken within a repetition, and their median is reported. Memory is anonymous, and
excludes mapped pages.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness

MB = 10**6
FITTED, UNFITTED, MEMORY = 2.5, 1.3, 0.1
BLOCK = 8 * 1024 * 1024
CASES: dict[str, tuple[list[Any], float]] = {
    "truncate": ([{"truncate": 32}], UNFITTED),
    "zero_pad": ([{"zero_pad": 0}], UNFITTED),
    "select uniform": ([{"select": {"by": "uniform", "dim": 32}}], UNFITTED),
    "normalize": (["normalize"], UNFITTED),
    "frequency_weight": ([{"frequency_weight": {"frequencies": "ranks"}}], UNFITTED),
    "center": (["center"], FITTED),
    "scale": ([{"scale": 0.05}], FITTED),
    "select variance": ([{"select": {"dim": 32}}], FITTED),
    "pca": ([{"pca": 32}], FITTED),
    "whiten": (["whiten"], FITTED),
    "remove_top": (["remove_top"], FITTED),
    "center+pca+scale": (["center", {"pca": 32}, {"scale": 0.05}], FITTED),
}


def write(path: Path, rows: int, dim: int) -> None:
    """Writes normal values with a scale for each column; some rows repeat after a block."""
    block = np.random.default_rng(0).standard_normal((BLOCK // (4 * dim), dim), np.float32)
    block *= np.geomspace(2, 0.1, dim, dtype=np.float32)
    matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, dim))
    for number, start in enumerate(range(0, rows, len(block))):
        part = matrix[start : start + len(block)]
        part[:] = np.roll(block, number, axis=0)[: len(part)]
    matrix.flush()


class Block:
    """Stands in for a table: all rows are copied into the same block."""

    def __init__(self, rows: int, dim: int) -> None:
        self.name, self.rows, self.dim = "t", rows, dim
        self._block = np.ones((BLOCK // (4 * dim), dim), np.float32)

    def write(self, start: int, values: np.ndarray) -> None:
        """Copies rows, float32 [n, dim], over the previous ones."""
        self._block[: len(values)] = values


def measure(path: Path, steps: list[Any], *, cached: bool) -> dict[str, float]:
    """Seconds to read all rows of a file after some transforms, and the growth to the peak memory in bytes."""
    from pydantic import TypeAdapter

    from embexp.initialization.method import assign_rows
    from embexp.specs.pretrained import NonFinite
    from embexp.specs.tables import Normal
    from embexp.specs.transforms import Transform, settled
    from embexp.system.machine import PeakMemory
    from embexp.vectors.alignment import by_position
    from embexp.vectors.file_source import open_vectors
    from embexp.vectors.initial_rows import AlignedRows, InitializerRows
    from embexp.vectors.transforms import TableRows, Transformation

    with tempfile.TemporaryDirectory() as cache:
        source = open_vectors(path, cache=Path(cache), non_finite=NonFinite.KEEP)
        source.__dict__["digest"] = "of this file"  # which a run imports in any case
        transform = None
        if steps:
            chain, dim = settled(TypeAdapter(Transform).validate_python(steps), source.dim, None)
            table = TableRows("t", 0, Normal(), dim)
            transform = Transformation(source, chain, dim, table, identity={}, cache=Path(cache))
        others = InitializerRows(Normal(), source.rows, source.dim, 0, "t")
        rows = AlignedRows(source, by_position(source.rows), others, transform)
        np.ones(BLOCK, np.uint8) @ np.ones(BLOCK, np.uint8)  # start the threads of the linear algebra
        if not cached:
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        with PeakMemory() as memory:
            began, worked = time.perf_counter(), time.process_time()
            assign_rows(Block(rows.rows, rows.dim), rows, chunk_bytes=2 * BLOCK)
            seconds, processor = time.perf_counter() - began, time.process_time() - worked
        return {"seconds": seconds, "processor": processor, "bytes": float(memory.added or 0)}


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if every target is met, else 1."""
    quick = "one repetition with a file of 60 MB"
    parser = harness.parser("transforms", __doc__, quick=quick, repetitions="number of repetitions (3; quick: 1)")
    parser.add_argument("--megabytes", type=int, default=600, help="megabytes of the file (600; quick: 60)")
    parser.add_argument("--dim", type=int, default=64, help="dimension of its rows (64)")
    parser.add_argument("--steps", help=f"some of {', '.join(CASES)} (default: all)")
    parser.add_argument("--cached", action="store_true", help="keep the file in the page cache")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.measure:
        path, steps = options.measure
        # The second of two, because the first finds memory for the file's pages as another process has left it.
        figures = [measure(Path(path), json.loads(steps), cached=options.cached) for _ in range(2)]
        print(json.dumps(figures[-1]))
        return 0
    described = harness.introduce()
    megabytes = 60 if options.quick else options.megabytes
    repetitions = options.repetitions or (1 if options.quick else 3)
    chosen = {name: case for name, case in CASES.items() if options.steps is None or name in options.steps.split(",")}
    costs: dict[str, list[dict[str, float]]] = {name: [] for name in ("reading", *chosen)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "vectors.npy"
        write(path, megabytes * MB // (4 * options.dim), options.dim)
        where = "in memory" if options.cached else "not in memory"
        print(f"\n{megabytes:,} MB of dim {options.dim}, {where}; seconds (of processors) and MB of anonymous memory")
        for number in range(repetitions):
            for name in np.random.default_rng(number).permutation([*costs]).tolist():
                each = costs[name]
                steps = CASES[name][0] if name in CASES else []
                words = [
                    "--measure",
                    path,
                    json.dumps(steps).replace('"zero_pad": 0', f'"zero_pad": {2 * options.dim}'),
                ]
                each.append(harness.figures("transforms", *words, *(["--cached"] if options.cached else [])))
            print(
                "  ".join(
                    f"{name} {each[-1]['seconds']:.2f} ({each[-1]['processor']:.2f}) s {each[-1]['bytes'] / MB:.0f}"
                    for name, each in costs.items()
                )
            )
    readings = [each["seconds"] for each in costs["reading"]]
    met, ratios = [], {}
    for name, (_, bound) in chosen.items():
        found = harness.ratios([cost["seconds"] for cost in costs[name]], readings)
        ratios[name], good, words_of = harness.judged(found, bound, at_most=True)
        share = max(cost["bytes"] for cost in costs[name]) / (megabytes * MB)
        memory = f"memory {share:.1%} <= {MEMORY:.0%} {harness.word(share <= MEMORY)}"
        print(f"{name:20}{ratios[name]:8.2f} readings  {words_of:40}{memory}")
        met += [good, share <= MEMORY]
    harness.save(options, described, costs=costs, ratios=ratios)
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
