"""Several workers on this machine compared with one process: time of a step, and bytes that workers exchange.

    python -m bench.cluster [--quick] [--models NAME…] [--workers N] [--json FILE]

Each model trains with `strategy=cpu` and two threads, and with workers of one thread each, in turn, for several
rounds. Ratios of step times are taken within a round, and their median is reported. Workers on one machine have no
network between them, so the figure is the cost of sharing alone.

Bytes are counted on the loopback device, in a separate network namespace if this user may create one. Two runs of
different length are compared, so that the bytes of the start cancel. The formula is the one in docs/multi_worker.md,
with the room that the run has recorded.
"""

from __future__ import annotations

import functools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import harness, planted_graph, planted_items
from embexp.system.tensor_bundle.index import index_of, read_index

_WIDE = (
    "experiment=clicks",
    "data.examples=100000",
    "data.users=100000",
    "data.items=50000",
    "data.split.validation=0",
    "data.split.test=0",
    "tables.user.dim=64",
    "tables.item.dim=64",
    "train.batch_size=4096",
)
CASES = {
    "mlp": (*_WIDE, "model=mlp", "model.hidden=[512,256]"),
    "dlrm": (*_WIDE, "model=dlrm", "model.bottom=[64]", "model.top=[256,64]"),
    "two_tower": (
        *("experiment=recommendation", "data.timestamp=time", "model=two_tower", "model.hidden=[256]"),
        *("loss.negatives=512", "optimizer=adagrad", "train.batch_size=4096"),
    ),
    "complex": (
        *("experiment=knowledge_graph", "data.negatives=64", "model.dropout=0", "tables.entity.dim=64"),
        "train.batch_size=1024",
    ),
}
"""Settings of each model: wide rows, wide layers, many negatives."""
_DATA: dict[str, Callable[[Path], Path]] = {
    "two_tower": lambda folder: planted_items.write(folder / "data.csv", users=5_000, items=50_000),
    "complex": lambda folder: planted_graph.write_graph(folder / "data", held_out=100),
}
"""Writes data into a folder, and returns its path. The other models draw their clicks in memory."""
STEPS, LONGER, ROUNDS = 100, 200, 3
_OUTPUT = ("output.plots=false", "output.tensorboard=false", "output.baselines=false", "output.digests=false")
_COUNTING = """ip link set lo up || exit 1
workers=$1; shift
for worker in $(seq $((workers - 1))); do EMBEXP_WORKER=$worker "$@" > /dev/null 2>&1 & done
EMBEXP_WORKER=0 "$@"; status=$?; wait
grep lo: /proc/net/dev; exit $status"""
_PORT = 7000
"""The first port of the workers whose bytes are counted, in their own namespace."""
_ALONE = ("unshare", "--net", "sh", "-c", _COUNTING, "-")


def settings_of(name: str, folder: Path, steps: int) -> list[str]:
    """Settings of a run of so many steps in a folder. Writes the data there if they do not exist."""
    length = [f"train.steps={steps}", "train.epochs=null", f"train.evaluate_every={steps}"]
    data = [f"data.path={_data(name, folder)}"] if name in _DATA else []
    return [*CASES[name], *data, *length, f"output.cache={folder / 'cache'}", "checkpoint.save=end", *_OUTPUT]


@functools.cache
def _data(name: str, folder: Path) -> Path:
    return _DATA[name](folder)


def of_strategy(workers: int) -> list[str]:
    """The settings of `strategy=cpu` for one worker, or of `strategy=multi_worker` for more."""
    if workers == 1:
        return ["strategy=cpu", "strategy.intra_op_threads=2"]
    threads = ["strategy.intra_op_threads=1", "strategy.inter_op_threads=4"]
    return ["strategy=multi_worker", f"strategy.workers={workers}", *threads]


