"""Rating prediction on folds of a file: embexp compared with scikit-surprise's SVD and with biases only.

    python -m bench.ratings FILE [--delimiter D] [--folds 5] [--set KEY=VALUE …]

FILE has lines of user, item and rating, without a header line. All models get the same folds, drawn with seed 0. A
twentieth of each training part is for validation. embexp uses it to stop early. SVD's settings are chosen on it from a
small grid, and SVD is then fitted to the whole part. The biases are the run's own baseline, ridge regression.
Differences are paired by fold, with Student's 95% interval of the RMSE. If a difference is below 0, embexp is better.
scikit-surprise needs numpy<2, so it runs in the interpreter that `--surprise` names. Without it, its rows are left out.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

QUIET = ("output.plots=false", "output.tensorboard=false", "output.digests=false", "checkpoint.save=never")
SURPRISE = """
import itertools, json, sys, time
import numpy as np
from surprise import SVD, Dataset, Reader, accuracy
fit, rest, test = (
    [(user, item, float(value)) for user, item, value in json.load(open(path))] for path in sys.argv[1:4]
)
values = [value for *_, value in fit + rest]
reader = Reader(rating_scale=(min(values), max(values)))
def rmse(train, held, **settings):
    data = Dataset(reader)
    made = data.construct_trainset([(user, item, value, None) for user, item, value in train])
    return accuracy.rmse(SVD(random_state=0, **settings).fit(made).test(held), verbose=False)
grid = [
    dict(n_factors=factors, reg_all=decay, n_epochs=epochs)
    for factors, decay, epochs in itertools.product((32, 100), (0.02, 0.05, 0.1), (20, 40))
]
began = time.process_time()
default = rmse(fit + rest, test)
seconds = time.process_time() - began
best = min(grid, key=lambda settings: rmse(fit, rest, **settings))
print(json.dumps({"default": default, "tuned": rmse(fit + rest, test, **best), "best": best, "seconds": seconds}))
"""


def parts(rows: list[list[str]], folds: int, fold: int) -> dict[str, list[list[str]]]:
    """The training, validation and test ratings of a fold."""
    order = np.array_split(np.random.default_rng(0).permutation(len(rows)), folds)
    rest = np.concatenate([part for number, part in enumerate(order) if number != fold])
    held = len(rest) // 20
    chosen = {"train": rest[held:], "validation": rest[:held], "test": order[fold]}
    return {name: [rows[number] for number in numbers] for name, numbers in chosen.items()}


def ours(divided: dict[str, list[list[str]]], folder: Path, settings: list[str]) -> dict[str, float]:
    """The test RMSE of `experiment=ratings` with additional settings, and of its baseline."""
    import embexp

    for name, rows in divided.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([["user", "item", "rating"], *rows])
    paths = ",".join(f"{name}:{folder / name}.csv" for name in divided)
    overrides = ["experiment=ratings", f"data.path={{{paths}}}", "data.label=rating", *QUIET, *settings]
    began = time.process_time()
    summary = embexp.run(embexp.compose([*overrides, f"output.cache={folder}"]), folder / "run").summary
    seconds = time.process_time() - began
    biases = summary["baselines"]["bias_only"]["test"]["rmse"]
    return {"embexp": summary["metrics"]["test"]["rmse"], "biases only": biases, "seconds": seconds}


def surprise(divided: dict[str, list[list[str]]], folder: Path, interpreter: str) -> dict[str, float]:
    """The test RMSE of scikit-surprise's SVD, with its defaults and with the best settings of a grid."""
    for name, rows in divided.items():
        (folder / f"{name}.json").write_text(json.dumps(rows))
    paths = [str(folder / f"{name}.json") for name in ("train", "validation", "test")]
    found = json.loads(subprocess.run([interpreter, "-c", SURPRISE, *paths], check=True, capture_output=True).stdout)
    print(f"  SVD's best settings: {found['best']}", flush=True)
    return {"SVD": found["default"], "SVD, tuned": found["tuned"]}


def main(argv: list[str]) -> None:
    """Prints the mean RMSE of each model, and the paired differences."""
    from scipy import stats

    parser = argparse.ArgumentParser(prog="python -m bench.ratings", description=__doc__.splitlines()[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("--delimiter", default=" ")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--set", nargs="*", default=[], help="additional settings of the run")
    parser.add_argument("--surprise", help="a Python interpreter that has scikit-surprise")
    options = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    delimiter = options.delimiter.replace("\\t", "\t")
    rows = [line.split(delimiter)[:3] for line in options.file.read_text().splitlines() if line]
    found: dict[str, list[float]] = {}
    for fold in range(options.folds):
        divided = parts(rows, options.folds, fold)
        with tempfile.TemporaryDirectory() as folder:
            measured = ours(divided, Path(folder), options.set)
            if options.surprise is not None:
                measured |= surprise(divided, Path(folder), options.surprise)
        for name, value in measured.items():
            found.setdefault(name, []).append(value)
    seconds = found.pop("seconds")
    print(f"{options.file}: {len(rows):,} ratings, {options.folds} folds, {np.mean(seconds):.1f} processor s per fold")
    print(f"{'':14}{'RMSE':>8}  embexp minus this model")
    for name, values in found.items():
        differences = np.subtract(found["embexp"], values)
        half = stats.t.ppf(0.975, len(values) - 1) * differences.std(ddof=1) / len(values) ** 0.5
        paired = "" if name == "embexp" else f"{differences.mean():+.4f} ± {half:.4f}"
        print(f"{name:14}{np.mean(values):8.4f}  {paired}")


if __name__ == "__main__":
    main(sys.argv[1:])
