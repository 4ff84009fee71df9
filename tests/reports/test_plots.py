from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread

from embexp.fields.columns.tasks import BINARY, CLASSIFICATION, REGRESSION
from embexp.fields.graphs.tasks import RANKING
from embexp.reports import plots
from embexp.reports.plots import Final, overview_figure
from embexp.specs import tasks
from embexp.specs.tasks import Task

CURVES = {
    "train": [(10, 0.7), (20, 0.6), (30, 0.55)],
    "validation": [(15, 0.65), (30, 0.58), (45, 0.6)],
}


def log(step: int, loss: float | str) -> dict[str, Any]:
    return {"event": "log", "step": step, "loss": loss, "timing": {"seconds": 1.0}}


def evaluation(step: int, **metrics: float | str) -> dict[str, Any]:
    return {"event": "evaluation", "step": step, "split": "validation", "metrics": metrics, "timing": {}}


def drift(step: int, **means: float) -> dict[str, Any]:
    tables = {name: {"mean": mean, "largest": 2 * mean, "start_norm": 2.0} for name, mean in means.items()}
    return {"event": "drift", "step": step, "drift": tables, "timing": {}}


def rows(frozen: int, moved: int, stayed: int, *, compared: bool = True) -> dict[str, Any]:
    return {
        "frozen_rows": frozen,
        "trainable_rows": moved + stayed,
        "trainable_rows_touched": moved,
        "trainable_rows_moved": moved if compared and moved + stayed else None,
    }


def summary(task: str = "binary", **changed: Any) -> dict[str, Any]:
    known = {"name": "clicks", "task": task, "status": "completed", "steps": 20, "best_step": None}
    return known | {"truth": {}, "metrics": {}, "freeze": {}} | changed


def drawn(records: list[dict[str, Any]], about: dict[str, Any], kept: int | None = None) -> Figure:
    return overview_figure(plots.read(records), about, about["steps"] if kept is None else kept)


def labels(axes: Any) -> list[str]:
    return [text.get_text() for text in axes.get_legend().get_texts()]


def lines(axes: Any) -> dict[str, np.ndarray]:
    return {line.get_label(): np.asarray(line.get_xydata()) for line in axes.lines}


def titles(figure: Figure) -> list[str]:
    return [axes.get_title(loc="left") for axes in figure.axes]


def one(metric: str, task: Task, final: Final, split_curves: Any) -> Any:
    axes = Figure().add_subplot()
    plots.draw(axes, metric, split_curves, final, task=task)
    return axes


def test_what_a_curve_shows() -> None:
    axes = one("loss", BINARY, Final(45, {"test": 0.61}, bayes=0.5), CURVES)
    assert axes.get_title(loc="left") == "Loss"
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("step", "log loss (nats per example)\nlower is better")
    assert labels(axes) == [
        "training (mean since the last point)",
        "validation",
        "best validation: 0.5800 at step 30",
        "test: 0.6100",
        "best possible on test (Bayes): 0.5000",
    ]
    found = lines(axes)
    np.testing.assert_array_equal(found["validation"], CURVES["validation"])
    np.testing.assert_array_equal(found["best validation: 0.5800 at step 30"], [(30, 0.58)])
    np.testing.assert_array_equal(found["test: 0.6100"], [(45, 0.61)])


@pytest.mark.parametrize(
    ("metric", "task", "label", "best"),
    [
        ("auc", BINARY, "AUC (0.5 is chance)\nhigher is better", "0.6500 at step 15"),
        ("log_loss", BINARY, "log loss (nats per example)\nlower is better", "0.5800 at step 30"),
        ("rmse", REGRESSION, "RMSE (label units)\nlower is better", "0.5800 at step 30"),
        ("accuracy", CLASSIFICATION, "fraction of the examples\nhigher is better", "0.6500 at step 15"),
        ("macro_f1", CLASSIFICATION, "F1, mean over the classes\nhigher is better", "0.6500 at step 15"),
        ("loss", REGRESSION, "mean squared error (label units²)\nlower is better", "0.5800 at step 30"),
        ("mean_rank", RANKING, "mean rank, filtered (1 is best)\nlower is better", "0.5800 at step 30"),
        ("hits_at_3", RANKING, "fraction with rank ≤ 3\nhigher is better", "0.6500 at step 15"),
    ],
)
def test_units_and_the_best_point_in_its_direction(metric: str, task: Task, label: str, best: str) -> None:
    axes = one(metric, task, Final(45, {}), {"validation": CURVES["validation"]})
    assert axes.get_ylabel() == label
    assert labels(axes) == ["validation", f"best validation: {best}"]


