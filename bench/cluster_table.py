"""A large pretrained table on several workers: memory that each adds, and seconds to fill, save and restore it.

    python -m bench.cluster_table [--quick] [--workers N] [--rows N] [--dim N] [--json FILE]

A run of one process and a run of several workers fill a table from a `.npy` file, train a few steps, and save. Other
runs then restore the checkpoint. The anonymous memory of each process (RssAnon) is sampled. The peak of a run whose
rows have one number is subtracted; it has the same number of rows, and so the same vocabulary and masks. The rest is
compared with the bytes of the rows and slots of the process: all of them, or its share. A save is timed from the first
file of the final checkpoint until the checkpoint has its name. The time of initialization comes from the summary.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness
from bench.memory import anonymous, write_log

_INTERVAL = 0.02
_BLOCK = 1 << 14
_ITEMS = 100
_SETTINGS = (
    *("data=parquet", "data.label=click", "data.timestamp=time", "data.split.validation=0", "data.split.test=0"),
    *("graph=bench_pairs", "model=bench_dot", "optimizer=adagrad", "init=assign", "train.batch_size=512"),
    *("train.steps=20", "train.epochs=null", "checkpoint.save=end", "output.plots=false", "output.tensorboard=false"),
    *("output.baselines=false", "output.digests=false", "pretrained@tables.user.pretrained=file"),
    *("strategy.intra_op_threads=1", "strategy.inter_op_threads=2"),
)


def write_matrix(path: Path, rows: int, dim: int) -> None:
    """Writes a `.npy` file of float32 [rows, dim], a block at a time."""
    values = np.lib.format.open_memmap(path, "w+", np.float32, (rows, dim))
    generator = np.random.default_rng(dim)
    for start in range(0, rows, _BLOCK):
        values[start : start + _BLOCK] = generator.standard_normal((min(_BLOCK, rows - start), dim), np.float32)


def workers_of(process: int) -> list[int]:
    """A process and the workers that it has started, in order."""
    try:
        found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except (FileNotFoundError, ProcessLookupError):
        return [process]
    return [process, *sorted(int(each) for each in found if b"runtimes.worker" in _command(each))]


def _command(process: str) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def watched(command: Sequence[str], directory: Path) -> dict[str, Any]:
    """The peak memory of each process of a run in bytes, and the seconds to fill and to save."""
    peaks: dict[int, int] = {}
    began = ended = 0.0
    checkpoints = directory / "checkpoints"
    with (
        directory.with_suffix(".log").open("w+") as said,
        subprocess.Popen([*command, f"hydra.run.dir={directory}"], stdout=said, stderr=said) as process,
    ):
        while process.poll() is None:
            for each in workers_of(process.pid):
                peaks[each] = max(peaks.get(each, 0), anonymous(each) or 0)
            began = began or (time.monotonic() if any(checkpoints.glob(".final.*")) else 0.0)
            ended = ended or (time.monotonic() if (checkpoints / "final").exists() else 0.0)
            time.sleep(_INTERVAL)
        if process.returncode:
            said.seek(0)
            raise RuntimeError(said.read()[-3000:])
    summary = json.loads((directory / "summary.json").read_bytes())
    return {"peaks": list(peaks.values()), "fill": summary["initialization"]["seconds"], "save": ended - began}


def measured(folder: Path, rows: int, dim: int, workers: int) -> dict[str, Any]:
    """Figures of one process or of workers. Added memory is relative to the rows and slots of a process."""
    strategy = ["strategy=multi_worker", f"strategy.workers={workers}"] if workers > 1 else ["strategy=cpu"]
    found = {}
    for name, of_dim in (("narrow", 1), ("wide", dim), ("restored", dim)):
        matrix = folder / f"rows_{of_dim}.npy"
        if not matrix.exists():
            write_matrix(matrix, rows + 1, of_dim)  # and the row of unknown tokens
        command = [sys.executable, "-m", "embexp", *harness.experiment(folder, of_dim), *_SETTINGS, *strategy]
        command += [f"data.path={folder / 'log.parquet'}", f"tables.user.pretrained.path={matrix}"]
        if name == "restored":
            command += [f"restore.path={folder / f'wide_{workers}'}"]
        found[name] = watched(command, folder / f"{name}_{workers}")
    share = 2 * 4 * rows * (dim - 1) / workers
    for name in ("wide", "restored"):
        pairs = zip(found[name]["peaks"], found["narrow"]["peaks"], strict=True)
        found[name]["added"] = [wide - narrow for wide, narrow in pairs]
        found[name]["shares"] = [each / share for each in found[name]["added"]]
    return {"workers": workers, "bytes_each": share, **found}


def line(found: Mapping[str, Any]) -> str:
    """The figures for a number of workers as text."""
    wide, restored = found["wide"], found["restored"]
    added, again = (", ".join(f"{each:.2f}" for each in of["shares"]) for of in (wide, restored))
    return (
        f"{found['workers']} x {found['bytes_each'] / 1e6:,.0f} MB: each added {added} x that, restored {again};"
        f" filled in {wide['fill']:.1f} s, saved in {wide['save']:.1f} s"
    )


def main(argv: list[str]) -> int:
    """Measures, and prints a line for one process and a line for workers; returns 0."""
    parser = harness.parser("cluster_table", __doc__, quick="a tenth of the rows", repetitions="ignored")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--rows", type=int, default=250_000)
    parser.add_argument("--dim", type=int, default=512)
    options = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    described = harness.introduce_in_a_line()
    rows = options.rows // 10 if options.quick else options.rows
    cases = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_log(folder / "log.parquet", rows, rows, _ITEMS)
        for workers in (1, options.workers):
            cases.append(measured(folder, rows, options.dim, workers))
            print(line(cases[-1]), flush=True)
    harness.save(options, described, cases=cases)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
