"""Whole training steps of the models in embexp, compared with the same models in plain PyTorch and Keras.

    python -m bench.models [--quick] [--models a,b] [--repetitions N] [--threads N] [--json FILE] [--record]
                           [--instructions avx2]

All have the same sizes, optimizer rules, batches and number of threads. embexp is a run with its input pipeline; the
others get batches that are in memory. Each library has its own process, and the processes take turns: in a repetition,
each library trains some steps, one library after another. Ratios are taken within a repetition, and their median is
reported. DLRM has one more peer: PyTorch with the tables of FBGEMM, whose backward pass is the update.

Then the profiler shows how a step of embexp spends its time. For DLRM, and for models that are mostly matrix products,
the benchmark also prints the least time that this machine needs (`limit` in `bench/models_ours.py`).
"""

from __future__ import annotations

import contextlib
import importlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from bench import harness
from bench.models_cases import CASES, setting
from bench.models_ours import PARTS, begun, limit

OURS = "embexp"
LIBRARIES = (OURS, "torch", "keras", "fbgemm")
SECONDS, QUICK_SECONDS = 2.0, 0.5
"""Time limit of a library in a repetition; but it trains at least `FEWEST` and at most `MOST` steps."""
FEWEST, MOST = 3, 200
LIMIT_TARGET = 2.0


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if every target is met, else 1."""
    quick, repetitions = "one repetition with fewer steps", "number of repetitions (5; quick: 1)"
    parser = harness.parser("models", __doc__, quick=quick, repetitions=repetitions, threads=True)
    parser.add_argument("--models", help=f"some of {','.join(CASES)}, separated by commas")
    options = parser.parse_args(argv)
    names = options.models.split(",") if options.models else list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"unknown models: {', '.join(unknown)}")
    count, seconds = options.repetitions or (1 if options.quick else 5), QUICK_SECONDS if options.quick else SECONDS
    described = harness.introduce()
    print(f"{'threads':12} {options.threads}")
    print(f"\nms/step (processor time)  {'embexp':>16}{'torch':>18}{'keras':>18}   ratios", flush=True)
    results, missed = {}, False
    for name in names:
        found = results[name] = measured(name, options.threads, count, seconds)
        missed |= report(name, found)
    quotable = {name: figures(found) for name, found in results.items()}
    harness.save(options, described, quotable, results=results)
    return 1 if missed else 0


def figures(found: dict[str, Any]) -> dict[str, Any]:
    """The figures of a model that pages may quote: milliseconds and ratios by library, and the limit."""
    ours = found["times"][OURS]
    quotable: dict[str, Any] = {
        library: {
            "ms": [wall for wall, _ in times],
            "ratio": [wall / own for (wall, _), (own, _) in zip(times, ours, strict=True)],
        }
        for library, times in found["times"].items()
    }
    if least := found.get("limit"):
        of_keras = [wall / least["ms"] for wall, _ in found["times"]["keras"]]
        quotable["limit"] = {**least, "ratio": [wall / least["ms"] for wall, _ in ours], "keras": of_keras}
    return quotable


class Worker:
    """A process that trains one case with one library.

    Each library has its own process, so that its threads never wait for those of another library. All processes stay
    alive, and only the one that is asked does anything.
    """

    def __init__(self, stack: contextlib.ExitStack, library: str, case: str, folder: Path, threads: int) -> None:
        """Starts the process, and waits until it is ready. The process ends with the stack."""
        context = multiprocessing.get_context("spawn")
        self._pool = stack.enter_context(ProcessPoolExecutor(1, context))
        stack.callback(lambda: self._pool.submit(_end).result())
        self._pool.submit(_begin, library, case, folder, threads).result()

    def ask(self, what: str, steps: int) -> Any:
        """The result of a function of `_begin`: `train`, `profile` or `limit`."""
        return self._pool.submit(_answer, what, steps).result()


_ending = contextlib.ExitStack()
_answers: dict[str, Callable[[int], Any]] = {}
"""The functions of a worker's process, by name."""


