"""Whole training steps of the models that embexp ships, beside the same models written plainly in PyTorch and Keras.

    python -m bench.models [--quick] [--models a,b] [--repetitions N] [--threads N] [--json FILE]

All have the same sizes, rules of the optimizers, batches and number of threads. Ours is a run with its input pipeline;
the others get batches that are in memory. Each library is a process of its own, and they take turns: a repetition is
some steps of each, one library after the other. Ratios are taken within a repetition, and their median is reported.

Then the profiler tells where a step of ours goes. For DLRM, and for models that are mostly matrix products, the least
time that the machine needs is told, too (`bench/models_limit.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import machine
from bench.models_cases import CASES
from bench.models_profile import PARTS
from bench.models_worker import OURS, Worker
from embexp.system import files

LIBRARIES = (OURS, "torch", "keras")
SECONDS, QUICK_SECONDS = 2.0, 0.5
"""Of a library's steps in a repetition, at most; but it does at least `FEWEST`, and at most `MOST`."""
FEWEST, MOST = 3, 200
LIMIT_TARGET = 2.0


def main(argv: list[str]) -> int:
    """Measures, prints, and returns 0 if every target is met, else 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.models", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one repetition with fewer steps")
    parser.add_argument("--models", help=f"some of {','.join(CASES)}, separated by commas")
    parser.add_argument("--repetitions", type=int, help="number of repetitions (5; quick: 1)")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of every library")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args(argv)
    names = options.models.split(",") if options.models else list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no models: {', '.join(unknown)}")
    repetitions = options.repetitions or (1 if options.quick else 5)
    described = machine.describe()
    for key, value in described.items():
        print(f"{key:12} {value}")
    print(f"{'threads':12} {options.threads}")
    print(f"\nms/step (of the processor){'embexp':>16}{'torch':>18}{'keras':>18}   ratios", flush=True)
    results, missed = {}, False
    for name in names:
        found = results[name] = measured(
            name, options.threads, repetitions, QUICK_SECONDS if options.quick else SECONDS
        )
        missed |= report(name, found)
    if options.json is not None:
        files.write_text(options.json, json.dumps({"machine": described, "results": results}, indent=2) + "\n")
    return 1 if missed else 0


def measured(name: str, threads: int, repetitions: int, seconds: float) -> dict[str, Any]:
    """Milliseconds of a step and of the processor by library, for each repetition; the profile; the limit."""
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as stack:
        workers = {}
        for library in LIBRARIES:  # ours first: it makes the batches of the others
            workers[library] = Worker(library, name, Path(scratch), threads)
            stack.callback(workers[library].close)
        steps = {}
        for library, worker in workers.items():
            worker.train(FEWEST)
            steps[library] = int(min(MOST, max(FEWEST, seconds * 1e3 // worker.train(FEWEST)[0])))
        times: dict[str, list[tuple[float, float]]] = {library: [] for library in LIBRARIES}
        for _ in range(repetitions):
            for library, worker in workers.items():
                times[library].append(worker.train(steps[library]))
        found: dict[str, Any] = {"times": times, "profile": workers[OURS].profile(steps[OURS])}
        if limit := workers[OURS].limit():
            found["limit"] = limit
        return found


def report(name: str, found: dict[str, Any]) -> bool:
    """Prints a model's results; whether a target is missed."""
    times, case = found["times"], CASES[name]
    medians = {
        library: [statistics.median(part) for part in zip(*times[library], strict=True)] for library in LIBRARIES
    }
    line = "".join(f"{f'{wall:.2f} ({processor:.2f})':>18}" for wall, processor in medians.values())
    told, missed = [], False
    for library, target in (("torch", case.torch), ("keras", case.keras)):
        each = [theirs[0] / ours[0] for ours, theirs in zip(times[OURS], times[library], strict=True)]
        ratio = statistics.median(each)
        missed |= ratio < target
        spread = " ".join(f"{value:.2f}" for value in each)
        told.append(f"{library} {ratio:.2f} >= {target} {'met' if ratio >= target else 'MISSED'} ({spread})")
    print(f"{name:24}{line}   {'; '.join(told)}")
    profile = dict(found["profile"])
    print("    parts, ms of all threads: " + ", ".join(f"{p} {profile.pop(p):.2f}" for p in (*PARTS, "input", "other")))
    print("    largest: " + ", ".join(f"{kind} {value:.2f}" for kind, value in profile.items()), flush=True)
    if limit := found.get("limit"):
        ratio, theirs = (medians[library][0] / limit["ms"] for library in (OURS, "keras"))
        traffic = bound = ""
        if limit["mib"]:
            missed |= ratio > LIMIT_TARGET
            traffic = f", {limit['mib']:.0f} MiB at {limit['gib_per_second']:.1f} GiB/s"
            bound = f" <= {LIMIT_TARGET} {'met' if ratio <= LIMIT_TARGET else 'MISSED'}"
        print(
            f"    limit: {limit['gflop']:.2f} GFLOP at {limit['gflops']:.0f}/s{traffic}: {limit['ms']:.2f} ms; "
            f"a step is {ratio:.2f} × that{bound}, one of Keras {theirs:.2f} ×",
            flush=True,
        )
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
