"""What 16-bit rows cost in quality: paired runs with rows and slots in float32 and in 16 bits.

    python -m bench.narrow [--quick] [--seeds N] [--only a,b] [--data FOLDER] [--json FILE]

The experiments are a planted click log, which is also trained with the small steps of SGD, MovieLens-100K
(FOLDER/ml-100k, RecBole's files) and Kinship (FOLDER/kinship). An experiment without a file is skipped with a message.
Each seed gives other initial rows and another order of the examples, and trains once with each way to store rows. The
table has the mean test metric, and the mean difference from float32 in per cent, with Student's 95% interval over
seeds. The target for stochastic rounding is at most 0.5%.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from bench import harness

WITHIN = 0.5
"""The target: per cent of the metric within which the interval of stochastic rounding must lie."""
WAYS: dict[str, tuple[dict[str, str], bool]] = {
    "float32": ({}, True),
    "bfloat16, stochastic": ({"dtype": "bfloat16", "slot_dtype": "bfloat16"}, True),
    "bfloat16, nearest": ({"dtype": "bfloat16", "slot_dtype": "bfloat16", "stochastic_rounding": "false"}, False),
    "float16, stochastic": ({"dtype": "float16", "slot_dtype": "bfloat16"}, True),
}
"""Settings of every table, and whether the bound applies to them."""
CASES: dict[str, tuple[tuple[str, ...], str | None, str]] = {
    "clicks": (("experiment=clicks", "data.examples=200000"), None, "auc"),
    "clicks-sgd": (
        ("experiment=clicks", "data.examples=200000", "optimizer=sgd", "optimizer.learning_rate=1", "train.epochs=5"),
        None,
        "auc",
    ),
    "ml-100k": (
        (
            "experiment=ratings",
            "data=recbole",
            "data.label=rating",
            "features.user.column=user_id",
            "features.item.column=item_id",
        ),
        "ml-100k",
        "rmse",
    ),
    "kinship": (("experiment=knowledge_graph", "train.epochs=20", "tables.entity.dim=200"), "kinship", "mrr"),
}
"""Overrides, the file or folder inside the data folder, and the metric."""


def main(argv: list[str]) -> int:
    """Measures and prints; returns 0 if stochastic rounding stays within the bound, else 1."""
    parser = harness.parser("narrow", __doc__, quick="two seeds of clicks, with few examples")
    parser.add_argument("--seeds", type=int, help="number of seeds (10; quick: 2)")
    parser.add_argument("--only", help=f"some of {','.join(CASES)}, separated by commas")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"), help="folder of the data sets")
    options = parser.parse_args(argv)
    names = options.only.split(",") if options.only else ["clicks"] if options.quick else list(CASES)
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"unknown cases: {', '.join(unknown)}")
    seeds = options.seeds or (2 if options.quick else 10)
    described, missed, results = harness.introduce(), False, {}
    for name in names:
        overrides, file, metric = CASES[name]
        if file is not None and not (options.data / file).exists():
            print(f"{name}: skipped, because {options.data / file} does not exist")
            continue
        own = [*overrides, *(["data.examples=20000"] if options.quick else [])]
        own += [] if file is None else [f"data.path={(options.data / file).resolve()}"]
        found = {way: [_metric(own, way, metric, seed) for seed in range(seeds)] for way in WAYS}
        results[name] = found
        missed |= report(name, metric, found)
    harness.save(options, described, results=results)
    return 1 if missed else 0


def _metric(overrides: list[str], way: str, metric: str, seed: int) -> float:
    """The test metric of a run."""
    import embexp

    quiet = ["output.plots=false", "output.tensorboard=false", "output.baselines=false", "checkpoint.save=never"]
    with tempfile.TemporaryDirectory() as folder:
        spec = embexp.compose([*overrides, *quiet, f"seed={seed}"])
        settings, _ = WAYS[way]
        own = [f"tables.{table}.{key}={value}" for table in spec.tables for key, value in settings.items()]
        spec = embexp.compose([*overrides, *quiet, *own, f"seed={seed}"])
        with open(os.devnull, "w") as nowhere, contextlib.redirect_stdout(nowhere):
            result: Any = embexp.run(spec, directory=Path(folder) / "run")
        return float(result.summary["metrics"]["test"][metric])


def report(name: str, metric: str, found: dict[str, list[float]]) -> bool:
    """Prints a case; returns whether it misses a bound."""
    reference, missed = np.array(found["float32"]), False
    for way, (_, bound) in WAYS.items():
        line = f"{name:10} {way:22} {metric} {statistics.mean(found[way]):.4f}"
        if way != "float32":
            percent = 100 * (np.array(found[way]) - reference) / reference
            half = float(stats.t.ppf(0.975, len(percent) - 1) * percent.std(ddof=1) / np.sqrt(len(percent)))
            low, high = percent.mean() - half, percent.mean() + half
            line += f"   {percent.mean():+.3f}% [{low:+.3f}, {high:+.3f}]"
            if bound:
                met = low >= -WITHIN and high <= WITHIN
                missed |= not met
                line += f"   within {WITHIN}% {harness.word(met)}"
        print(line, flush=True)
    return missed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