def test_an_overview_shows_each_curve_once_with_the_test_and_the_best_possible_value() -> None:
    records = [log(10, 0.7), evaluation(10, log_loss=0.69, auc=0.6, loss=0.69), log(20, 0.6)]
    records.append(evaluation(20, log_loss=0.61, auc=0.7, loss=0.61))
    about = summary(
        metrics={"train": {"loss": 0.6}, "test": {"auc": 0.65, "log_loss": 0.62, "loss": 0.62}},
        truth={"bayes_auc": 0.8, "bayes_log_loss": 0.5},
        freeze={"user": rows(0, 8, 2), "item": rows(5, 5, 0)},
    )
    figure = drawn(records, about)
    assert titles(figure) == ["Loss", "Area under the ROC curve", "Rows that moved"]
    loss, metric, moved = figure.axes
    assert labels(loss)[2:] == ["test: 0.6200", "best possible on test (Bayes): 0.5000"]
    assert labels(metric)[2:] == ["test: 0.6500", "best possible on test (Bayes): 0.8000"]
    points = [tuple(map(tuple, each)) for axes in (loss, metric) for each in lines(axes).values() if len(each) > 2]
    assert len(points) == len(set(points))
    assert [text.get_text() for text in moved.get_yticklabels()] == ["user", "item"]
    widths = [round(patch.get_width(), 6) for patch in moved.patches if patch.get_height() == pytest.approx(0.72)]
    assert widths == [0.8, 0.2, 0.0, 0.5, 0.0, 0.5]
    assert [text.get_text() for text in moved.texts] == ["8 of 10", "5 of 10"]


def test_the_test_value_stands_at_the_step_that_is_kept() -> None:
    records = [log(10, 0.7), evaluation(10, rmse=0.9), evaluation(20, rmse=1.0)]
    figure = drawn(records, summary("regression", best_step=10, metrics={"test": {"rmse": 0.95}}), kept=10)
    np.testing.assert_array_equal(lines(figure.axes[1])["test: 0.9500"], [(10, 0.95)])
    assert "best at step 10" in figure.get_suptitle()


def test_test_splits_of_a_study_are_told_apart() -> None:
    metrics = {"test_new": {"mrr": 0.2}, "test_known": {"mrr": 0.4}, "validation": {"mrr": 0.5}}
    figure = drawn([log(10, 0.7)], summary("ranking", metrics=metrics))
    assert labels(figure.axes[1]) == ["test_new: 0.2000", "test_known: 0.4000"]


def test_drift_is_relative_to_the_norm_and_starts_at_zero() -> None:
    records = [log(10, 0.7), drift(10, item=0.5), drift(20, item=1.0), drift(20, item=1.5)]
    figure = drawn(records, summary(freeze={"item": rows(0, 5, 0)}))
    assert titles(figure)[-1] == "Drift from the pretrained rows"
    np.testing.assert_array_equal(lines(figure.axes[-1])["item: 75%"], [(0, 0), (10, 0.25), (20, 0.75)])


def test_of_many_tables_the_largest_are_shown_and_counted() -> None:
    many = {f"C{number}": rows(0, number, 0) for number in range(60)}
    records = [log(10, 0.7), drift(10, **dict.fromkeys(many, 1.0))]
    figure = drawn(records, summary(freeze=many))
    moved, distance = figure.axes[-2:]
    assert [text.get_text() for text in moved.get_yticklabels()] == [f"C{number}" for number in range(20, 60)]
    assert moved.get_xlabel() == "rows of the table (the 40 largest of 60 tables)"
    assert distance.get_legend().get_title().get_text() == "the 8 farthest of 60 tables"


def test_rows_that_were_not_compared_are_called_looked_up() -> None:
    tables = {"user": rows(0, 8, 2, compared=False), "item": rows(7, 0, 0)}
    assert titles(drawn([log(10, 0.7)], summary(freeze=tables)))[-1] == "Rows that were looked up"
    assert titles(drawn([log(10, 0.7)], summary(freeze={"item": rows(7, 0, 0)})))[-1] == "Rows that moved"


def test_losses_that_are_orders_of_magnitude_apart_get_a_logarithmic_axis() -> None:
    figure = drawn([*(log(step, 2.0**step) for step in range(1, 30)), log(30, "Infinity")], summary())
    assert figure.axes[0].get_yscale() == "log"
    assert drawn([log(1, 0.7), log(2, 0.1)], summary()).axes[0].get_yscale() == "linear"


