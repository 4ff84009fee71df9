"""How long commands take before they do what they are for: processor time, and the time to the first training step.

    python -m bench.start [--repetitions N] [--json FILE]

Each figure is that of new processes, whose files are in the page cache; processor time is user and system time of the
process and its children. The import of TensorFlow alone is measured in turns with the run, which imports it, too. The
run has its data in the cache. Its first step is over when `metrics.jsonl` has it.
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
"""Most seconds of processor time."""
TENSORFLOW = "import tensorflow"
RUN = "run, first step"
RATIO = 1.2
"""Most seconds to the first step, in those of TensorFlow's import."""


@dataclass(frozen=True)
class Taken:
    """What a process took, in seconds.

    Attributes:
        processor: user and system time, its children's included.
        wall: from its start to its end.
        first_step: from its start to the end of the first training step; None: it trains nothing.
    """

    processor: float
    wall: float
    first_step: float | None = None


def measured(command: Sequence[str], metrics: Path | None = None) -> Taken:
    """Runs a command.

    Args:
        command: with its arguments.
        metrics: the file that has a line as soon as the first step is over.

    Raises:
        RuntimeError: it ends with another status than 0 and 2.
    """
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process compiles embexp anew
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
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Taken(used, ended - began, first)


def started(cache: Path) -> Taken:
    """A run of one step and its evaluation."""
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "run"
        overrides = ["train.steps=1", "output.plots=false", f"output.cache={cache}", f"hydra.run.dir={directory}"]
        return measured([*EMBEXP, "run", *overrides], directory / "metrics.jsonl")


def main(argv: list[str]) -> int:
    """Measures all in turns, prints the medians, and returns 0 if every target is met, else 1."""
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
    """Prints the medians of a command; returns whether its target, if it has one, is met."""
    processor, wall = (statistics.median(getattr(each, key) for each in several) for key in ("processor", "wall"))
    least, target = min(each.processor for each in several), TARGETS.get(name)
    word = "" if target is None else f"  <= {target} {harness.word(processor <= target)}"
    print(f"{name:18}{processor:8.3f} s processor (least {least:.3f}){wall:9.3f} s wall{word}", flush=True)
    return target is None or processor <= target


def _ratio(taken: dict[str, list[Taken]]) -> bool:
    """Prints the seconds to the first step beside TensorFlow's import in the same turn; returns whether it is met."""
    pairs = [(run.first_step or run.wall, alone.wall) for run, alone in zip(taken[RUN], taken[TENSORFLOW], strict=True)]
    ratio, met, words = harness.judged([run / alone for run, alone in pairs], RATIO, at_most=True)
    first = statistics.median(run for run, _ in pairs)
    print(f"\nstart to first step{first:8.3f} s wall, {ratio:.2f} x {TENSORFLOW}  {words}")
    return met


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
