"""Checkpoints during training: their bytes and the seconds they cost, compared with `tf.train.CheckpointManager`.

    python -m bench.checkpoint [--quick] [--repetitions N] [--folder DIR] [--json FILE]

A table of 5 million × 64 is trained with Adagrad in its own process. A step looks up 4,096 ids, either uniform over
the vocabulary or from a power law (Zipf, exponent 1.1). After every 1,000 steps, the same variables are saved in one of
three ways, in rotating order: embexp whole, embexp incremental, and `tf.train.CheckpointManager`. The checkpoint has
the table and its slot, because everything else is small.

A save costs the seconds until `save` returns. It also costs the seconds by which the next steps are slower than usual,
until everything is on disk. embexp waits for the disk in a thread, and `CheckpointManager` does not wait for it at all.
Because every tenth checkpoint of a run is whole, the cost of a save is a tenth of a whole one plus nine tenths of an
incremental one. Memory is the peak of anonymous memory during the save, minus that before, in copies of the table.

Finally, a new process reads 1,000 rows from a tensor of 3.07 GB in a checkpoint. Its time includes opening the
checkpoint. Its memory is what this adds.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from bench import harness
from embexp.system.machine import PeakMemory

ROWS, DIM, BATCH, STEPS = 5_000_000, 64, 4096, 1_000
EXPONENT, EVERY = 1.1, 10
LARGE_ROWS, READ = 12_000_000, 1_000
WAYS = WHOLE, INCREMENTAL, MANAGER = ("embexp whole", "embexp incremental", "CheckpointManager")
BYTES, TIME, MILLISECONDS, MEGABYTES = 1.2, 0.5, 50.0, 20.0
"""Targets: bytes relative to the touched rows, time relative to CheckpointManager, and time and memory of reading."""


def ids_of(distribution: str, rows: int, count: int, random: np.random.Generator) -> np.ndarray:
    """Ids from a distribution over the rows, int64 [count]."""
    if distribution == "uniform":
        return random.integers(0, rows, count)
    # The inverse distribution function of a power law that is cut off at `rows`. Frequent ids are random.
    power = 1 - EXPONENT
    rank = ((rows**power - 1) * random.random(count) + 1) ** (1 / power) - 1
    return np.minimum(rank.astype(np.int64), rows - 1) * 7919 % rows  # 7919 is prime: a permutation


class Training:
    """Trains a table with Adagrad by the row engine."""

    def __init__(self, rows: int, distribution: str) -> None:
        import tensorflow as tf

        from embexp.specs.optimizers import Adagrad
        from embexp.specs.tables import Feature
        from embexp.tables import optimizers
        from embexp.tables.row_engine import RowEngine
        from embexp.tables.table import EmbeddingTable

        self.distribution, self.random, rule = distribution, np.random.default_rng(0), Adagrad(learning_rate=0.01)
        self.table = EmbeddingTable("item", rows, DIM, slots=optimizers.slots_of(rule))
        for start in range(0, rows, 65_536):
            shape = (min(65_536, rows - start), DIM)
            self.table.write(start, self.random.standard_normal(shape, np.float32))
        counter = tf.Variable(0, dtype=tf.int64)
        feature = {"f": Feature(table="item")}
        engine = RowEngine({"item": self.table}, feature, {"item": rule}, step=counter, total_steps=10**9)

        @tf.function  # type: ignore[untyped-decorator]
        def steps(ids: Any) -> None:
            for some in ids:
                engine.enqueue({"f": some}, training=True)
                engine.apply_gradients({"f": 2.0 * engine.activations()["f"]})
                counter.assign_add(1)

        self._steps, self._constant = steps, tf.constant
        self.run(2)

    def run(self, steps: int) -> float:
        """Trains some steps, and returns their seconds."""
        ids = ids_of(self.distribution, self.table.rows, steps * BATCH, self.random).reshape(steps, BATCH)
        given = self._constant(ids)
        began = time.perf_counter()
        self._steps(given)
        return time.perf_counter() - began


def child(distribution: str, rows: int, steps: int, repetitions: int, folder: Path) -> None:
    """Trains and saves, and prints a line of JSON for each save."""
    import tensorflow as tf

    from embexp.checkpoints import store, streaming
    from embexp.system.files import BackgroundDirectories
    from embexp.tables.checkpointing import TableCheckpoint

    training = Training(rows, distribution)
    table, background = training.table, BackgroundDirectories()
    ours = tf.train.Checkpoint(embedding=TableCheckpoint([table]))
    theirs = tf.train.Checkpoint(item=table.variable, accumulators=table.slots["accumulators"])
    manager = tf.train.CheckpointManager(theirs, str(folder / "manager"), max_to_keep=None)
    changes = streaming.Changes({"item": table})
    base = store.prefix_in(store.write_by(lambda prefix: streaming.write(ours, prefix), folder / "base"))

    def save(way: str, changed: dict[str, np.ndarray]) -> None:
        if way == MANAGER:
            manager.save()
            return
        with background.written_whole(folder / "saved") as temporary:
            prefix = str(temporary / "checkpoint")
            if way == WHOLE:
                streaming.write(ours, prefix)
            else:
                streaming.write(ours, prefix, base=base, changed=changed)

    # The first use of memory is far slower than later ones, and a long training sees the later ones.
    reused = folder / "reused"
    with reused.open("wb") as file:
        for _ in range(2):
            for block in table.blocks():
                file.write(np.concatenate([block, block]).data)
    reused.unlink()
    for repetition in range(repetitions):
        for way in [*WAYS[repetition % 3 :], *WAYS[: repetition % 3]]:
            changes.collect()
            changes.saved()
            usual = statistics.median(training.run(10) for _ in range(steps // 10))
            os.sync()
            touched = int(np.count_nonzero(changes.collect()["item"]))
            with PeakMemory() as memory:
                began = time.perf_counter()
                save(way, changes.collect())
                stopped = time.perf_counter() - began
            slower = 0.0
            while background.busy:
                slower += training.run(10) - usual
            background.wait()
            made = folder / ("manager" if way == MANAGER else "saved")
            result = {
                "way": way,
                "touched": touched,
                "bytes": sum(path.stat().st_size for path in made.iterdir()),
                "stopped": stopped,
                "slower": max(0.0, slower),
                "copies": (memory.added or 0) / (4 * rows * DIM),
                "step": usual / 10,
            }
            print("RESULT " + json.dumps(result), flush=True)
            shutil.rmtree(made)
    background.close()


def write_large(folder: Path, rows: int) -> None:
    """Writes a checkpoint with one tensor, float32 [rows, DIM], and keeps none of it in memory."""
    from embexp.system.tensor_bundle.writer import BundleWriter

    block = np.random.default_rng(0).standard_normal((50_000, DIM), np.float32)
    writer = BundleWriter(folder / "checkpoint")
    writer.add("item", (rows, DIM), (block[: min(50_000, rows - start)] for start in range(0, rows, 50_000)))
    writer.finish()
    for path in folder.iterdir():
        handle = os.open(path, os.O_RDONLY)
        os.fsync(handle)
        os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(handle)


def read_child(folder: Path, start: int) -> None:
    """Reads some rows, and prints milliseconds and added resident bytes as JSON."""
    from embexp.vectors import array_files

    before, began = psutil.Process().memory_info().rss, time.perf_counter()
    rows = np.array(array_files.read_tensor(folder / "checkpoint.index", "item").read(start, start + READ))
    seconds = time.perf_counter() - began
    added = psutil.Process().memory_info().rss - before
    if rows.shape != (READ, DIM):
        raise RuntimeError(f"read {rows.shape}")
    print("RESULT " + json.dumps({"milliseconds": 1e3 * seconds, "megabytes": added / 1e6}))


def _results(*arguments: object) -> list[dict[str, Any]]:
    """The results that this module prints in a new process."""
    lines = harness.in_process("checkpoint", "--child", *arguments)
    return [json.loads(line.removeprefix("RESULT ")) for line in lines if line.startswith("RESULT ")]


def _report(distribution: str, results: list[dict[str, Any]]) -> dict[str, tuple[float, float]]:
    """Prints the saves for a distribution; returns the values to compare, each with its target."""
    print(f"\n{distribution:20}    GB  of touched rows  stopped s  slower s  copies  touched rows")
    taken: dict[str, list[float]] = {}
    bytes_per_touched = []
    for way in WAYS:
        mine = [each for each in results if each["way"] == way]
        median = {key: statistics.median(each[key] for each in mine) for key in mine[0] if key != "way"}
        ratio = median["bytes"] / (median["touched"] * DIM * 4 * 2)
        print(
            f"{way:20} {median['bytes'] / 1e9:5.2f} {ratio:16.2f} {median['stopped']:10.2f} {median['slower']:9.2f}"
            f" {median['copies']:7.2f} {median['touched']:13,.0f}",
            flush=True,
        )
        taken[way] = [each["stopped"] + each["slower"] for each in mine]
        if way == INCREMENTAL:
            bytes_per_touched = [each["bytes"] / (each["touched"] * DIM * 4 * 2) for each in mine]
    ratios = {way: statistics.median(harness.ratios(taken[way], taken[MANAGER])) for way in (WHOLE, INCREMENTAL)}
    print(f"seconds relative to {MANAGER}: " + ", ".join(f"{way} {ratios[way]:.2f}" for way in ratios))
    mixed = (ratios[WHOLE] + (EVERY - 1) * ratios[INCREMENTAL]) / EVERY
    return {
        f"{distribution}: incremental bytes / bytes of touched rows": (statistics.median(bytes_per_touched), BYTES),
        f"{distribution}: seconds, whole every {EVERY}, / {MANAGER}": (mixed, TIME),
    }


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if every target is met, else 1."""
    if argv[:1] == ["--child"]:
        if argv[1] == "read":
            read_child(Path(argv[2]), int(argv[3]))
        else:
            child(argv[1], int(argv[2]), int(argv[3]), int(argv[4]), Path(argv[5]))
        return 0
    quick = "a tenth of the rows and steps, one repetition"
    parser = harness.parser("checkpoint", __doc__, quick=quick, repetitions="saves of each kind (3; quick: 1)")
    parser.add_argument("--folder", type=Path, help="folder for checkpoints (default: that of temporary files)")
    options = parser.parse_args(argv)
    less, repetitions = (10, options.repetitions or 1) if options.quick else (1, options.repetitions or 3)

    described = harness.introduce()
    saves: dict[str, Any] = {}
    compared: dict[str, Any] = {}
    for distribution in ("zipf", "uniform"):
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            saves[distribution] = _results(distribution, ROWS // less, STEPS // less, repetitions, folder)
        compared |= _report(distribution, saves[distribution])
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        write_large(Path(folder), LARGE_ROWS // less)
        reads = [_results("read", folder, start)[0] for start in (7, LARGE_ROWS // less // 2)]
    read = f"{READ:,} rows of {4 * DIM * LARGE_ROWS / less / 1e9:.1f} GB"
    compared[f"{read}: milliseconds"] = max(each["milliseconds"] for each in reads), MILLISECONDS
    compared[f"{read}: MB"] = max(each["megabytes"] for each in reads), MEGABYTES
    print()
    for what, (value, target) in compared.items():
        print(f"{what:60} {value:7.2f} <= {target:<5} {harness.word(value <= target)}")
    print(f"load average at the end: {' '.join(f'{load:.2f}' for load in os.getloadavg())}")
    harness.save(options, described, saves=saves, reads=reads, compared=compared)
    return 0 if all(value <= target for value, target in compared.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
