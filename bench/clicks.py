"""A click log of 3 million rows, from the CSV file to the AUC, compared with Keras scripts of the same sizes.

    python -m bench.clicks [--quick] [--rows N] [--folder DIR] [--json FILE]

`bench/click_log.py` generates the log: 13 counts with missing values, 26 categories of 10 to a million values, and a
planted truth, whose AUC is the best possible. The last tenth is the test split, and the tenth before it validates.

embexp is `embexp run` with a YAML of at most 25 lines and default learning rates. The Keras script
(`bench/clicks_in_keras.py`) has the same dims, hidden layers and batch size. Its optimizer and learning rate are the
best of ten on the validation rows: all ten are tried on the first tenth of the rows, and the best three on all rows.
Each run trains one epoch in its own process, and is timed from its start to the metrics of validation and test. Memory
is the peak resident memory of the process, including mapped files. Processor time includes all threads.

Keras has two columns, which differ only in how the layers are adapted to the data before the epoch:

- `Keras, adapt`: `layer.adapt(dataset.map(...))` for each layer, as in Keras' guides. This takes a pass over the
  training rows for each of the 26 lookups and for the normalization. The target for speed refers to this column.
- `Keras, one pass`: a hand-written loop adapts all layers in one pass, and is faster. Its ratio is printed as well.

Results are kept in --json, and are not measured again. A full run takes 15 to 60 minutes, and --quick about 6.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bench import harness
from bench.click_log import CATEGORIES, HELD_OUT, NUMBERS, write
from embexp.system import files

ROWS, QUICK_ROWS = 3_000_000, 200_000
DIM, HIDDEN = 16, [128, 64]
TRIED_ON = 100_000
"""Minimum number of training rows on which Keras' settings are tried; a tenth of the rows if that is more."""
WHOLE = 3
"""Number of settings that are tried on all rows."""
MOST_LINES, FASTER = 25, 3.0
ONE_PASS, EACH_LAYER = "one pass", "each layer"
"""The ways in which the Keras script adapts its layers."""
GRID = [
    *(("Adam", rate) for rate in (0.0003, 0.001, 0.003, 0.01)),
    *(("Adagrad", rate) for rate in (0.03, 0.1, 0.3)),
    *(("RMSprop", rate) for rate in (0.001, 0.003)),
    ("SGD", 0.5),
]
_FIGURES: dict[str, Callable[[dict[str, Any]], float]] = {
    "start, encode / adapt, s": lambda found: float(found["times"]["adapt"]),
    "one epoch, s": lambda found: float(found["times"]["epoch"]),
    "evaluation, end, s": lambda found: float(found["times"]["evaluation"]),
    "all, s": lambda found: float(found["seconds"]),
    "processor time, s": lambda found: float(found["processor"]),
    "memory, MiB": lambda found: float(found["mib"]),
}
YAML = f"""\
# @package _global_
# Clicks from 13 counts and 26 categories.
defaults:
  - override /data: csv
  - override /graph: null
  - override /model: mlp
  - override /optimizer: adagrad
  - override /dense_optimizer: adam
name: click_log
task: binary
data:
  path: PATH
  label: label
  timestamp: at
  split: {{kind: time, validation: {HELD_OUT}, test: {HELD_OUT}}}
  dense_features:
    "I{{1..{NUMBERS}}}": {{transform: [log1p, standardize], missing: zero, indicator: true}}
tables:
  "C{{1..{CATEGORIES}}}": {{dim: {DIM}, initializer: {{kind: normal, stddev: 0.01}}}}
features:
  "C{{1..{CATEGORIES}}}": {{}}
model: {{hidden: {HIDDEN}}}
train: {{epochs: 1, batch_size: BATCH}}
"""


def ours(log: Path, folder: Path, batch: int, yaml: str = YAML, words: Sequence[str] = ()) -> dict[str, Any]:
    """Runs an experiment, whose PATH and BATCH are filled in, with further words of the command line."""
    conf = folder / "conf" / "experiment" / "click_log.yaml"
    conf.parent.mkdir(parents=True, exist_ok=True)
    files.write_text(conf, yaml.replace("PATH", str(log)).replace("BATCH", str(batch)))
    with tempfile.TemporaryDirectory(dir=folder) as out:
        command = [sys.executable, "-m", "embexp", "run", "--config-dir", str(folder / "conf"), "experiment=click_log"]
        command += [*words, f"output.cache={out}/cache", f"hydra.run.dir={out}/run", "checkpoint.save=end"]
        found = _measured([*command, "output.plots=false", "output.tensorboard=false"])
        summary = json.loads((Path(out) / "run" / "summary.json").read_text())
    lines = found.pop("lines")
    first_step = next((at for at, line in lines if line.startswith("training for")), 0.0)
    trained = next(
        (at for at, line in lines if line.startswith(("training completed", "training stopped"))), found["seconds"]
    )
    metrics = summary["metrics"]
    times = {"adapt": first_step, "epoch": trained - first_step, "evaluation": found["seconds"] - trained}
    return {**found, "times": times, "validation": metrics["validation"]["auc"], "test": metrics["test"]["auc"]}


