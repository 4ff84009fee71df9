"""A first experiment as `embexp new` writes it, compared with LightGBM at its defaults.

    python -m bench.first_table FILE --label COLUMN [--seeds N] [--quick] [--json FILE]

FILE is a CSV file with a header line and two classes, such as the census file Adult with `--label income`. For each
seed of the split, `embexp run` trains the experiment that `embexp new` wrote, unchanged. LightGBM gets the same columns
of the same rows, with texts as categories. It trains on the training split, and once more on the training and
validation splits together, because it does not need a validation split. The AUC is on the same test rows, so
differences are paired. The interval of their mean is Student's t.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench import harness

SEEDS, QUICK_SEEDS = 10, 2
LEAST = -0.005
"""The target: the smallest mean difference."""
QUIET = ("output.plots=false", "output.tensorboard=false", "output.digests=false", "checkpoint.save=never")


def ours(experiment: str, folder: Path, seed: int) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """The test AUC of a run and of its baseline, its seconds, and the row numbers of its splits."""
    import embexp
    from embexp.runs.prepare import read_data
    from embexp.system.parallel import quiet

    words = [f"experiment={experiment}", f"data.split.seed={seed}", f"output.cache={folder / 'cache'}", *QUIET]
    spec = embexp.compose(words, config_dir=folder / "mine")
    began = time.perf_counter()
    summary = embexp.run(spec, folder / f"run{seed}").summary
    found = {
        "auc": summary["metrics"]["test"]["auc"],
        "logistic_regression": summary["baselines"]["logistic_regression"]["test"]["auc"],
        "seconds": time.perf_counter() - began,
    }
    return found, dict(read_data(spec, quiet).scan.splits)


def theirs(inputs: np.ndarray, categories: list[int], labels: np.ndarray, train: np.ndarray, test: np.ndarray) -> float:
    """The test AUC of LightGBM at its defaults."""
    import lightgbm
    from sklearn.metrics import roc_auc_score

    model = lightgbm.LGBMClassifier(verbose=-1, n_jobs=harness.CORES)
    model.fit(inputs[train], labels[train], categorical_feature=categories)
    return float(roc_auc_score(labels[test], np.asarray(model.predict_proba(inputs[test]))[:, 1]))


def read(file: Path, label: str) -> tuple[np.ndarray, list[int], np.ndarray]:
    """The columns, float64 [N, C], the columns that are categories, and the labels, where 1 is the rarer value."""
    import pyarrow as pa
    from pyarrow import csv

    table = csv.read_csv(file)
    columns: list[np.ndarray] = []
    categories: list[int] = []
    for name in table.column_names:
        column = table[name].combine_chunks()
        if pa.types.is_string(column.type):
            column = column.dictionary_encode().indices
            categories += [len(columns)] if name != label else []
        values = np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
        if name == label:
            labels = np.asarray(values == (0.0 if np.mean(values == 0) < 0.5 else 1.0), np.int64)
        else:
            columns.append(values)
    return np.stack(columns, axis=1), categories, labels


def compared(file: Path, label: str, seeds: int) -> list[dict[str, Any]]:
    """The AUC of each model for each seed, on the same rows."""
    inputs, categories, labels = read(file, label)
    found = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        new = [
            sys.executable,
            "-m",
            "embexp",
            "new",
            str(file.absolute()),
            "--label",
            label,
            "--out",
            str(folder / "mine"),
        ]
        subprocess.run(new, check=True, capture_output=True)
        [experiment] = (each.stem for each in (folder / "mine" / "experiment").iterdir())
        for seed in range(seeds):
            own, splits = ours(experiment, folder, seed)
            both = np.concatenate([splits["train"], splits["validation"]])
            found.append(
                own
                | {
                    "lightgbm": theirs(inputs, categories, labels, splits["train"], splits["test"]),
                    "lightgbm_both": theirs(inputs, categories, labels, both, splits["test"]),
                }
            )
            print("  ".join(f"{key} {value:.4f}" for key, value in found[-1].items()), flush=True)
    return found


def difference(found: list[dict[str, Any]], name: str) -> tuple[float, float]:
    """The mean difference in AUC from LightGBM, and half the width of its 95% interval."""
    from scipy.stats import t

    pairs = [each["auc"] - each[name] for each in found]
    half = float(t.ppf(0.975, len(pairs) - 1)) * statistics.stdev(pairs) / len(pairs) ** 0.5
    return statistics.mean(pairs), half


def main(argv: list[str]) -> int:
    """Prints a line for each seed, and the differences; returns 1 if the first difference is below `LEAST`."""
    parser: argparse.ArgumentParser = harness.parser("first_table", __doc__, quick=f"{QUICK_SEEDS} seeds")
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--label")
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args(argv)
    if options.file is None or options.label is None:
        print("this benchmark needs a table: python -m bench.first_table FILE --label COLUMN")
        return 0
    machine = harness.introduce_in_a_line()
    found = compared(options.file, options.label, options.seeds or (QUICK_SEEDS if options.quick else SEEDS))
    for name, words in (("lightgbm", "trained on the same rows"), ("lightgbm_both", "trained on validation rows, too")):
        mean, half = difference(found, name)
        print(f"embexp - LightGBM {words}: AUC {mean:+.4f} ± {half:.4f} (95%)")
    mean, _ = difference(found, "lightgbm")
    print(f">= {LEAST} {harness.word(mean >= LEAST)}")
    harness.save(options, machine, seeds=found)
    return 0 if mean >= LEAST else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