def run(settings: Sequence[str], directory: Path, *, counted: int = 0) -> tuple[dict[str, Any], int]:
    """Trains a run; returns its summary, and the bytes on its loopback device or 0.

    Args:
        counted: the number of workers whose bytes are counted; 0: none.
    """
    shutil.rmtree(directory, ignore_errors=True)
    command = [sys.executable, "-m", "embexp", "run", *settings, f"hydra.run.dir={directory}"]
    if counted:
        addresses = ",".join(f"127.0.0.1:{_PORT + worker}" for worker in range(counted))
        command = [*_ALONE, str(counted), *command, f"strategy.addresses=[{addresses}]"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise RuntimeError(ended.stdout[-2000:] + ended.stderr[-2000:])
    found = json.loads((directory / "summary.json").read_text())
    line = next((line for line in ended.stdout.splitlines() if line.strip().startswith("lo:")), "lo: 0")
    return found, int(line.split(":")[1].split()[0])


def countable() -> bool:
    """Whether this user may create a network namespace."""
    probe = (
        subprocess.run([*_ALONE, "1", "true"], capture_output=True, check=False) if shutil.which("unshare") else None
    )
    return probe is not None and probe.returncode == 0


def formula(summary: Mapping[str, Any], dense: int) -> float:
    """Bytes that all workers send in a step, given the sizes of the parts at the end of the run.

    Args:
        dense: the number of trained values in the dense part.
    """
    shared = summary["cluster"]
    workers, heads = shared["workers"], 4 * len(shared["rooms"])
    return float(workers * (workers - 1) * (bytes_of_a_part(summary) + heads) + 8 * (workers - 1) * dense)


def bytes_of_a_part(summary: Mapping[str, Any]) -> int:
    """Bytes of the ids, rows and gradients that a worker sends to another in a step. Frozen rows have no gradients."""
    tables, frozen = summary["tables"], summary["freeze"]
    return sum(
        room * (4 + 4 * tables[name]["dim"] * (1 if frozen[name]["trainable_rows"] == 0 else 2))
        for name, room in summary["cluster"]["rooms"].items()
    )


def dense_numbers(directory: Path) -> int:
    """The number of trained values in the dense part, from the final checkpoint of a run."""
    stored = read_index(index_of(directory / "checkpoints" / "final" / "checkpoint"))
    shapes = [entry.shape for key, entry in stored.items() if key.startswith("optimizer/_trainable_variables/")]
    return sum(math.prod(shape) for shape in shapes)


def measured(name: str, folder: Path, workers: int, rounds: int, *, bytes_too: bool) -> dict[str, Any]:
    """The figures of one case."""
    ratios, times = [], []
    for _ in range(rounds):
        step = {
            count: run([*settings_of(name, folder, STEPS), *of_strategy(count)], folder / f"run{count}")[0][
                "throughput"
            ]["step_ms_median"]
            for count in (1, workers)
        }
        ratios.append(step[workers] / step[1])
        times.append(step)
    result: dict[str, Any] = {
        "ratio": statistics.median(ratios),
        "ratios": ratios,
        "step_ms": {str(count): statistics.median(each[count] for each in times) for count in (1, workers)},
    }
    if bytes_too:
        sent = {}
        for steps in (STEPS, LONGER):
            settings = [*settings_of(name, folder, steps), *of_strategy(workers)]
            summary, sent[steps] = run(settings, folder / "counted", counted=workers)
        expected = formula(summary, dense_numbers(folder / "counted"))
        found = (sent[LONGER] - sent[STEPS]) / (LONGER - STEPS)
        result |= {"bytes": found, "formula": expected, "padding": summary["cluster"]["padding"]}
    return result


def main(argv: list[str]) -> int:
    """Measures, and prints a line for each case; returns 0."""
    parser = harness.parser("cluster", __doc__, quick="one round", repetitions="rounds")
    parser.add_argument("--models", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    described = harness.introduce_in_a_line()
    bytes_too, found = countable(), {}
    for name in options.models:
        rounds = options.repetitions or (1 if options.quick else ROUNDS)
        with tempfile.TemporaryDirectory() as folder:
            found[name] = measured(name, Path(folder), options.workers, rounds, bytes_too=bytes_too)
        print(line(name, found[name], options.workers), flush=True)
    harness.save(options, described, cases=found)
    return 0


def line(name: str, found: Mapping[str, Any], workers: int) -> str:
    """The figures of one case as text."""
    one, all_ = found["step_ms"]["1"], found["step_ms"][str(workers)]
    text = f"{name:12} {workers} workers {all_:.1f} ms, cpu {one:.1f} ms: {found['ratio']:.2f} x"
    if "bytes" in found:
        share = found["bytes"] / found["formula"]
        text += (
            f"; {found['bytes']:,.0f} bytes per step, {share:.3f} x the formula, padding {found['padding']:.0%} of ids"
        )
    return text


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
