"""The shipped settings of `experiment=knowledge_graph_large`, compared with the best of 20 from a grid.

    python -m bench.knowledge_graph_settings RESULTS.json [--graph FOLDER] [--runs N]
    python -m bench.knowledge_graph_settings RESULTS.json --graph FOLDER --experiment knowledge_graph --times 10

The graph is the one of `bench.planted_graph`, unless --graph names another. Successive halving (Jamieson and Talwalkar
2016) chooses among the 20 by validation MRR. All train for 1 epoch, the best 4 again for 3, and the best again for 10,
each from the start. For small graphs, whose epochs are short, --times multiplies these numbers. The run with the best
validation MRR of all is compared, because a few epochs may be better than many. The shipped settings train unchanged.
RESULTS.json is written after every run. If the file exists, the program continues with the next run, and --runs limits
the number of runs. Every run is a new process, and depends only on its settings.

On 2 idle cores, the 20 settings take about 30 minutes, and the shipped ones 6.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness, planted_graph
from embexp.system import files

GRID: dict[str, tuple[Any, ...]] = {
    "model": ("complex", "distmult", "transe", "rotate"),
    "tables.entity.dim": (128, 256, 512),
    "train.batch_size": (128, 512),
    "data.negatives": ("null", 64, 512),
    "data.shared_negatives": (False, True),
    "model.n3": (0.0, 0.01, 0.05, 0.1, 0.2),
    "model.dropout": (0.0, 0.3),
    "optimizer.learning_rate": (0.03, 0.1, 0.3),
    "optimizer.initial_accumulator_value": (1e-12, 1e-10, 1e-8),
}
"""Distances to all entities take hours, so transe and rotate have 64 samples per query. Products have samples that a
batch shares, or all entities."""
DRAWN, SEED = 20, 0
RUNGS = ((1, 20), (3, 4), (10, 1))
"""Epochs of each rung, and the number of settings that reach it."""
SHIPPED = "shipped"
LEAST = 0.95
"""The target: the shipped settings' share of the best test MRR."""

Settings = Mapping[str, Any]


def _allowed(settings: Settings) -> bool:
    negatives, shared = settings["data.negatives"], settings["data.shared_negatives"]
    if settings["model"] in ("complex", "distmult"):
        return bool(shared == (negatives != "null"))
    return negatives == 64 and not shared


def drawn() -> list[Settings]:
    """The drawn settings, in order and without duplicates."""
    cases = [dict(zip(GRID, values, strict=True)) for values in itertools.product(*GRID.values())]
    allowed = [each for each in cases if _allowed(each)]
    places = np.random.default_rng(SEED).permutation(len(allowed))[:DRAWN]
    return [allowed[place] for place in places]


@dataclass
class Results:
    """Finished runs by name and epochs, kept in a file.

    Attributes:
        path: path of the file.
        found: metrics and seconds of each run.
    """

    path: Path
    found: dict[str, dict[str, Any]]

    def add(self, key: str, result: dict[str, Any]) -> None:
        """Adds a run, and writes the file."""
        self.found[key] = result
        content = {"machine": harness.describe(), "runs": self.found}
        files.write_text(self.path, json.dumps(content, indent=1))

    def mrr(self, key: str, split: str) -> float:
        """The key of a run."""
        return float(self.found[key][split]["mrr"])


def pending(results: Results, times: int = 1) -> Iterator[tuple[str, Settings, int | None]]:
    """Name, settings and epochs of the missing runs that earlier results have decided."""
    settings = drawn()
    names = [f"{number:02}" for number in range(len(settings))]
    before = 0
    for epochs, count in ((times * epochs, count) for epochs, count in RUNGS):
        if before:
            names = sorted(names, key=lambda name: -results.mrr(f"{name}, {before} epochs", "validation"))[:count]
        for name in names:
            if f"{name}, {epochs} epochs" not in results.found:
                yield f"{name}, {epochs} epochs", settings[int(name)], epochs
        before = epochs
    if SHIPPED not in results.found:
        yield SHIPPED, {}, None


