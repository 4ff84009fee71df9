"""Every shipped experiment with its defaults, on data with a planted truth. No default was chosen on these data.

    python -m bench.defaults [NAME…] [--json FILE]

NAME is a part of the name of a data set, such as `clicks`. Without a NAME, all are trained, which takes some minutes.
The table has the task's metric on the validation and test splits, next to the baseline (a constant prediction, or
popularity for recommendations), and the seconds of the run including its start. Two experiments are left out:
`initialization` has no split to evaluate on, and `new_entities` trains the models of `knowledge_graph`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.planted_experiments import CASES

METRICS = {
    "regression": "rmse",
    "binary": "log_loss",
    "classification": "accuracy",
    "ranking": "mrr",
    "recommendation": "ndcg_at_10",
}
QUIET = (
    "output.plots=false",
    "output.tensorboard=false",
    "output.digests=false",
    "checkpoint.save=never",
    "output.baselines=false",
)


def measured(name: str, folder: Path) -> dict[str, Any]:
    """Trains one experiment on a data set that is generated in an empty folder."""
    import embexp
    from embexp.runs import run as single

    overrides = CASES[name](folder)
    (folder / "run").mkdir()
    spec = embexp.compose([*overrides, *QUIET, f"output.cache={folder / 'cache'}"])
    began = time.perf_counter()
    summary = single.run(spec, folder / "run").summary
    seconds = time.perf_counter() - began
    metric = METRICS[str(summary["task"])]
    [by_split] = summary["baselines"].values()
    return {
        "experiment": spec.name,
        "data": name,
        "examples": sum(summary["examples"].values()),
        "metric": metric,
        "validation": summary["metrics"]["validation"][metric],
        "test": summary["metrics"]["test"][metric],
        "baseline": by_split["test"][metric],
        "better": not any("no better" in line for line in summary["warnings"]),
        "steps": summary["steps"],
        "seconds": seconds,
    }


def main(argv: list[str]) -> int:
    """Prints the table; the status is 1 if a run is no better than its baseline."""
    parser = argparse.ArgumentParser(prog="python -m bench.defaults", description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(argv)
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    found = []
    print(f"{'experiment':22}{'data':28}{'examples':>9}  {'metric':11}{'baseline':>9}{'valid.':>9}{'test':>9}{'s':>6}")
    for name in CASES:
        if options.names and not any(part in name for part in options.names):
            continue
        with tempfile.TemporaryDirectory() as folder:
            row = measured(name, Path(folder))
        found.append(row)
        print(
            f"{row['experiment']:22}{name:28}{row['examples']:9,}  {row['metric']:11}{row['baseline']:9.4f}"
            f"{row['validation']:9.4f}{row['test']:9.4f}{row['seconds']:6.0f}{'' if row['better'] else '  NO BETTER'}",
            flush=True,
        )
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    return int(not all(row["better"] for row in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
