"""Models that multiply columns, compared with logistic regression on a click log with planted crosses.

    python -m bench.crosses [--quick] [--rows N] [--models a,b] [--folder DIR] [--json FILE]

The log is the one of `bench.clicks`: six pairs of its categories add the dot product of two hidden vectors to the
logit, so its best possible AUC is known. Each model is one `embexp run` with the optimizers' default learning rates. It
trains until the validation metric no longer improves, for at most `EPOCHS` epochs. Logistic regression has one weight
for each value of a category: tables of dim 1 and a linear layer. The target is that every other model has a higher AUC
on the test rows. It is only judged on all rows. In a short log, most values are too rare to learn a vector for them:
on 50,000 rows, logistic regression is better.

Results are kept in --json, and are not measured again. A full run takes a quarter of an hour, and --quick some minutes.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench import harness
from bench.click_log import write
from bench.clicks import DIM, HIDDEN, YAML, ours
from embexp.system import files

ROWS, QUICK_ROWS = 3_000_000, 50_000
EPOCHS = 4
LINEAR = "logistic"
_WIDTHS = ",".join(map(str, HIDDEN))
_DEEP = f"model.hidden=[{_WIDTHS}]"
MODELS = {
    LINEAR: ("model=mlp", "model.hidden=[]"),
    "mlp": ("model=mlp", _DEEP),
    "fm": ("model=fm",),
    "deepfm": ("model=deepfm", _DEEP),
    "dcn_v2": ("model=dcn_v2", _DEEP),
    "dlrm": ("model=dlrm", f"model.top=[{_WIDTHS}]"),
    "dlrm_concat": ("model=dlrm_concat", f"model.top=[{_WIDTHS}]"),
}
"""Overrides by the name of the model."""


def yaml_of(name: str) -> str:
    """The experiment of `bench.clicks`, for any model."""
    lines = [line for line in YAML.splitlines(keepends=True) if not line.startswith("model:")]
    return "".join(lines).replace(f"dim: {DIM}", "dim: 1" if name == LINEAR else f"dim: {DIM}")


def trained(name: str, log: Path, folder: Path, batch: int) -> dict[str, Any]:
    """AUC on the validation and test splits, and seconds."""
    training = (f"train.epochs={EPOCHS}", "train.early_stopping.patience=1")
    return ours(log, folder, batch, yaml_of(name), (*MODELS[name], *training))


def main(argv: list[str]) -> int:
    """Trains and prints; returns 0 if every model is better than logistic regression, else 1."""
    parser = harness.parser("crosses", __doc__, quick=f"{QUICK_ROWS:,} rows")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--models", help=f"some of {','.join(MODELS)}, separated by commas; {LINEAR} is always one")
    parser.add_argument("--folder", type=Path)
    options = parser.parse_args(argv)
    names = options.models.split(",") if options.models else list(MODELS)
    if unknown := [name for name in names if name not in MODELS]:
        parser.error(f"unknown models: {', '.join(unknown)}")
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        kept = options.json or folder / "crosses.json"
        return _report(_results(dict.fromkeys([LINEAR, *names]), rows, folder, kept))


def _results(names: dict[str, None], rows: int, folder: Path, kept: Path) -> dict[str, Any]:
    done: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    if done.get("rows") != rows:
        done = {"rows": rows, "machine": harness.describe(), "models": {}}
    log = write(folder, rows)
    done["truth"] = json.loads((folder / "truth.json").read_text())
    for name in names:
        if name not in done["models"]:
            done["models"][name] = trained(name, log, folder, 2048 if rows >= 1_000_000 else 256)
            files.write_text(kept, json.dumps(done, indent=2))
    return done


def _report(done: dict[str, Any]) -> int:
    for key, value in done["machine"].items():
        print(f"{key:12} {value}")
    print(f"\n{done['rows']:,} rows; best possible test AUC: {done['truth']['auc']:.4f}")
    print(f"{'':14}{'validation':>12}{'test':>10}{'seconds':>10}")
    missed, linear = False, done["models"][LINEAR]["test"]
    for name, found in done["models"].items():
        line = f"{name:14}{found['validation']:12.4f}{found['test']:10.4f}{found['seconds']:10.0f}"
        if name != LINEAR and done["rows"] >= ROWS:
            missed |= found["test"] <= linear
            line += f"   > {linear:.4f} {harness.word(found['test'] > linear)}"
        print(line)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
