"""Scanning and encoding a click log, in CSV and in Parquet, compared with pyarrow reading the same files.

    python -m bench.scan [--quick] [--rows N] [--workers N] [--json FILE]

The files are generated. They have a label, 13 numeric columns, and 26 columns of hexadecimal tokens, some with up to a
million distinct values. Each measurement is a new process. pyarrow and embexp take turns, both with all cores, and the
ratio compares the fastest of each. embexp does a whole `scan`: digest of the content, codes, splits, vocabularies and
rows, on disk. Its anonymous memory is also measured for a tenth of the rows, because it may grow with distinct values,
but not with rows. With fewer rows than the default, no target applies, because the fixed costs of a file dominate.

With --workers, one process and so many workers do the same scan, with one cache and with a cache per worker. Each has
its own core, like machines with one core. Workers communicate over loopback. The slowest worker counts: its seconds,
and its processor seconds, which depend less on other load of the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from bench import harness
from embexp.data import together
from embexp.data.columns import Columns
from embexp.data.scan import scan
from embexp.specs.data import CSV, Parquet
from embexp.specs.strategies import MultiWorker
from embexp.strategies.cluster import reading, rendezvous
from embexp.strategies.cluster.places import Place
from embexp.system.machine import PeakMemory

ROWS, QUICK_ROWS = 3_000_000, 300_000
NUMERIC = 13
DISTINCT = [
    *(1_460, 583, 1_000_000, 500_000, 305, 24, 12_500, 633, 3, 93_000, 5_680, 800_000, 3_194),
    *(27, 14_900, 600_000, 10, 5_650, 2_170, 4, 700_000, 18, 15, 100_000, 105, 60_000),
]
"""Number of distinct values of each token column, about as in a public click log."""
RATIO, REPEATS = 0.5, 2
MIB = 2**20
GROWTH_MIB, BYTES_PER_VALUE = 96, 64
"""How much more memory ten times the rows may take, in addition to the memory of new distinct values."""
_BLOCK = 100_000
_PARTS = 6
_HEX = np.frombuffer(b"0123456789abcdef", np.uint8)


def block_of(start: int, count: int) -> pa.Table:
    """The rows `start` to `start + count` of the click log."""
    random = np.random.default_rng([7, start])
    columns: dict[str, Any] = {"label": random.integers(0, 2, count, np.int8)}
    for number in range(NUMERIC):
        columns[f"I{number + 1}"] = np.floor(random.lognormal(1, 1 + number % 4, count)).clip(0, 1e6).astype(np.int32)
    for number, distinct in enumerate(DISTINCT):
        values = (random.random(count) ** 2 * distinct).astype(np.uint64)
        columns[f"C{number + 1}"] = _hexadecimal(values + np.uint64(number << 32))
    return pa.table(columns)


def _hexadecimal(values: np.ndarray) -> pa.Array:
    """A token of eight digits for each value."""
    mixed = (values * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    digits = _HEX[(mixed[:, None] >> (np.arange(8, dtype=np.uint64) * np.uint64(4))) & np.uint64(15)]
    offsets = np.arange(0, 8 * len(values) + 1, 8, dtype=np.int32)
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(digits)))


def write(folder: Path, rows: int) -> None:
    """Writes `log.csv`, and Parquet files into the folder `parquet`."""
    (folder / "parquet").mkdir(parents=True)
    options = pyarrow.csv.WriteOptions(quoting_style="none")
    schema = block_of(0, 1).schema
    starts = range(0, rows, _BLOCK)
    with pyarrow.csv.CSVWriter(folder / "log.csv", schema, write_options=options) as writer:
        for part in range(_PARTS):
            mine = [start for start in starts if start * _PARTS // rows == part]
            if not mine:
                continue
            with pq.ParquetWriter(folder / "parquet" / f"part-{part}.parquet", schema) as parquet:
                for start in mine:
                    block = block_of(start, min(_BLOCK, rows - start))
                    writer.write_table(block)
                    parquet.write_table(block)


def peer(folder: Path, form: str) -> dict[str, float]:
    """Reads the file with pyarrow alone; returns its number of rows."""
    table = pyarrow.csv.read_csv(folder / "log.csv") if form == "csv" else pq.read_table(folder / "parquet")
    return {"rows": table.num_rows}


def ours(folder: Path, form: str) -> dict[str, float]:
    """Scans the file; returns its number of distinct values."""
    columns, data = columns_and_data(folder, form)
    with tempfile.TemporaryDirectory(dir=folder) as cache:
        found = scan(data, columns, cache=Path(cache))
        return {"distinct": sum(vocabulary.size for vocabulary in found.vocabularies.values())}


def columns_and_data(folder: Path, form: str) -> tuple[Columns, CSV | Parquet]:
    """All columns of the click log, and its file."""
    dense = tuple(f"I{number + 1}" for number in range(NUMERIC))
    columns = Columns(ids={f"C{n + 1}": f"C{n + 1}" for n in range(len(DISTINCT))}, dense=dense, label="label")
    settings: dict[str, Any] = {"label": "label", "dense_features": dense}
    if form == "csv":
        return columns, CSV(path=str(folder / "log.csv"), **settings)
    return columns, Parquet(path=str(folder / "parquet"), **settings)


def one_of(folder: Path, cache: Path, worker: int, workers: int, address: str) -> dict[str, float]:
    """Scans as one of several workers, on its own core."""
    os.sched_setaffinity(0, [sorted(os.sched_getaffinity(0))[worker]])
    columns, data = columns_and_data(folder, "parquet")
    spec, place = MultiWorker(workers=workers), Place(worker, address, address if worker == 0 else None)
    met = reading.together(spec, place, together.facts(data)) if workers > 1 else contextlib.nullcontext()
    with met as meeting:
        found = scan(data, columns, cache=cache, workers=meeting)
    return {"distinct": sum(vocabulary.size for vocabulary in found.vocabularies.values())}


def of_workers(folder: Path, workers: int, *, shared: bool) -> dict[str, float]:
    """The seconds of the slowest of several workers, and the largest memory that one of them adds."""
    address = rendezvous.free_address()
    with tempfile.TemporaryDirectory(dir=folder) as caches:
        words = [
            (folder, Path(caches, "0" if shared else str(each)), each, workers, address) for each in range(workers)
        ]
        with ThreadPoolExecutor(workers) as pool:
            found = list(pool.map(lambda each: harness.figures("scan", "--worker", *each), words))
    return {name: max(each[name] for each in found) for name in ("seconds", "processor", "mib")}


def compare_workers(folder: Path, workers: int, repeats: int) -> dict[str, list[dict[str, float]]]:
    """Measures one process and several workers in turns, and prints a line for each."""
    cases = {"1 process": (1, True), "one cache": (workers, True), "a cache each": (workers, False)}
    found: dict[str, list[dict[str, float]]] = {name: [] for name in cases}
    for _ in range(repeats):
        for name, (count, shared) in cases.items():
            found[name].append(of_workers(folder, count, shared=shared))
    print(f"\n{f'{workers} workers, a core each':24}{'s':>8}{'ratio':>7}{'of processor':>14}{'ratio':>7}{'MiB':>7}")
    for name, each in found.items():
        line = f"{name:24}"
        for what, width in (("seconds", 8), ("processor", 14)):
            ratios = harness.ratios([one[what] for one in each], [one[what] for one in found["1 process"]])
            line += f"{statistics.median(one[what] for one in each):{width}.2f}{statistics.median(ratios):7.2f}"
        print(f"{line}{max(one['mib'] for one in each):7.0f}", flush=True)
    return found


def in_process(work: Callable[[], dict[str, float]], interval: float = 0.02) -> None:
    """Works while a thread watches anonymous memory; prints the result, the seconds and the largest growth."""
    with PeakMemory(interval) as memory:
        start, began = time.perf_counter(), time.process_time()
        result = work()
        seconds, processor = time.perf_counter() - start, time.process_time() - began
    print(json.dumps(result | {"seconds": seconds, "processor": processor, "mib": (memory.added or 0) / MIB}))


def compared(folder: Path, form: str) -> dict[str, float]:
    """Measures in turns; returns the fastest of each, and the highest memory of embexp."""
    seconds: dict[str, list[float]] = {"peer": [], "ours": []}
    memory: dict[str, list[float]] = {"peer": [], "ours": []}
    for _ in range(REPEATS):
        for who, taken in seconds.items():
            found = harness.figures("scan", "--one", who, folder, form)
            taken.append(found["seconds"])
            memory[who].append(found["mib"])
    peers, our = min(seconds["peer"]), min(seconds["ours"])
    return {
        "peer": peers,
        "ours": our,
        "ratio": peers / our,
        "peer_mib": max(memory["peer"]),
        "mib": max(memory["ours"]),
        "distinct": found["distinct"],
    }


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if every target is met, else 1."""
    parser = harness.parser("scan", __doc__, quick=f"{QUICK_ROWS:,} rows")
    parser.add_argument("--rows", type=int, help=f"rows of the larger log (default {ROWS:,})")
    parser.add_argument("--folder", type=Path, help="folder for the files; files that exist are used")
    parser.add_argument("--workers", type=int, help="compare one process with so many workers, on Parquet")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--worker", nargs=5, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.worker is not None:
        folder, cache, worker, workers, address = options.worker
        in_process(lambda: one_of(Path(folder), Path(cache), int(worker), int(workers), address), 0.2)
        return 0
    if options.one is not None:
        who, folder, form = options.one
        in_process(lambda: {"peer": peer, "ours": ours}[who](Path(folder), form))
        return 0
    described = harness.introduce()
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    results: dict[str, dict[str, float]] = {}
    verdicts: dict[str, bool] = {}
    with tempfile.TemporaryDirectory() as name:
        base = options.folder or Path(name)
        for size in (rows // 10, rows):
            if not (base / str(size)).exists():
                write(base / str(size), size)
        if options.workers is not None:
            of_each = compare_workers(base / str(rows), options.workers, 1 if options.quick else REPEATS)
            harness.save(options, described, workers=of_each)
            return 0
        print(f"\n{'':20}{'rows':>10}{'MB':>7}{'pyarrow s':>11}{'ours s':>9}{'ratio':>7}{'MiB':>8}{'pyarrow MiB':>13}")
        for form in ("csv", "parquet"):
            for size in (rows // 10, rows):
                found = results[f"{form} {size}"] = compared(base / str(size), form)
                files_of = [base / str(size) / "log.csv"] if form == "csv" else (base / str(size) / "parquet").iterdir()
                found["megabytes"] = sum(path.stat().st_size for path in files_of) / 1e6
                print(
                    f"{form:20}{size:10,}{found['megabytes']:7.0f}{found['peer']:11.2f}{found['ours']:9.2f}"
                    f"{found['ratio']:7.2f}{found['mib']:8.0f}{found['peer_mib']:13.0f}",
                    flush=True,
                )
            if rows < ROWS:
                continue
            small, large = results[f"{form} {rows // 10}"], results[f"{form} {rows}"]
            allowed = GROWTH_MIB + BYTES_PER_VALUE * (large["distinct"] - small["distinct"]) / MIB
            verdicts[f"{form}: memory grows by at most {allowed:.0f} MiB"] = large["mib"] - small["mib"] <= allowed
            verdicts[f"{form}: at least {RATIO} of the speed of pyarrow"] = large["ratio"] >= RATIO
    print()
    for what, met in verdicts.items():
        print(f"{what:56}{harness.word(met)}")
    harness.save(options, described, results=results)
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
