"""Time and memory of init methods: from a matrix in a file to a table, compared with a plain copy and with Keras.

    python -m bench.load [--quick] [--rows N] [--dim N] [--ways A,B] [--repetitions N] [--json FILE]

Every measurement runs in a new process after its imports, with the file in the page cache. Its memory was in use just
before, because the first access to memory in a virtual machine costs several times as much as what is measured here.
Every repetition measures all ways in sequence, so that other load affects all of them alike. Ratios are taken within a
repetition, and their median is reported. Memory is what a process allocated (anonymous pages), without the pages of
mapped files.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil

from bench import harness

MB = 10**6
ROWS, DIM, QUICK_ROWS = 12_000_000, 64, 1_000_000
FOLD = 4
"""Upper bound for the peak memory of any measurement, in copies of the table."""
WRITTEN_ROWS = 250_000
TOUCH = "import sys, numpy; numpy.ones(int(sys.argv[1]) // 8)"
"""Allocates memory, writes to it, and frees it."""
SEVERAL = 4
"""Number of processes that map one file at the same time."""


@dataclass(frozen=True)
class Cost:
    """Seconds until lookups work, and peak anonymous memory in MB."""

    seconds: float
    megabytes: float


@dataclass(frozen=True)
class Target:
    """A figure that is computed from some costs, and its bound."""

    name: str
    ways: tuple[str, ...]
    of: Callable[..., float]
    bound: float
    at_most: bool = True

    def value(self, costs: Mapping[str, list[Cost]]) -> float:
        """The median of the figure over the repetitions."""
        return statistics.median(self.of(*each) for each in zip(*(costs[way] for way in self.ways), strict=True))

    def met(self, value: float) -> bool:
        """Whether a value is within the bound."""
        return value <= self.bound if self.at_most else value >= self.bound


def _times(numerator: Cost, denominator: Cost) -> float:
    return numerator.seconds / denominator.seconds


def _megabytes_over(size: float) -> Callable[[Cost], float]:
    return lambda cost: cost.megabytes / size


def targets(table_megabytes: float) -> list[Target]:
    """The targets for a table of this size."""
    four = f"memory_map × {SEVERAL}"
    return [
        Target("seconds: assign / numpy_copy", ("assign", "numpy_copy"), _times, 1.1),
        Target("memory: assign / the table", ("assign",), lambda cost: cost.megabytes / table_megabytes, 1.15),
        *(
            Target(f"memory: {way} / table and slots", (way,), _megabytes_over(copies * table_megabytes), 1.05)
            for way, copies in SLOTTED.items()
        ),
        Target("seconds: keras_constant / assign", ("keras_constant", "assign"), _times, 4, at_most=False),
        Target("seconds: keras_set_weights / assign", ("keras_set_weights", "assign"), _times, 2, at_most=False),
        Target("seconds: memory_map", ("memory_map",), lambda cost: cost.seconds, 0.3),
        Target("MB: memory_map", ("memory_map",), lambda cost: cost.megabytes, 100),
        Target(f"MB: {four}, together", (four,), lambda cost: cost.megabytes, SEVERAL * 100),
    ]


SLOTTED = {"session_adagrad": 2, "session_adam": 3}
"""Ways with slots in a session, each with the number of variables that are as large as the table."""
WAYS = (
    "numpy_copy",
    "assign",
    *SLOTTED,
    "memory_map",
    f"memory_map × {SEVERAL}",
    "keras_constant",
    "keras_set_weights",
)


def write_matrix(path: Path, rows: int, dim: int) -> None:
    """Writes random float32 rows, and flushes them, so that no write-back disturbs the measurements."""
    made = np.lib.format.open_memmap(path, "w+", np.float32, (rows, dim))
    random = np.random.default_rng(0)
    for start in range(0, rows, WRITTEN_ROWS):
        made[start : start + WRITTEN_ROWS] = random.random((min(WRITTEN_ROWS, rows - start), dim), np.float32)
    made.flush()


def go(way: str, path: Path) -> Cost:
    """Measures one way in its own process, or for `× N` in N processes at the same time."""
    name, _, several = way.partition(" × ")
    subprocess.run([sys.executable, "-c", TOUCH, str(FOLD * path.stat().st_size)], check=True)
    _into_the_page_cache(path)
    command = [sys.executable, "-m", "bench.load_methods", name, str(path)]
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    processes = [
        subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(int(several or 1))
    ]
    try:
        # Each process holds its table until all have reported, so that all tables are in memory at the same time.
        lines = [process.stdout.readline() if process.stdout else b"" for process in processes]
    finally:
        said = [process.communicate()[1] for process in processes]
    for process, error in zip(processes, said, strict=True):
        if process.returncode:
            raise RuntimeError(f"{way} failed:\n{error.decode(errors='replace')}")
    found = [json.loads(line) for line in lines]
    if any(each["anonymous"] is None for each in found):
        raise RuntimeError("this system has no /proc, so anonymous memory can't be read")
    return Cost(max(each["seconds"] for each in found), sum(each["anonymous"] for each in found) / MB)


def _into_the_page_cache(path: Path) -> None:
    with path.open("rb", buffering=0) as file:
        while file.read(1 << 24):
            pass


def _fitting_rows(rows: int, dim: int, folder: str) -> int:
    """The number of rows, reduced until they fit on the disk and in memory."""
    room = min(shutil.disk_usage(folder).free * 0.9, psutil.virtual_memory().available / (FOLD + 2))
    fitting = min(rows, int(room / (4 * dim)))
    if fitting < rows:
        print(f"{rows:,} rows don't fit on the disk, or {FOLD + 2} copies don't fit in memory: using {fitting:,} rows")
    return fitting


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if every target is met, else 1."""
    quick = f"one repetition with {QUICK_ROWS:,} rows"
    parser = harness.parser("load", __doc__, quick=quick, repetitions="number of repetitions (3; quick: 1)")
    parser.add_argument("--rows", type=int, help=f"rows of the matrix ({ROWS:,})")
    parser.add_argument("--dim", type=int, default=DIM, help=f"dimension of the matrix ({DIM})")
    parser.add_argument("--ways", default=",".join(WAYS), help="what to measure, separated by commas (all)")
    options = parser.parse_args(argv)
    repetitions = options.repetitions or (1 if options.quick else 3)
    ways = options.ways.split(",")

    described = harness.introduce()
    costs: dict[str, list[Cost]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(prefix="bench-load-") as folder:
        rows = _fitting_rows(options.rows or (QUICK_ROWS if options.quick else ROWS), options.dim, folder)
        path, size = Path(folder) / "matrix.npy", rows * options.dim * 4 / MB
        print(f"\n{rows:,} × {options.dim} float32, {size:,.0f} MB; seconds and MB of anonymous memory")
        write_matrix(path, rows, options.dim)
        for repetition in range(repetitions):
            print(f"repetition {repetition + 1} of {repetitions}")
            for way in ways:
                cost = go(way, path)
                costs[way].append(cost)
                print(f"  {way:40}{cost.seconds:8.2f} s {cost.megabytes:10,.0f} MB", flush=True)

    print(f"\n{'':42}  median   target")
    values = {}
    chosen = [target for target in targets(size) if set(target.ways) <= set(ways)]
    for target in chosen:
        ratio = values[target.name] = target.value(costs)
        sign, word = ("<=" if target.at_most else ">="), ("MET" if target.met(ratio) else "MISSED")
        print(f"  {target.name:40}{ratio:8.2f} {sign} {target.bound:<5} {word}")
    seconds_and_memory = {way: [vars(cost) for cost in each] for way, each in costs.items()}
    bounds = {target.name: target.bound for target in chosen}
    sizes = {"rows": rows, "dim": options.dim}
    quotable: dict[str, dict[str, object]] = {way: {"cost": each} for way, each in seconds_and_memory.items()}
    for target in chosen:
        if target.of is _times:
            seconds = ([cost.seconds for cost in costs[way]] for way in target.ways)
            quotable[target.ways[0]]["ratio"] = harness.ratios(*seconds)
    harness.save(options, described, quotable, **sizes, costs=seconds_and_memory, values=values, targets=bounds)
    return 0 if all(target.met(values[target.name]) for target in chosen) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
