"""Savings from freezing 90% of the rows: memory and step time of each layout, relative to an unfrozen table.

    python -m bench.freeze [--quick] [--pairs N] [--json FILE]

Each layout trains a table of 5 million × 64 with Adam in its own process. The unfrozen table is trained directly before
or after it, in alternating order. Ratios are taken within such a pair, and the median over pairs is reported. Memory is
anonymous memory after the last step, minus that before the table was created. Anonymous memory is what the process
allocated. It excludes the pages of mapped files, which the system can reclaim. Time is the median step time. All
layouts look up the same ids.

At the end, each layout saves and restores a checkpoint of rows and slots once. The figure is the increase to the peak
of anonymous memory, divided by the size of the table's rows.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness

ROWS, DIM, BATCH, BAG = 5_000_000, 64, 4096, 8
STEPS, WARM_UP, PAIRS = 60, 10, 5
WHOLE, LAYOUTS = "unfrozen", ("variable", "split", "memory_map")
FIGURES = ("bytes", "milliseconds")
CHECKPOINTING, COPIES = ("saving", "restoring"), 0.1
"""Checkpoint operations, and the target for their peak memory, in copies of the table."""
FROZEN = 0.9
TARGETS = {("memory_map", "bytes"): 0.15, **{(layout, "milliseconds"): 1.05 for layout in LAYOUTS}}
"""Targets: the largest ratio to the unfrozen table."""
CHUNK = 65_536


def write_matrix(path: Path, rows: int) -> None:
    """Writes standard normal values, float32 [rows, DIM], in chunks."""
    matrix = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(rows, DIM))
    random = np.random.default_rng(0)
    for start in range(0, rows, CHUNK):
        matrix[start : start + CHUNK] = random.standard_normal(matrix[start : start + CHUNK].shape, np.float32)
    matrix.flush()


def made(layout: str, path: Path) -> Any:
    """Creates a table with its initial values and slots."""
    from embexp.initialization.method import as_rows, assign_rows
    from embexp.specs.optimizers import Adam
    from embexp.tables import optimizers
    from embexp.tables.optimizers import RowGroups
    from embexp.tables.table import EmbeddingTable, SplitTable

    mapping = np.asarray(np.load(path, mmap_mode="c"))
    rows, slots = len(mapping), optimizers.slots_of(Adam())
    if layout in ("unfrozen", "variable"):
        groups = _groups(RowGroups, rows) if layout == "variable" else None
        whole = EmbeddingTable("item", rows, DIM, slots=slots, groups=groups)
        assign_rows(whole, as_rows(mapping))
        return whole
    file = (mapping, np.arange(rows, dtype=np.int32)) if layout == "memory_map" else (None, None)
    split = SplitTable("item", _groups(RowGroups, rows), DIM, mapping=file[0], file_rows=file[1], slots=slots)
    for part, some in split.fills(as_rows(mapping)):
        assign_rows(part, some)
    return split


def child(layout: str, path: Path) -> None:
    """Trains one layout, and prints its figures as JSON."""
    import tensorflow as tf

    from embexp.specs.optimizers import Adam
    from embexp.specs.tables import Feature
    from embexp.system.machine import anonymous_bytes
    from embexp.tables.row_engine import RowEngine

    rows = len(np.load(path, mmap_mode="r"))
    random = np.random.default_rng(1)
    batches = [tf.constant(random.integers(0, rows, (BATCH, BAG))) for _ in range(STEPS + WARM_UP)]
    tf.ones([1]) + 1  # initializes TensorFlow, so that its own memory is not measured
    before = anonymous_bytes()
    table = made(layout, path)
    step = tf.Variable(0, dtype=tf.int64)
    engine = RowEngine(
        {"item": table}, {"f": Feature(table="item")}, {"item": Adam()}, step=step, total_steps=len(batches)
    )

    @tf.function
    def train(ids: Any) -> None:
        engine.enqueue({"f": ids}, training=True)
        engine.apply_gradients({name: 0.1 * each for name, each in engine.activations().items()})

    times = []
    for ids in batches:
        began = time.perf_counter()
        train(ids)
        times.append(time.perf_counter() - began)
    after = anonymous_bytes()
    size = None if before is None or after is None else after - before
    print(json.dumps({"milliseconds": 1e3 * statistics.median(times[WARM_UP:]), "bytes": size}))


def checkpointing(layout: str, path: Path) -> None:
    """Saves and restores one layout, and prints the peak memory of both operations as JSON."""
    import tensorflow as tf

    from embexp.checkpoints import restoring, store, streaming
    from embexp.system.machine import PeakMemory
    from embexp.tables.checkpointing import TableCheckpoint

    table = made(layout, path)
    whole = tf.train.Checkpoint(embedding=TableCheckpoint([table]), step=tf.Variable(0, dtype=tf.int64))
    found = {}

    def write(checkpoint: Any, directory: Path) -> None:
        store.write_by(lambda prefix: streaming.write(checkpoint, prefix), directory)

    for what, function in zip(CHECKPOINTING, (write, restoring.read_run), strict=True):
        with PeakMemory() as memory:
            function(whole, path.with_name("checkpoint"))
        found[what] = None if memory.added is None else memory.added / (4 * table.rows * table.dim)
    print(json.dumps(found))


def _groups(make: Any, rows: int) -> Any:
    groups = (np.arange(rows) >= FROZEN * rows).astype(np.uint8)
    np.random.default_rng(2).shuffle(groups)
    return make("item", groups, np.array([[0, 1]], np.float32), [0])


def measure(layout: str, path: Path, what: str = "--child") -> dict[str, float]:
    """Runs one process, and returns its figures."""
    return dict(harness.figures("freeze", what, layout, path))


def pair(layout: str, path: Path, number: int) -> dict[str, dict[str, float]]:
    """Measures a layout and the unfrozen table, in alternating order."""
    order = (WHOLE, layout) if number % 2 == 0 else (layout, WHOLE)
    return {each: measure(each, path) for each in order}


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 with --quick or if every target is met, else 1."""
    parser = harness.parser("freeze", __doc__, quick="a twentieth of the rows, one pair")
    parser.add_argument("--pairs", type=int, help=f"number of pairs ({PAIRS}; quick: 1)")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--checkpointing", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    for run, given in ((child, options.child), (checkpointing, options.checkpointing)):
        if given:
            run(given[0], Path(given[1]))
            return 0
    rows, count = (ROWS // 20, 1) if options.quick else (ROWS, PAIRS)
    described = harness.introduce()
    print(f"{rows:,} rows of {DIM}, Adam, {FROZEN:.0%} frozen; a step looks up {BATCH * BAG:,} ids\n")
    taken: dict[str, list[dict[str, dict[str, float]]]] = {layout: [] for layout in LAYOUTS}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "item.npy"
        write_matrix(path, rows)
        for number in range(options.pairs or count):
            for layout in LAYOUTS:
                taken[layout].append(pair(layout, path, number))
                last = taken[layout][-1]
                shown = (
                    f"{each}: {last[each]['bytes'] / 1e6:,.0f} MB, {last[each]['milliseconds']:.2f} ms" for each in last
                )
                print(f"pair {number + 1}  {'; '.join(shown)}", flush=True)
        copies = {layout: measure(layout, path, "--checkpointing") for layout in LAYOUTS}

    quotable: dict[str, Any] = {layout: dict(taking) for layout, taking in copies.items()}
    print("\nmedians of pairs" + " " * 26 + "ratio   target")
    met = True
    for layout in LAYOUTS:
        for figure, unit in zip(FIGURES, ("MB", "ms"), strict=True):
            own, whole = ([each[which][figure] for each in taken[layout]] for which in (layout, WHOLE))
            quotable[layout]["memory" if unit == "MB" else "time"] = harness.ratios(own, whole)
            scale, target = 1e6 if unit == "MB" else 1.0, TARGETS.get((layout, figure))
            ratio, within, verdict = harness.judged(harness.ratios(own, whole), target or math.inf, at_most=True)
            met = met and within
            medians = [statistics.median(each) / scale for each in (own, whole)]
            words = f"{layout:12} {medians[0]:10,.2f} of {medians[1]:10,.2f} {unit}"
            print(f"{words:42}{ratio:5.2f}   {verdict if target else verdict.partition('met ')[2]}")
    print("\npeak memory" + " " * 9 + "".join(f"{what:>12}" for what in CHECKPOINTING) + "   in copies of the table")
    for layout, taking in copies.items():
        reached = max(taking.values()) <= COPIES
        met = met and reached
        peaks = "".join(f"{taking[what]:12.3f}" for what in CHECKPOINTING)
        print(f"{layout:20}{peaks}   <= {COPIES} {harness.word(reached)}")
    harness.save(options, described, quotable, pairs=taken, checkpoints=copies)
    if options.quick:
        print("The targets are for the full size. With so few rows, other allocations of the process dominate.")
    return 0 if met or options.quick else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
