from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from embexp.reports import plots
from embexp.specs.models import Task

CURVES = {
    "train": [(10, 0.7), (20, 0.6), (30, 0.55)],
    "validation": [(15, 0.65), (30, 0.58), (45, 0.6)],
}


def log(step: int, loss: float | str) -> dict[str, Any]:
    return {"event": "log", "step": step, "loss": loss, "timing": {"seconds": 1.0}}


def evaluation(step: int, **metrics: float | str) -> dict[str, Any]:
    return {"event": "evaluation", "step": step, "split": "validation", "metrics": metrics, "timing": {}}


def labels(figure: Any) -> list[str]:
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def lines(figure: Any) -> dict[str, np.ndarray]:
    return {line.get_label(): np.asarray(line.get_xydata()) for line in figure.axes[0].lines}


def test_what_a_figure_shows() -> None:
    figure = plots.curve_figure("loss", CURVES, task=Task.CLICK, name="clicks", bayes=0.5)
    axes = figure.axes[0]
    assert axes.get_title(loc="left") == "Loss · clicks"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "log loss (nats per example)")
    assert labels(figure) == [
        "training (mean since the last point)",
        "validation",
        "best validation: 0.5800 at step 30",
        "Bayes-optimal, on test: 0.5000",
    ]
    drawn = lines(figure)
    np.testing.assert_array_equal(drawn["validation"], CURVES["validation"])
    np.testing.assert_array_equal(drawn["best validation: 0.5800 at step 30"], [(30, 0.58)])


@pytest.mark.parametrize(
    ("metric", "task", "label", "best"),
    [
        ("auc", Task.CLICK, "AUC (probability; 0.5 is chance)", "best validation: 0.6500 at step 15"),
        ("log_loss", Task.CLICK, "log loss (nats per example)", "best validation: 0.5800 at step 30"),
        ("rmse", Task.RATING, "RMSE (rating points)", "best validation: 0.5800 at step 30"),
        ("mae", Task.RATING, "MAE (rating points)", "best validation: 0.5800 at step 30"),
        ("accuracy", Task.CLASSIFICATION, "accuracy (fraction of the examples)", "best validation: 0.6500 at step 15"),
        ("macro_f1", Task.CLASSIFICATION, "F1, mean over the classes", "best validation: 0.6500 at step 15"),
        ("loss", Task.CLASSIFICATION, "log loss (nats per example)", "best validation: 0.5800 at step 30"),
        ("loss", Task.RATING, "mean squared error (rating points²)", "best validation: 0.5800 at step 30"),
    ],
)
def test_units_and_the_best_point_in_its_direction(metric: str, task: Task, label: str, best: str) -> None:
    figure = plots.curve_figure(metric, {"validation": CURVES["validation"]}, task=task, name="x")
    assert figure.axes[0].get_ylabel() == label
    assert labels(figure) == ["validation", best]


def test_write(tmp_path: Path) -> None:
    records = [log(10, 0.7), evaluation(10, log_loss=0.69, auc=0.6, loss=0.69), log(20, 0.6)]
    records.append(evaluation(20, log_loss=0.61, auc=0.7, loss=0.61))
    written = plots.write(records, tmp_path / "plots", task=Task.CLICK, name="clicks", truth={"bayes_auc": 0.8})
    assert written == [tmp_path / "plots" / name for name in ("loss.png", "log_loss.png", "auc.png")]
    for path in written:
        picture = imread(path)
        assert picture.shape[:2] == (688, 1152)
        assert picture[..., :3].std() > 0.05, "blank"
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {path.name for path in written}


def test_numbers_that_json_lacks_leave_gaps(tmp_path: Path) -> None:
    records = [log(10, "NaN"), log(20, 0.6), evaluation(10, auc="NaN"), evaluation(20, auc="NaN")]
    written = plots.write(records, tmp_path, task=Task.CLICK, name="clicks")
    assert [path.name for path in written] == ["loss.png", "auc.png"]
    figure = plots.curve_figure("auc", {"validation": [(1, float("nan")), (2, 0.6)]}, task=Task.CLICK, name="clicks")
    assert labels(figure)[-1] == "best validation: 0.6000 at step 2"


def test_a_run_without_lines_leaves_no_pictures(tmp_path: Path) -> None:
    assert plots.write([], tmp_path / "plots", task=Task.RATING, name="x") == []
    assert not (tmp_path / "plots").exists()


def test_drawing_needs_no_display_and_no_pyplot(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from embexp.reports import plots; from embexp.specs.models import Task; "
        "lines = [{'event': 'log', 'step': 1, 'loss': 0.5}]; "
        "plots.write(lines, pathlib.Path(sys.argv[1]), task=Task.CLICK, name='x'); "
        "print({'matplotlib.pyplot', 'tensorflow'} & set(sys.modules))"
    )
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "MPLBACKEND")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "set()"
    assert (tmp_path / "loss.png").stat().st_size > 5000
