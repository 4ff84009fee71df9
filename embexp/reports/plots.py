"""Plots of a run as PNG files: curves of losses and metrics, and drift."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from embexp.specs.models import Task
from embexp.system import files
from embexp.training.metrics import DIRECTIONS, Direction

_COLOURS = {"train": "#4269d0", "validation": "#e8710a", "test": "#3ca951"}
_TABLES = ("#4269d0", "#e8710a", "#3ca951", "#9c6b4e", "#a463f2", "#6b6b6b")
_TRUTH = "#6b6b6b"
_TITLES = {
    "loss": "Loss",
    "rmse": "Root mean squared error",
    "mae": "Mean absolute error",
    "log_loss": "Log loss",
    "auc": "Area under the ROC curve",
    "accuracy": "Accuracy",
    "macro_f1": "Macro F1",
}


def write(
    records: Iterable[Mapping[str, Any]],
    directory: Path,
    *,
    task: Task,
    name: str,
    truth: Mapping[str, float] | None = None,
) -> list[Path]:
    """Writes the plots of a run: loss.png, one file for every other evaluated metric, drift.png.

    Args:
        records: the lines of metrics.jsonl.
        directory: for the files; created if missing.
        task: of the run; determines the units.
        name: of the experiment, for the titles.
        truth: best possible values on the test split, under `bayes_` and the metric's name.

    Returns:
        The files, in the order of the metrics; none if there is nothing to draw.
    """
    lines = list(records)
    losses = [(int(line["step"]), float(line["loss"])) for line in lines if line["event"] == "log"]
    evaluated: dict[str, dict[str, list[tuple[int, float]]]] = {}
    for line in lines:
        if line["event"] == "evaluation":
            for metric, value in line["metrics"].items():
                points = evaluated.setdefault(metric, {}).setdefault(line["split"], [])
                points.append((int(line["step"]), float(value)))
    best_values = dict(truth or {})
    written = []
    if losses:
        curves = {"train": losses, **evaluated.get("loss", {})}
        bayes = best_values.get("bayes_loss", best_values.get("bayes_log_loss") if task is not Task.RATING else None)
        figure = curve_figure("loss", curves, task=task, name=name, bayes=bayes)
        written.append(_save(figure, directory / "loss.png"))
    for metric, by_split in evaluated.items():
        if metric != "loss":
            figure = curve_figure(metric, by_split, task=task, name=name, bayes=best_values.get(f"bayes_{metric}"))
            written.append(_save(figure, directory / f"{metric}.png"))
    drifts = [(int(line["step"]), line["drift"]) for line in lines if line["event"] == "drift"]
    if drifts:
        written.append(_save(drift_figure(drifts, name=name), directory / "drift.png"))
    return written


def drift_figure(drifts: Sequence[tuple[int, Mapping[str, Mapping[str, Any]]]], *, name: str) -> Figure:
    """The distance of each table's rows from their pretrained values over the steps: mean and largest.

    Args:
        drifts: (step, by table `mean`, `largest`, `start_norm`); of two for the same step, the later one counts.
        name: of the experiment, for the title.
    """
    figure = Figure(figsize=(7.2, 4.3), dpi=160, layout="constrained")
    axes = figure.subplots(1, 2)
    for panel, key, title in zip(axes, ("mean", "largest"), ("mean over the rows", "largest of a row"), strict=True):
        for number, table in enumerate(dict.fromkeys(table for _, tables in drifts for table in tables)):
            found = {step: tables[table] for step, tables in drifts if table in tables}
            norm = float(next(iter(found.values()))["start_norm"])
            points = sorted((step, float(each[key])) for step, each in found.items())
            steps, values = zip((0, 0.0), *points, strict=True)
            label = f"{table} (mean norm of its pretrained rows: {norm:.3g})"
            few = "o" if len(points) <= 40 else None
            panel.plot(steps, values, label=label, color=_TABLES[number % len(_TABLES)], marker=few, markersize=4)
        panel.set_title(title, fontsize=10)
        panel.set_ylabel("distance ‖w − w₀‖₂")
        _frame(panel)
        panel.set_ylim(bottom=0)
    figure.suptitle(f"Drift from the pretrained values · {name}", x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", frameon=False, fontsize=9)
    return figure


def curve_figure(
    metric: str,
    curves: Mapping[str, Sequence[tuple[int, float]]],
    *,
    task: Task,
    name: str,
    bayes: float | None = None,
) -> Figure:
    """One metric over the steps.

    Args:
        metric: its name.
        curves: (step, value) by split; the best validation value is marked.
        task: of the run; determines the unit.
        name: of the experiment, for the title.
        bayes: the best possible value, drawn as a dashed line.
    """
    figure = Figure(figsize=(7.2, 4.3), dpi=160, layout="constrained")
    axes = figure.add_subplot()
    for split, points in curves.items():
        steps, values = zip(*points, strict=True)
        few = len(points) <= 40 and split != "train"
        axes.plot(
            steps,
            values,
            label="training (mean since the last point)" if split == "train" and metric == "loss" else split,
            color=_COLOURS.get(split),
            linewidth=1.3 if split == "train" else 1.9,
            alpha=0.8 if split == "train" else 1.0,
            marker="o" if few or len(points) == 1 else None,
            markersize=4,
        )
    _mark_best(axes, metric, curves.get("validation", ()))
    if bayes is not None:
        axes.axhline(
            bayes, color=_TRUTH, linestyle=(0, (5, 3)), linewidth=1.3, label=f"Bayes-optimal, on test: {bayes:.4f}"
        )
    axes.set_title(f"{_TITLES.get(metric, metric)} · {name}", loc="left", fontsize=12, fontweight="bold", pad=10)
    axes.set_ylabel(_label(metric, task))
    _frame(axes, ticks=8)
    axes.legend(frameon=False, fontsize=9)
    return figure


def _frame(axes: Axes, *, ticks: int = 4) -> None:
    """Sets up the axis of steps, from 0, and a light grid."""
    axes.set_xlabel("step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=ticks, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    axes.grid(axis="y", color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.02, y=0.08)
    axes.set_xlim(left=0)


def _mark_best(axes: Axes, metric: str, points: Sequence[tuple[int, float]]) -> None:
    points = [(step, value) for step, value in points if math.isfinite(value)]
    if not points or metric not in DIRECTIONS:
        return
    choose = max if DIRECTIONS[metric] is Direction.HIGHER else min
    step, value = choose(points, key=lambda point: point[1])
    axes.plot(
        [step],
        [value],
        linestyle="none",
        marker="*",
        markersize=13,
        color=_COLOURS["validation"],
        markeredgecolor="white",
        markeredgewidth=0.9,
        zorder=5,
        label=f"best validation: {value:.4f} at step {step:,}",
    )


def _label(metric: str, task: Task) -> str:
    match task, metric:
        case Task.CLICK | Task.CLASSIFICATION, "loss" | "log_loss":
            return "log loss (nats per example)"
        case Task.RATING, "loss":
            return "mean squared error (rating points²)"
        case Task.RATING, "rmse" | "mae":
            return f"{metric.upper()} (rating points)"
        case _, "auc":
            return "AUC (probability; 0.5 is chance)"
        case _, "accuracy":
            return "accuracy (fraction of the examples)"
        case Task.RANKING, "loss":
            return "loss of the model (mean per query)"
        case _, "mrr" | "mrr_tails" | "mrr_heads":
            return "MRR, filtered (1 is best)"
        case _, "mean_rank":
            return "mean rank, filtered (1 is best)"
        case _, "macro_f1":
            return "F1, mean over the classes"
        case _:
            return metric


def _save(figure: Figure, path: Path) -> Path:
    with files.written_whole(path) as file:
        figure.savefig(file, format="png")
    return path