def _begin(library: str, name: str, folder: Path, threads: int) -> None:
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": str(threads)}
    os.dup2(os.open(folder / f"{library}.stderr", os.O_WRONLY | os.O_CREAT, 0o600), 2)  # TensorFlow still greets
    case = CASES[name]
    if library != OURS:
        advance = importlib.import_module(f"bench.models_{library}").advance
        _answers["train"] = _timed(advance(setting(case, folder), threads))
        return
    ours = _ending.enter_context(begun(case, folder, threads))
    _answers["train"], _answers["profile"] = _timed(ours.train), ours.profile
    _answers["limit"] = lambda _: limit(ours.spec, ours.sizes)


def _answer(what: str, steps: int) -> Any:
    return _answers[what](steps)


def _end() -> None:
    _ending.close()


def _timed(advance: Any) -> Callable[[int], tuple[float, float]]:
    """A function from a number of steps to milliseconds per step, by the clock and by the processor."""

    def timed(steps: int) -> tuple[float, float]:
        start, processor = time.perf_counter(), time.process_time()
        advance(steps)
        return (time.perf_counter() - start) / steps * 1e3, (time.process_time() - processor) / steps * 1e3

    return timed


def measured(name: str, threads: int, repetitions: int, seconds: float) -> dict[str, Any]:
    """Milliseconds per step, by the clock and by the processor, for each library and repetition; profile; limit."""
    libraries = [each for each in LIBRARIES if each != "fbgemm" or CASES[name].fbgemm]
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        workers = {}
        for library in libraries:  # embexp first, because it makes the batches of the others
            workers[library] = Worker(stack, library, name, Path(scratch), threads)
        steps = {}
        for library, worker in workers.items():
            worker.ask("train", FEWEST)
            steps[library] = int(min(MOST, max(FEWEST, seconds * 1e3 // worker.ask("train", FEWEST)[0])))
        times: dict[str, list[tuple[float, float]]] = {library: [] for library in libraries}
        for _ in range(repetitions):
            for library, worker in workers.items():
                times[library].append(worker.ask("train", steps[library]))
        found: dict[str, Any] = {"times": times, "profile": workers[OURS].ask("profile", steps[OURS])}
        if least := workers[OURS].ask("limit", 0):
            found["limit"] = least
        return found


def report(name: str, found: dict[str, Any]) -> bool:
    """Prints a model's results; returns whether a target is missed."""
    times, case = found["times"], CASES[name]
    medians = {
        library: [statistics.median(part) for part in zip(*each, strict=True)] for library, each in times.items()
    }
    line = "".join(f"{f'{wall:.2f} ({processor:.2f})':>18}" for wall, processor in medians.values())
    told, missed, quotable = [], False, figures(found)
    for library in list(times)[1:]:
        ratio, met, words = harness.judged(quotable[library]["ratio"], getattr(case, library))
        missed |= not met
        told.append(f"{library} {ratio:.2f} {words}")
    print(f"{name:24}{line}   {'; '.join(told)}")
    profile = dict(found["profile"])
    print("    parts, ms of all threads: " + ", ".join(f"{p} {profile.pop(p):.2f}" for p in (*PARTS, "input", "other")))
    print("    largest: " + ", ".join(f"{kind} {value:.2f}" for kind, value in profile.items()), flush=True)
    if least := found.get("limit"):
        ratio, theirs = (medians[library][0] / least["ms"] for library in (OURS, "keras"))
        traffic = bound = ""
        if least["mib"]:
            missed |= ratio > LIMIT_TARGET
            traffic = f", {least['mib']:.0f} MiB at {least['gib_per_second']:.1f} GiB/s"
            bound = f" <= {LIMIT_TARGET} {harness.word(ratio <= LIMIT_TARGET)}"
        print(
            f"    limit: {least['gflop']:.2f} GFLOP at {least['gflops']:.0f}/s{traffic}: {least['ms']:.2f} ms; "
            f"a step takes {ratio:.2f} × that{bound}, in Keras {theirs:.2f} ×",
            flush=True,
        )
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
