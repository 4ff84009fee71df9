"""Searches over three optimizers with their own settings, with and without conditions: trials until the optimum.

    python -m bench.search_conditions [--quick] [--repetitions N] [--json FILE]

The objective is a function of a trial's overrides, so a trial takes milliseconds. Trials are drawn, stored and reported
as in `embexp run -m`. Each optimizer has its own range of learning rates and of weight decay, and a setting that no
other optimizer has. The search without conditions draws all settings in each trial, from the union of the ranges. The
benchmark counts the trials until a value is within 0.02 of the optimum, up to 300.

Then a search of 20 trials is widened twice, and killed 10 times at random moments, with all its processes. Its jobs are
processes that sleep and return the same function. It must have the same result as a search that was not killed: no
trial is lost, and no finished trial runs again.
"""

from __future__ import annotations

import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser

from bench import harness
from embexp.fields.columns.tasks import BINARY
from embexp.specs.tasks import objectives
from embexp.sweeps import space
from embexp.sweeps.search import Search
from embexp.sweeps.settings import checked_search_settings
from embexp.sweeps.study import Study

_MOST, _TOLERANCE, _LARGEST_SHARE, _KILLS = 300, 0.02, 0.6, 10
_BY_LOGARITHM = {"learning_rate", "weight_decay_factor", "l1"}
"""Settings that are drawn and compared by their logarithms."""
RANGES = {
    "sgd": {"learning_rate": (0.01, 10), "weight_decay_factor": (1e-5, 1e-2), "momentum": (0, 0.99)},
    "adam": {"learning_rate": (1e-4, 0.1), "weight_decay_factor": (1e-8, 1e-5), "beta_1": (0.5, 0.99)},
    "ftrl": {"learning_rate": (0.01, 1), "weight_decay_factor": (1e-7, 1e-4), "l1": (1e-6, 1e-2)},
}
BEST = {
    "sgd": (0.04, {"learning_rate": 0.0, "weight_decay_factor": -4.0, "momentum": 0.9}),
    "adam": (0.0, {"learning_rate": -3.0, "weight_decay_factor": -6.0, "beta_1": 0.8}),
    "ftrl": (0.02, {"learning_rate": -1.0, "weight_decay_factor": -5.0, "l1": -4.0}),
}
"""The lowest value of each optimizer, and the settings that give it."""
_WEIGHTS = {"learning_rate": 0.05, "weight_decay_factor": 0.02, "momentum": 0.2, "beta_1": 0.2, "l1": 0.01}


def planted(settings: Mapping[str, str]) -> float:
    """The value of a trial; the optimum is 0, at Adam's lowest value."""
    offset, best = BEST[settings["optimizer"]]
    found = offset
    for name, middle in best.items():
        value = float(settings[f"optimizer.{name}"])
        found += _WEIGHTS[name] * ((math.log10(value) if name in _BY_LOGARITHM else value) - middle) ** 2
    return found


def _interval(name: str, low: float, high: float) -> str:
    text = f"interval({float(low)},{float(high)})"
    return f"tag(log,{text})" if name in _BY_LOGARITHM else text


def conditional() -> space.Space:
    """The space in which each optimizer has its own settings."""
    params: dict[str, Any] = {"optimizer": f"choice({','.join(RANGES)})"}
    for optimizer, ranges in RANGES.items():
        for name, ends in ranges.items():
            entry = {"when": {"optimizer": optimizer}, "space": _interval(name, *ends)}
            params.setdefault(f"optimizer.{name}", []).append(entry)
    lines, entries = space.entries(params)
    parse = OverridesParser.create().parse_override
    return space.space([], [*map(parse, lines)], [(entry, parse(entry.line)) for entry in entries])


def flat() -> space.Space:
    """The space in which each trial has all settings."""
    ends: dict[str, list[float]] = {}
    for ranges in RANGES.values():
        for name, own in ranges.items():
            ends.setdefault(name, []).extend(own)
    lines = [f"optimizer={','.join(RANGES)}"]
    lines += [f"optimizer.{name}={_interval(name, min(own), max(own))}" for name, own in ends.items()]
    return space.space(OverridesParser.create().parse_overrides(lines))


def trials_until(searched: space.Space, seed: int, directory: Path, most: int = _MOST) -> int:
    """Number of trials until a value is within the tolerance; `most` if none is."""
    settings = checked_search_settings({"n_trials": most, "seed": seed})
    search = Search(searched, objectives(BINARY, "log_loss"), settings, 1)
    with Study(search, directory) as study:
        for number in range(most):
            trial = study.ask(number)
            assert trial is not None
            value = planted(trial.settings)
            if value <= _TOLERANCE:
                return number + 1
            study.tell(trial, [value])
    return most