def run(graph: Path, experiment: str, settings: Settings, epochs: int | None) -> dict[str, Any]:
    """Trains in a new process.

    Raises:
        RuntimeError: the process fails.
    """
    words = [f"{key}={value}" for key, value in settings.items()]
    if epochs is not None:
        words += [f"train.epochs={epochs}", "train.early_stopping.patience=null", f"train.evaluate_every={10**9}"]
    with tempfile.TemporaryDirectory() as scratch:
        command = [sys.executable, "-m", "embexp", "run", f"experiment={experiment}", f"data.path={graph}"]
        command += [*words, "output.plots=false", "output.tensorboard=false", "output.digests=false"]
        began = time.perf_counter()
        done = subprocess.run(
            [*command, "checkpoint.save=never", f"hydra.run.dir={scratch}/run"],
            capture_output=True,
            text=True,
            check=False,
        )
        seconds = time.perf_counter() - began
        if done.returncode:
            raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")
        summary = json.loads((Path(scratch) / "run/summary.json").read_text("utf-8"))
    metrics = summary["metrics"]
    return {
        "settings": dict(settings),
        "epochs": epochs,
        "seconds": seconds,
        "steps": summary["steps"],
        "validation": metrics["validation"],
        "test": metrics["test"],
    }


def compared(results: Results, experiment: str) -> bool:
    """Prints the shipped settings and the best of the others; returns whether the shipped ones are good enough."""
    others = [key for key in results.found if key != SHIPPED]
    best = max(others, key=lambda key: results.mrr(key, "validation"))
    for key in (best, SHIPPED):
        mine = results.found[key]
        words = " ".join(f"{name}={value}" for name, value in mine["settings"].items()) or f"experiment={experiment}"
        print(
            f"{key:14} validation MRR {results.mrr(key, 'validation'):.4f}, test MRR {results.mrr(key, 'test'):.4f},"
            f" {mine['seconds']:.0f} s: {words}"
        )
    share = results.mrr(SHIPPED, "test") / results.mrr(best, "test")
    spent = sum(each["seconds"] for key, each in results.found.items() if key != SHIPPED)
    met = share >= LEAST
    print(f"the {DRAWN} settings took {spent / 60:.0f} minutes")
    print(f"test MRR, shipped / best of {DRAWN}: {share:.3f} >= {LEAST:g} {'met' if met else 'missed'}")
    return met


def command(argv: list[str]) -> int:
    """Trains the missing runs, and compares once none is missing."""
    parser = argparse.ArgumentParser(prog="bench.knowledge_graph_settings")
    parser.add_argument("results", type=Path, metavar="RESULTS.json")
    parser.add_argument("--graph", type=Path, help="folder of another graph")
    parser.add_argument("--runs", type=int, help="stop after so many runs")
    parser.add_argument("--experiment", default="knowledge_graph_large", help="experiment whose settings are compared")
    parser.add_argument("--times", type=int, default=1, help="factor for the epochs of the 20 settings")
    parser.add_argument("--shipped", action="store_true", help="start with the shipped settings")
    options = parser.parse_args(argv)
    there = json.loads(options.results.read_text("utf-8"))["runs"] if options.results.exists() else {}
    results = Results(options.results, there)
    with tempfile.TemporaryDirectory() as scratch:
        graph = options.graph or planted_graph.write_graph(Path(scratch) / "graph")
        if options.shipped and SHIPPED not in results.found:
            results.add(SHIPPED, run(graph, options.experiment, {}, None))
        for count in itertools.count():
            missing = next(pending(results, options.times), None)
            if missing is None:
                return 0 if compared(results, options.experiment) else 1
            if count == options.runs:
                print(f"{options.results} has {len(results.found)} runs; start again for the others")
                return 0
            key, settings, epochs = missing
            result = run(graph, options.experiment, settings, epochs)
            results.add(key, result)
            print(
                f"{key:14} validation MRR {result['validation']['mrr']:.4f}, test MRR {result['test']['mrr']:.4f},"
                f" {result['seconds']:.0f} s: {' '.join(f'{name}={value}' for name, value in settings.items())}",
                flush=True,
            )
    return 0


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
