"""A click log of 30 days with drifting tastes and new users and items: continued runs compared with new ones.

    python -m bench.daily [--quick] [--days N] [--rows N] [--ways all,last] [--folder DIR] [--json FILE]

The benchmark generates the log. The probability of a click is sigmoid(bias + user's rate + item's rate + user's taste ·
item's style). Tastes, styles and rates are normal; styles and rates of items change a little each day. Each day, new
users and items appear, and some old ones leave. In all, there are 3,000,000 rows.

`study=daily` trains on each day and tests on the next. One run continues from the day before, one starts from nothing
on all days so far, and one starts from nothing on the last day. Each run is one epoch with the default learning rates.
Times are those of whole runs, from reading the file to the last evaluation. If the machine does other work, they are
longer, and their ratio says little.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import harness

DAYS, ROWS = 30, 3_000_000
USERS, ITEMS, NEW = 20_000, 8_000, 0.03
"""Users and items on the first day, and the share of each that is new every day. As many leave."""
DIM, DRIFT = 6, 0.12
SLOWEST, WORSE = 1.2, 0.001
"""Targets: a continued run's time relative to training on the new day alone, and its loss of AUC against all days."""
YAML = """\
# @package _global_
# Clicks of users on items, day by day.
defaults:
  - /table@tables.user: embedding
  - /table@tables.item: embedding
  - /table@tables.hour: embedding
  - /feature@features.user: id
  - /feature@features.item: id
  - /feature@features.hour: id
  - override /data: parquet
  - override /graph: null
  - override /model: deepfm
  - override /optimizer: adagrad
  - override /dense_optimizer: adam
name: daily_clicks
task: binary
data: {label: click, split: {validation: 0.02, test: 0}}
tables: {user: {dim: 8}, item: {dim: 8}, hour: {dim: 8}}
features: {user: {table: user}, item: {table: item}, hour: {table: hour}}
train: {epochs: 1, steps: null, batch_size: 1024}
output: {plots: false, tensorboard: false, baselines: false, digests: false}
"""


def write_log(folder: Path, days: int, rows: int, seed: int = 0) -> list[Path]:
    """Writes a Parquet file for each day. The same arguments give the same bytes."""
    random = np.random.default_rng(seed)
    users, items = np.arange(USERS), np.arange(ITEMS)
    most = (int(USERS * (1 + NEW * days)) + 1, int(ITEMS * (1 + NEW * days)) + 1)
    taste, rate = random.normal(0, 0.6, (most[0], DIM)), random.normal(0, 0.4, most[0])
    style, worth = random.normal(0, 0.6, (most[1], DIM)), random.normal(0, 0.8, most[1])
    popular = random.zipf(1.4, most[1]).clip(max=200).astype(np.float64)
    by_hour, found = random.normal(0, 0.2, 24), []
    for day in range(days):
        count = rows // days
        user = random.choice(users, count)
        item = random.choice(items, count, p=popular[items] / popular[items].sum())
        hour = random.integers(0, 24, count)
        logit = -1.5 + rate[user] + worth[item] + by_hour[hour] + np.einsum("nd,nd->n", taste[user], style[item])
        click = random.random(count) < 1 / (1 + np.exp(-logit))
        columns = {
            "user": [f"u{each}" for each in user],
            "item": [f"i{each}" for each in item],
            "hour": hour.astype(str),
        }
        path = folder / f"day-{day + 1:02d}.parquet"
        pq.write_table(pa.table({**columns, "click": click.astype(np.int8)}), path)
        found.append(path)
        style += random.normal(0, DRIFT * 0.6, style.shape) - style * DRIFT**2 / 2
        worth += random.normal(0, DRIFT * 0.8, worth.shape) - worth * DRIFT**2 / 2
        users, items = (_renewed(known, start, random) for known, start in ((users, USERS), (items, ITEMS)))
    return found