_JOB = """
import ctypes, json, os, pathlib, signal, sqlite3, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
sweep, number = pathlib.Path(sys.argv[1]), int(sys.argv[2])
with sqlite3.connect(sweep / "sweep.sqlite") as ledger:
    [[settings, directory]] = ledger.execute("SELECT settings, directory FROM jobs WHERE number = ?", [number])
settings = json.loads(settings)
time.sleep(0.3)
value = abs(float(settings["optimizer.learning_rate"]) - 0.3)
value += {"sgd": 0.2, "adam": 0.0, "ftrl": 0.1}[settings["optimizer"]]
value += abs(float(settings.get("optimizer.beta_1", 0.9)) - 0.8)
summary = {"status": "completed", "metrics": {"validation": {"log_loss": value}}}
for name, content in (("summary.json", summary), ("inventory.json", {"version": 1, "files": {}})):
    temporary = sweep / directory / f"{name}.part"
    temporary.write_text(json.dumps(content))
    os.replace(temporary, sweep / directory / name)
with open(sweep.parent / f"{sweep.name}.ran", "a") as ran:
    ran.write(f"{number}\\n")
"""
"""A job that trains nothing, but ends like a run: it is killed with its sweep, and its inventory is its last file.

At its end, it leaves a note for the benchmark.
"""
_WIDER = (
    ("sgd,ftrl", "interval(0.1,0.5)", 8),
    ("sgd,ftrl,adam", "interval(0.1,0.5)", 14),
    ("sgd,ftrl,adam", "interval(0.05,1)", 20),
)
"""Optimizers, learning rates and trials of the search at its start, and after each widening."""


def begin(directory: str, stage: int) -> None:
    """Starts or continues a search in this process."""
    from embexp.sweeps.sweep import sweep

    optimizers, rates, trials = _WIDER[stage]
    beta = "{when:{optimizer:adam},space:'interval(0.5,0.95)'}"
    params = f"{{optimizer:'choice({optimizers})',optimizer.learning_rate:'{rates}'"
    params += f",optimizer.beta_1:{beta}}}" if "adam" in optimizers else "}"
    words = [f"hydra.sweep.dir={directory}", f"hydra.sweeper.params={params}", f"hydra.sweeper.n_trials={trials}"]
    words += ["hydra/sweeper=optuna", "hydra.sweeper.n_jobs=2", "hydra.launcher.jobs=2", "train.steps=5"]
    sweep(words, command=lambda place, number: (sys.executable, "-IS", "-c", _JOB, str(place), str(number)))


def searched(directory: Path, kills: Sequence[float]) -> tuple[list[dict[str, Any]], list[int], int]:
    """Runs the search and both widenings to the end.

    Args:
        kills: seconds after which each process of the search, in order, is killed with its jobs.

    Returns:
        The trials in search.json, the numbers of the finished jobs, and the number of kills.
    """
    left, killed = list(kills), 0
    for stage in range(len(_WIDER)):
        share = math.ceil(len(left) / (len(_WIDER) - stage))
        while True:
            command = [
                sys.executable,
                "-c",
                f"from bench.search_conditions import begin; begin({str(directory)!r}, {stage})",
            ]
            process = subprocess.Popen(
                command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            )
            try:
                _, errors = process.communicate(timeout=left[0] if share else None)
            except subprocess.TimeoutExpired:
                left, share = left[1:], share - 1
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                killed += 1
                continue
            if process.returncode:
                raise RuntimeError(errors.decode())
            break
    ran = [int(line) for line in directory.with_name(f"{directory.name}.ran").read_text().splitlines()]
    trials = json.loads((directory / "search.json").read_text())["trials"]
    return trials, ran, killed


def main(argv: list[str]) -> int:
    """Prints the figures; returns 1 if the share is above 60%, or if a killed search has another result."""
    again = "seeds of the sampler (10)"
    options = harness.parser("search_conditions", __doc__, quick="2 seeds and 2 kills", repetitions=again).parse_args(
        argv
    )
    seeds, kills = (2, 2) if options.quick else (options.repetitions or 10, _KILLS)
    described = harness.describe()
    print(json.dumps(described, indent=2))
    counts: dict[str, list[int]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, made in (("flat", flat()), ("conditional", conditional())):
            for seed in range(seeds):
                place = Path(folder) / f"{name} {seed}"
                place.mkdir()
                counts.setdefault(name, []).append(trials_until(made, seed, place))
            print(f"{name}: {sum(counts[name])} trials, median {statistics.median(counts[name]):g}: {counts[name]}")
        share = sum(counts["conditional"]) / sum(counts["flat"])
        print(f"with conditions, {share:.0%} of the trials (at most {_LARGEST_SHARE:.0%})")
        began = time.perf_counter()
        whole, ran_whole, _ = searched(Path(folder) / "whole", [])
        long = (time.perf_counter() - began) / len(_WIDER)
        moments = [random.uniform(0.3, 0.8) * long for _ in range(kills)]
        trials, ran, killed = searched(Path(folder) / "killed", moments)
    keys = ("job", "state", "params", "values")
    is_same = [[each[key] for key in keys] for each in whole] == [[each[key] for key in keys] for each in trials]
    lost, twice = len(whole) - len(trials), len(ran) - len({*ran})
    print(f"killed {killed} times: {lost} of {len(ran_whole)} trials lost, {twice} trials run twice")
    print("the trials and values are the same" if is_same else "the trials or values differ")
    harness.save(options, described, counts=counts, share=share, killed=killed, lost=lost, twice=twice, same=is_same)
    return int(share > _LARGEST_SHARE or lost > 0 or twice > 0 or not is_same)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