def test_write(tmp_path: Path) -> None:
    records = [log(10, 0.7), evaluation(10, rmse=0.9, mae=0.8, loss=0.81), log(20, 0.6), drift(20, item=0.5)]
    about = summary("regression", freeze={"item": rows(0, 5, 0)})
    written = plots.write_plots(records, about, tmp_path / "plots")
    assert written == [tmp_path / "plots" / name for name in ("overview.png", "metrics.png", "drift.png")]
    for path in written:
        assert imread(path)[..., :3].std() > 0.05, "blank"
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {path.name for path in written}


@pytest.mark.parametrize(
    ("task", "evaluated", "further"),
    [
        ("binary", ("log_loss", "auc", "loss"), []),
        ("regression", ("rmse", "mae", "loss"), ["mae"]),
        ("classification", ("accuracy", "log_loss", "macro_f1", "loss"), ["macro_f1"]),
        ("ranking", ("mrr", "hits_at_1", "mean_rank"), ["hits_at_1", "mean_rank"]),
    ],
)
def test_further_metrics_are_those_that_the_overview_lacks(
    task: str, evaluated: tuple[str, ...], further: list[str]
) -> None:
    recorded = plots.read([evaluation(1, **dict.fromkeys(evaluated, 0.5))])
    assert plots.further_metrics(recorded, tasks.named(task)) == further


def test_text_from_a_config_is_shown_as_it_is(tmp_path: Path) -> None:
    """Matplotlib would take `$x$` for a formula, fail at an invalid one, and warn about a missing glyph."""
    name = "cost $\\frac$ <b>\n日本 & $x$"
    records = [log(10, 0.7), evaluation(10, rmse=0.9, mae=0.8), drift(10, item=0.5)]
    written = plots.write_plots(records, summary("regression", name=name, freeze={"item": rows(0, 5, 0)}), tmp_path)
    assert len(written) == 3
    figure = drawn(records, summary(name=name))
    assert figure.get_suptitle() == "cost $\\frac$ <b> 日本 & $x$  ·  completed after 20 steps"


def test_numbers_that_json_lacks_leave_gaps(tmp_path: Path) -> None:
    records = [log(10, "NaN"), log(20, 0.6), evaluation(10, auc="NaN"), evaluation(20, auc="NaN")]
    about = summary(metrics={"test": {"auc": None}})
    assert [path.name for path in plots.write_plots(records, about, tmp_path)] == ["overview.png"]
    axes = one("auc", BINARY, Final(2, {}), {"validation": [(1, float("nan")), (2, 0.6)]})
    assert labels(axes)[-1] == "best validation: 0.6000 at step 2"


def test_a_run_without_lines_leaves_no_pictures(tmp_path: Path) -> None:
    assert plots.write_plots([], summary("regression"), tmp_path / "plots") == []
    assert not (tmp_path / "plots").exists()


def test_drawing_needs_no_display_and_no_pyplot(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from embexp.reports import plots; "
        "lines = [{'event': 'log', 'step': 1, 'loss': 0.5}]; "
        "plots.write_plots(lines, {'name': 'x', 'task': 'binary', 'status': 'completed', 'steps': 1}, "
        "pathlib.Path(sys.argv[1])); print({'matplotlib.pyplot', 'tensorflow'} & set(sys.modules))"
    )
    environment = {key: value for key, value in os.environ.items() if key not in ("DISPLAY", "MPLBACKEND")}
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "set()"
    assert (tmp_path / "overview.png").stat().st_size > 5000


def test_a_run_that_was_interrupted_before_its_first_log_line() -> None:
    figure = drawn([evaluation(3, loss=0.6, auc=0.5)], summary(steps=3))
    assert len(figure.axes) >= 1
    assert [label for axes in figure.axes for label in labels(axes) if label.startswith("training")] == []


@pytest.mark.parametrize(
    ("files", "labels"), [((), ["2", "3"]), (("mon", "tue", "a long name of a file"), ["tue", "a long name o…"])]
)
def test_files_have_their_names_where_they_are_known(files: tuple[str, ...], labels: list[str]) -> None:
    figure = plots.files_figure({"all": {1: 0.5, 2: 0.7}}, metric="auc", name="daily", files=files, across="tested on")
    figure.draw_without_rendering()
    assert [each.get_text() for each in figure.axes[0].get_xticklabels() if 2 <= each.get_position()[0] <= 3] == labels
