"""Memory of a run that streams a Parquet file: constant over the steps, and independent of the file's length.

    python -m bench.memory [--quick] [--json FILE]

`embexp run` trains on two files with the same users and items. One file has ten times as many rows. Every 50 ms, the
benchmark reads the run's anonymous memory from outside. That is what the process allocated, without the pages of mapped
files, which the system can reclaim. Tables and slots depend only on the vocabulary, and are subtracted. There is no
validation, because exact metrics keep about 12 bytes per validation example.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import harness

MIB = 2**20
GROWTH_MIB, DIFFERENCE_MIB = 32, 64
SMALL, LARGE = 500_000, 5_000_000
USERS, ITEMS, DIM = 500_000, 200_000, 16  # the smaller file has a row for each user
BATCH, STEPS, LOG_EVERY = 4096, 2_000, 10
INTERVAL = 0.05
SLOTS = 1  # Adagrad's accumulator


@dataclass(frozen=True)
class Sample:
    """Anonymous memory at one time. If step is None, the data is being scanned."""

    step: int | None
    size: int


@dataclass(frozen=True)
class Course:
    """Memory of one run over time.

    Attributes:
        rows: number of rows in the file.
        scanning: peak while the data is scanned, in MiB.
        training: median in MiB around a step, by step.
        tables: size of tables and slots, in MiB.
    """

    rows: int
    scanning: float
    training: dict[int, float]
    tables: float

    @property
    def growth(self) -> float:
        """Growth from the first step to the last, in MiB."""
        steps = sorted(self.training)
        return self.training[steps[-1]] - self.training[steps[0]]

    @property
    def beside_tables(self) -> float:
        """Memory at the end without tables and slots, in MiB."""
        return self.training[max(self.training)] - self.tables


def write_log(path: Path, rows: int, users: int, items: int) -> None:
    """Writes a click log with every user and every item, so that the vocabularies do not depend on its length."""
    schema = pa.schema({"user": pa.int64(), "item": pa.int64(), "click": pa.int8(), "time": pa.int64()})
    random = np.random.default_rng(rows)
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, rows, SMALL):
            numbers = np.arange(start, min(start + SMALL, rows))
            chunk = [
                numbers % users * 7919 % users,  # 7919 is prime: a permutation
                numbers % items if start == 0 else random.integers(0, items, len(numbers)),
                random.integers(0, 2, len(numbers), np.int8),
                numbers,
            ]
            writer.write_table(pa.table(chunk, schema=schema), row_group_size=131_072)


def watch(folder: Path, data: Path, steps: int) -> tuple[list[Sample], Path]:
    """Runs an experiment on `data`, and samples its memory. Also returns the run's directory."""
    run = folder / f"run_{data.stem}"
    command = [sys.executable, "-m", "embexp", *harness.experiment(folder, DIM)]
    command += ["data=parquet", f"data.path={data}", "data.label=click", "data.timestamp=time"]
    command += ["data.split.validation=0", "data.split.test=0", "graph=bench_pairs", "model=bench_dot"]
    command += ["optimizer=adagrad", f"train.batch_size={BATCH}", f"train.steps={steps}", "train.epochs=null"]
    command += [f"train.log_every={LOG_EVERY}", f"hydra.run.dir={run}"]
    command += ["output.plots=false", "output.tensorboard=false", "checkpoint.save=never", "output.digests=false"]
    samples = []
    said = (folder / f"{data.stem}.log").open("w+b")
    with said, subprocess.Popen(command, stdout=said, stderr=subprocess.STDOUT) as process:
        while process.poll() is None:
            size = anonymous(process.pid)
            if size is not None:
                samples.append(Sample(_step(run), size))
            time.sleep(INTERVAL)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(f"the run on {data} failed:\n{said.read().decode(errors='replace')}")
    return samples, run


def anonymous(process: int) -> int | None:
    """Bytes of anonymous memory of a process; None if the process has ended or there is no /proc."""
    try:
        text = Path(f"/proc/{process}/status").read_text("ascii")
    except (FileNotFoundError, ProcessLookupError):
        return None
    return next((int(line.split()[1]) * 1024 for line in text.splitlines() if line.startswith("RssAnon:")), None)


def _step(run: Path) -> int | None:
    """The last logged step; None until the scan has written the vocabularies."""
    if not (run / "manifest.json").exists():
        return None
    try:
        lines = (run / "metrics.jsonl").read_bytes().splitlines()
    except FileNotFoundError:
        return 0
    return int(json.loads(lines[-1])["step"]) if lines else 0


def measure(rows: int, users: int, items: int, steps: int, marks: list[int]) -> Course:
    """Writes a file with so many rows, runs an experiment on it, and summarises the samples."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        data = folder / f"rows_{rows}.parquet"
        write_log(data, rows, users, items)
        samples, run = watch(folder, data, steps)
        summary = json.loads((run / "summary.json").read_bytes())
    tables = sum(each["vocabulary_size"] * each["dim"] * 4 * (1 + SLOTS) for each in summary["tables"].values())
    training = {}
    for mark in marks:
        near = [
            s.size for s in samples if s.step is not None and mark - 5 * LOG_EVERY <= s.step <= mark + 5 * LOG_EVERY
        ]
        if not near:
            raise RuntimeError(f"no sample around step {mark}: the run was too fast for an interval of {INTERVAL} s")
        training[mark] = statistics.median(near) / MIB
    scanning = max(s.size for s in samples if s.step is None) / MIB
    return Course(rows, scanning, training, tables / MIB)


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if memory is constant and independent of the file's length, else 1."""
    options = harness.parser("memory", __doc__, quick="a fifth of the rows, half the steps").parse_args(argv)
    if not Path("/proc/self/status").exists():
        print("this system has no /proc, so anonymous memory can't be read")
        return 1
    described = harness.introduce()
    less, steps = (5, STEPS // 2) if options.quick else (1, STEPS)
    marks = [mark for mark in (200, 500, 1_000, 1_500, 2_000) if mark <= steps]
    users, items = USERS // less, ITEMS // less
    print(f"\nMiB{'peak scanning':>22}" + "".join(f"{f'step {mark:,}':>12}" for mark in marks) + "   tables and slots")
    courses = []
    for rows in (SMALL // less, LARGE // less):
        course = measure(rows, users, items, steps, marks)
        courses.append(course)
        seen = "".join(f"{course.training[mark]:12.1f}" for mark in marks)
        print(f"{rows:9,} rows{course.scanning:11.1f}{seen}{course.tables:19.1f}", flush=True)

    small, large = courses
    difference = abs(large.beside_tables - small.beside_tables)
    verdicts = {
        f"growth from step {marks[0]} to {marks[-1]}, {small.rows:,} rows": (small.growth, GROWTH_MIB),
        f"growth from step {marks[0]} to {marks[-1]}, {large.rows:,} rows": (large.growth, GROWTH_MIB),
        "difference between the files, without tables and slots": (difference, DIFFERENCE_MIB),
    }
    print()
    for what, (found, bound) in verdicts.items():
        print(f"{what:56}{found:8.1f} MiB <= {bound} {harness.word(found <= bound)}")
    print(f"{'difference of the scanning peaks':56}{large.scanning - small.scanning:8.1f} MiB")
    judged = {what: {"mib": value, "bound": bound} for what, (value, bound) in verdicts.items()}
    harness.save(options, described, courses=[vars(course) for course in courses], verdicts=judged)
    return 0 if all(value <= bound for value, bound in verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
