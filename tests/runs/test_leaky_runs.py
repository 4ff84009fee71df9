"""A run on data with a column that restates the label says so, and stops where all is learnt."""

import itertools
from pathlib import Path

import numpy as np
import pytest

import embexp
from embexp.runs.evaluations import evaluator_of
from embexp.runs.prepare import prepare
from embexp.system.parallel import quiet

ROWS = 600
YAML = """\
# @package _global_
defaults:
  - override /data: csv
  - override /graph: null
  - override /model: mlp
  - override /optimizer: sgd
  - override /dense_optimizer: adam
name: trips
task: binary
data:
  path: {folder}/trips.csv
  label: cancelled
  dense_features: {{refund: {{transform: standardize, missing: mean, indicator: true}}}}
tables: {{hotel: {{dim: 4}}}}
features: {{hotel: {{}}}}
train: {{epochs: 1000, batch_size: 60, early_stopping: {{patience: 50, metric: auc}}}}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("leaky")
    draw = np.random.default_rng(0)
    lines = ["hotel,refund,cancelled"]
    for cancelled in draw.random(ROWS) < 0.3:
        lines.append(f"h{draw.integers(9)},{f'{draw.normal():.3f}' if cancelled else ''},{cancelled:d}")
    (found / "trips.csv").write_text("\n".join(lines) + "\n")
    (found / "experiment").mkdir()
    (found / "experiment" / "trips.yaml").write_text(YAML.format(folder=found))
    return found


def spec_of(folder: Path, *overrides: str) -> embexp.RunSpec:
    some = ["experiment=trips", f"output.cache={folder / 'cache'}", "output.plots=false", "output.baselines=false"]
    return embexp.compose([*some, *overrides], config_dir=folder)


def test_a_run_stops_where_nothing_can_improve(folder: Path, tmp_path: Path) -> None:
    result = embexp.run(spec_of(folder), tmp_path / "run")
    summary = result.summary
    values = [line["metrics"]["auc"] for line in embexp.load_run(result.directory).metrics() if "metrics" in line]
    assert values[-2:] == [1.0, 1.0]
    assert (1.0, 1.0) not in itertools.pairwise(values[:-1])
    assert (summary["status"], summary["stopped_by"]) == ("stopped_early", "perfect")
    assert summary["steps"] == 8 * len(values)  # of 480 examples each epoch
    assert [leak["kind"] for leak in summary["leaks"]] == ["filled"]
    [told] = [warning for warning in summary["warnings"] if "training stopped" in warning]
    assert told.endswith("a column may leak them: refund")


def test_the_best_value_of_a_metric(folder: Path) -> None:
    """The largest possible value, or 1/10,000 of the log loss of the rate of label 1 in the training split."""
    spec = spec_of(folder)
    data, evaluator = prepare(spec, progress=quiet).data, evaluator_of(spec)
    assert evaluator.limit(data, "auc") == pytest.approx(1.0, abs=1e-9)
    labels, splits = data.scan.examples.labels, data.scan.splits
    assert labels is not None
    rate, rows = float(labels[splits["train"]].mean()), labels[splits["validation"]]
    entropy = -np.mean(np.where(rows == 1, np.log(rate), np.log1p(-rate)))
    assert evaluator.limit(data, "log_loss") == pytest.approx(1e-4 * entropy, rel=1e-6)