def in_keras(
    log: Path, rows: int, batch: int, setting: tuple[str, float], *, limit: int | None, adapt: str = ONE_PASS
) -> dict[str, Any]:
    """Runs the Keras script with one of its ways to adapt."""
    optimizer, rate = setting
    settings = {"optimizer": optimizer, "rate": rate, "batch": batch, "dim": DIM, "hidden": HIDDEN, "adapt": adapt}
    told = json.dumps({**settings, "limit": limit, "test": limit is None})
    found = _measured([sys.executable, "-m", "bench.clicks_in_keras", str(log), str(rows), told])
    lines = found.pop("lines")
    found |= {**json.loads(lines[-1][1]), "optimizer": optimizer, "rate": rate}
    times = found["times"]
    # The script starts its clock after its imports.
    found["times"] = {**times, "adapt": found["seconds"] - times["epoch"] - times["evaluation"]}
    return found


def _measured(command: list[str]) -> dict[str, Any]:
    """Runs a command: its seconds, peak resident MiB, and lines of output, each with the second of its arrival."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"}
    )
    assert process.stdout is not None
    lines = [(time.perf_counter() - start, line.rstrip("\n")) for line in process.stdout]
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{command} ended with status {process.returncode}: {lines[-3:]}")
    seconds, processor = time.perf_counter() - start, usage.ru_utime + usage.ru_stime
    return {"seconds": seconds, "processor": processor, "mib": usage.ru_maxrss / 1024, "lines": lines}


def main(argv: list[str]) -> int:
    parser = harness.parser("clicks", __doc__, quick=f"{QUICK_ROWS:,} rows")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--folder", type=Path)
    options, _ = parser.parse_known_args(argv)
    rows = options.rows or (QUICK_ROWS if options.quick else ROWS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).absolute()
        return _report(_results(folder, rows, options.json or folder / "clicks.json"))


def _results(folder: Path, rows: int, kept: Path) -> dict[str, Any]:
    batch = 2048 if rows >= 1_000_000 else 1024
    done: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    if done.get("rows") != rows:
        done = {"rows": rows, "batch": batch, "machine": harness.describe()}

    def once(name: str, work: Callable[[], Any]) -> Any:
        if name not in done:
            start = time.perf_counter()
            done[name] = work()
            done.setdefault("cost", {})[name] = time.perf_counter() - start
            files.write_text(kept, json.dumps(done, indent=2))
            print(f"{name}: {done['cost'][name]:.0f} s", flush=True)
        return done[name]

    log = write(folder, rows)
    done["truth"] = json.loads((folder / "truth.json").read_text())
    once("embexp", lambda: ours(log, folder, batch))
    limit = max(TRIED_ON, rows // 10)
    keras = partial(in_keras, log, rows, batch)
    tried = [once(f"keras {name} {rate}", partial(keras, (name, rate), limit=limit)) for name, rate in GRID]
    promising = sorted(tried, key=_on_validation, reverse=True)[:WHOLE]
    whole = {
        (each["optimizer"], each["rate"]): once(
            f"keras {each['optimizer']} {each['rate']} whole",
            partial(keras, (each["optimizer"], each["rate"]), limit=None, adapt=ONE_PASS),
        )
        for each in promising
    }
    best = max(whole, key=lambda setting: _on_validation(whole[setting]))
    done["keras one pass"] = whole[best]
    once("keras each layer", partial(keras, best, limit=None, adapt=EACH_LAYER))
    return done


def _on_validation(found: dict[str, Any]) -> float:
    return float(found["validation"])


def _report(done: dict[str, Any]) -> int:
    mine, truth, lines = done["embexp"], done["truth"], len(YAML.splitlines())
    peers = [done[f"keras {adapt}"] for adapt in (EACH_LAYER, ONE_PASS)]
    for key, value in done["machine"].items():
        print(f"{key:12} {value}")
    print(f"\n{done['rows']:,} rows, {truth['bytes'] / 1e6:,.0f} MB, batch {done['batch']}; {lines} lines of YAML")
    print(f"{'':26}{'embexp':>12}" + "".join(f"{name:>18}{'ratio':>8}" for name in ("Keras, adapt", "Keras, one pass")))
    for name, of in _FIGURES.items():
        ratios = (f"{of(each):18,.1f}{of(each) / max(of(mine), 1e-9):8.2f}" for each in peers)
        print(f"{name:26}{of(mine):12,.1f}" + "".join(ratios))
    for split in ("validation", "test"):
        print(f"{'AUC, ' + split:26}{mine[split]:12.4f}" + "".join(f"{each[split]:18.4f}{'':8}" for each in peers))
    print(f"best possible test AUC: {truth['auc']:.4f}")
    minutes = sum(done["cost"].values()) / 60
    print(f"Keras: {peers[0]['optimizer']} {peers[0]['rate']}, the best of {len(GRID)}; {minutes:.1f} minutes in all")
    faster, by_hand = (each["seconds"] / mine["seconds"] for each in peers)
    verdicts = {
        f"test AUC at least that of both: {mine['test']:.4f}": all(mine["test"] >= each["test"] for each in peers),
        f"{FASTER:g} x as fast as Keras with an adapt per layer: {faster:.2f} x": faster >= FASTER,
        f"at most {MOST_LINES} lines of YAML: {lines}": lines <= MOST_LINES,
    }
    for what, met in verdicts.items():
        print(f"{what:66}{harness.word(met)}")
    print(f"{by_hand:.2f} x as fast as Keras with all layers adapted in one pass by hand (no target)")
    return 0 if all(verdicts.values()) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
