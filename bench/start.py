"""The time that commands take to start: processor time, and time until the first training step.

    python -m bench.start [--repetitions N] [--json FILE]

Every measurement is a new process, whose files are in the page cache. Processor time is the user and system time of the
process and its children. The import of TensorFlow alone takes turns with the run, which also imports it. The run's data
are in the cache. Its first step ends when `metrics.jsonl` has a line about it.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import harness

EMBEXP = [sys.executable, "-m", "embexp"]
COMMANDS = {
    "embexp --help": ["--help"],
    "run --cfg job": ["run", "--cfg", "job"],
    "plan": ["plan"],
    "a wrong config": ["run", "optimizer.lerning_rate=0.1", "tables.item.dim=-3"],
}
TARGETS = {"embexp --help": 0.05, "run --cfg job": 0.5}
"""Targets: seconds of processor time."""
TENSORFLOW = "import tensorflow"
RUN = "run, first step"
RATIO = 1.2
"""The target: seconds until the first step, relative to the import of TensorFlow."""


@dataclass(frozen=True)
class Taken:
    """Times of a process in seconds.

    Attributes:
        processor: user and system time, including child processes.
        wall: from the start to the end.
        first_step: from the start to the end of the first training step; None: the process trains nothing.
    """

    processor: float
    wall: float
    first_step: float | None = None


def measured(command: Sequence[str], metrics: Path | None = None) -> Taken:
    """Runs a command.

    Args:
        command: the command with its arguments.
        metrics: the file that gets a line at the end of the first step.

    Raises:
        RuntimeError: the exit status is neither 0 nor 2.
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # otherwise every process compiles embexp again
    before, began, first = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter(), None
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    while process.poll() is None:
        if metrics is None:
            process.wait()
        elif first is None and metrics.exists() and metrics.stat().st_size:
            first = time.perf_counter() - began
        else:
            time.sleep(0.005)
    ended, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    if process.returncode not in (0, 2):
        raise RuntimeError(f"{' '.join(command)} ended with status {process.returncode}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(used, ended - began, first)


def started(cache: Path) -> Taken:
    """The command of a run of one step and its evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        overrides = ["train.steps=1", "output.plots=false", f"output.cache={cache}", f"hydra.run.dir={directory}"]
        return measured([*EMBEXP, "run", *overrides], directory / "metrics.jsonl")


def main(argv: list[str]) -> int:
    """Measures all commands in turns, and prints medians; returns 0 if every target is met, else 1."""
    repetitions = "of each command; 9 unless given"
    parser = harness.parser("start", __doc__, quick="fewer repetitions", repetitions=repetitions)
    options = parser.parse_args(argv)
    described = harness.introduce()
    taken: dict[str, list[Taken]] = {name: [] for name in (*COMMANDS, TENSORFLOW, RUN)}
    with tempfile.TemporaryDirectory() as folder:
        started(Path(folder))  # fills the cache
        for _ in range(options.repetitions or (3 if options.quick else 9)):
            for name, arguments in COMMANDS.items():
                taken[name].append(measured([*EMBEXP, *arguments]))
            taken[TENSORFLOW].append(measured([sys.executable, "-c", TENSORFLOW]))
            taken[RUN].append(started(Path(folder)))
    met = [_row(name, each) for name, each in taken.items()]
    met.append(_ratio(taken))
    results = {name: [vars(each) for each in several] for name, several in taken.items()}
    first = {"seconds": [run.first_step or run.wall for run in taken[RUN]]}
    first["ratio"] = harness.ratios(first["seconds"], [alone.wall for alone in taken[TENSORFLOW]])
    harness.save(options, described, {**results, "first_step": first}, results=results)
    return 0 if all(met) else 1


def _row(name: str, several: Sequence[Taken]) -> bool:
    """Prints the medians of a command; returns whether it meets its target, if it has one."""
    processor, wall = (statistics.median(getattr(each, key) for each in several) for key in ("processor", "wall"))
    least, target = min(each.processor for each in several), TARGETS.get(name)
    word = "" if target is None else f"  <= {target} {harness.word(processor <= target)}"
    print(f"{name:18}{processor:8.3f} s processor (lowest {least:.3f}){wall:9.3f} s wall{word}", flush=True)
    return target is None or processor <= target


def _ratio(taken: dict[str, list[Taken]]) -> bool:
    """Prints the seconds to the first step relative to TensorFlow's import; returns whether the target is met."""
    pairs = [(run.first_step or run.wall, alone.wall) for run, alone in zip(taken[RUN], taken[TENSORFLOW], strict=True)]
    ratio, met, words = harness.judged([run / alone for run, alone in pairs], RATIO, at_most=True)
    first = statistics.median(run for run, _ in pairs)
    print(f"\nstart to first step{first:8.3f} s wall, {ratio:.2f} x {TENSORFLOW}  {words}")
    return met


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