def _renewed(known: np.ndarray, start: int, random: np.random.Generator) -> np.ndarray:
    """The users or items of the next day: some leave, and as many new ones come."""
    new = int(start * NEW)
    stay = np.sort(random.choice(len(known), len(known) - new, replace=False))
    return np.concatenate([known[stay], known.max() + 1 + np.arange(new)])


def main() -> None:
    """Runs the study, and prints AUC and seconds for each way of training."""
    parser = harness.parser("daily", __doc__, quick="4 days of 20,000 rows")
    parser.add_argument("--days", type=int, default=DAYS)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--ways", default="all,last")
    parser.add_argument("--folder", type=Path, help="folder that keeps the log and the runs")
    options = parser.parse_args()
    days, rows = (4, 80_000) if options.quick else (options.days, options.rows)
    described = harness.introduce()
    with tempfile.TemporaryDirectory() as temporary:
        summary = study(options.folder or Path(temporary), days, rows, options.ways)
    found = figures(summary)
    for way, each in found.items():
        print(f"{way:10} " + ", ".join(f"{name} {value:.4f}" for name, value in each.items()))
    for name, value, bound, met in goals(found):
        print(f"{name} {value:.4f} {bound} {harness.word(met)}")
    harness.save(options, described, found)


def study(folder: Path, days: int, rows: int, ways: str) -> dict[str, Any]:
    """The summary of `study=daily` on the log."""
    experiments = folder / "own/experiment"
    experiments.mkdir(parents=True, exist_ok=True)
    (experiments / "daily_clicks.yaml").write_text(YAML)
    paths = ",".join(map(str, write_log(folder, days, rows)))
    command = [sys.executable, "-m", "embexp", "run", "experiment=daily_clicks", "--config-dir", str(folder / "own")]
    command += ["study=daily", f"study.retrain=[{ways}]", f"data.path=[{paths}]", f"hydra.run.dir={folder / 'study'}"]
    command += [f"output.cache={folder / 'cache'}", "output.existing=continue"]
    subprocess.run(command, check=True, stdout=sys.stderr)
    found: dict[str, Any] = json.loads((folder / "study/summary.json").read_text())
    return found


def figures(summary: dict[str, Any]) -> dict[str, dict[str, float]]:
    """For each way: mean AUC and log loss on the next day, from the third day on, and median seconds of a run."""
    means, seconds = summary["metrics"]["test"], dict[str, dict[int, float]]()
    for name, each in summary["runs"].items():
        way, _, number = name.partition("-")
        if int(number) > 1 and each["seconds"]["total"] is not None:
            seconds.setdefault(way, {})[int(number)] = each["seconds"]["total"]
    found: dict[str, dict[str, float]] = {
        way: {name: means[f"{way}_{name}"] for name in ("auc", "log_loss")}
        for way in ("continued", "all", "last", "parent")
        if f"{way}_auc" in means
    }
    for way, each in seconds.items():
        found[way]["seconds"] = statistics.median(each.values())
    if {"continued", "last"} <= seconds.keys():
        both = seconds["continued"].keys() & seconds["last"].keys()
        ratio = statistics.median(seconds["continued"][day] / seconds["last"][day] for day in both)
        found["continued"]["of_last"] = ratio
    return found


def goals(found: dict[str, dict[str, float]]) -> Iterator[tuple[str, float, str, bool]]:
    """Each target: its name, the value, the bound, and whether it is met."""
    own = found["continued"]
    if "of_last" in own:
        yield "seconds, continued / last", own["of_last"], f"<= {SLOWEST}", own["of_last"] <= SLOWEST
    if "all" in found:
        yield "AUC, continued - all", (less := own["auc"] - found["all"]["auc"]), f">= {-WORSE}", less >= -WORSE
    if "last" in found:
        yield "AUC, continued - last", (more := own["auc"] - found["last"]["auc"]), "> 0", more > 0


if __name__ == "__main__":
    main()
