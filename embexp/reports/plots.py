"""Plots of a run as PNG files: the whole run in one picture, further metrics, and drift."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from embexp.errors import plural
from embexp.specs import tasks
from embexp.specs.tasks import Direction, Labels, Task, direction, headline
from embexp.system import files

COLOURS = {"train": "#4269d0", "validation": "#e8710a", "test": "#3ca951"}
TABLES = ("#4269d0", "#e8710a", "#3ca951", "#9c6b4e", "#a463f2", "#ff8ab7", "#6b6b6b", "#97bbf5")
_TRUTH = "#6b6b6b"
_POINT: dict[str, Any] = {"linestyle": "none", "markeredgecolor": "white"}
_FEW = 40
"""Points of a curve up to which each is marked."""
_WIDE = 100.0
"""Ratio of the largest to the smallest value from which the axis is logarithmic."""
_TITLES = {
    "loss": "Loss",
    "rmse": "Root mean squared error",
    "mae": "Mean absolute error",
    "log_loss": "Log loss",
    "auc": "Area under the ROC curve",
    "accuracy": "Accuracy",
    "macro_f1": "Macro F1",
    "recall": "Recall",
    "ndcg": "NDCG",
    "hit_rate": "Hit rate",
    "coverage": "Coverage",
    "mrr": "Mean reciprocal rank",
    "mrr_heads": "MRR of head prediction",
    "mrr_tails": "MRR of tail prediction",
    "mean_rank": "Mean rank",
}

Points = Sequence[tuple[int, float]]
"""(step, value), by step."""
Drift = Mapping[str, Mapping[str, Any]]
"""By table `mean`, `largest`, `start_norm`, see `embexp.training.freezing.watching`."""
_COLUMNS = 3
_MOST_TABLES = 40
_MOST_DRIFTS = len(TABLES)
_MOVED, _STAYED, _FROZEN = "#4269d0", "#c3d0f2", "#c9c9c9"


@dataclass(frozen=True)
class Curves:
    """What a run recorded by step.

    Attributes:
        losses: training losses, each the mean since the one before.
        drifts: how far rows were from their pretrained values; of two for the same step, the later one counts.
    """

    losses: Points
    evaluated: Mapping[str, Mapping[str, Points]]
    drifts: Sequence[tuple[int, Drift]]


def read(records: Iterable[Mapping[str, Any]]) -> Curves:
    """The curves of a run."""
    losses: list[tuple[int, float]] = []
    evaluated: dict[str, dict[str, list[tuple[int, float]]]] = {}
    drifts = []
    for line in records:
        step = int(line["step"])
        match line["event"]:
            case "log":
                losses.append((step, float(line["loss"])))
            case "evaluation":
                for metric, value in line["metrics"].items():
                    evaluated.setdefault(metric, {}).setdefault(line["split"], []).append((step, float(value)))
            case "drift":
                drifts.append((step, line["drift"]))
    return Curves(losses, evaluated, drifts)


@dataclass(frozen=True)
class Final:
    """What is known of a metric at the end.

    Attributes:
        tests: by test split; there are several where a study has them.
        bayes: the best possible value on the test split; None: not known.
    """

    step: int
    tests: Mapping[str, float]
    bayes: float | None = None


def draw(axes: Axes, metric: str, curves: Mapping[str, Points], final: Final, *, task: Task, best: bool = True) -> None:
    """Draws one metric over the steps: a curve per split, and the test value beside the best possible one.

    Args:
        task: of the run; determines the unit.
        best: whether to mark the best validation value.
    """
    for split, points in curves.items():
        steps, values = zip(*points, strict=True)
        training = split == "train"
        axes.plot(
            steps,
            [value if math.isfinite(value) else math.nan for value in values],
            label="training (mean since the last point)" if training and metric == "loss" else split,
            color=COLOURS.get(split),
            linewidth=1.3 if training else 1.9,
            alpha=0.8 if training else 1.0,
            marker="o" if len(points) == 1 or (len(points) <= _FEW and not training) else None,
            markersize=4,
        )
    if best:
        _mark_best(axes, metric, curves.get("validation", ()))
    for split, marker in zip(final.tests, "DsP", strict=False):
        label = f"{split}: {final.tests[split]:.4f}"
        style: dict[str, Any] = {"color": COLOURS["test"], "markersize": 6.5, "clip_on": False, "zorder": 6}
        axes.plot([final.step], [final.tests[split]], marker=marker, label=label, **_POINT, **style)
    if final.bayes is not None:
        label = f"best possible on test (Bayes): {final.bayes:.4f}"
        axes.axhline(final.bayes, color=_TRUTH, linestyle=(0, (5, 3)), linewidth=1.3, label=label)
    axes.set_title(title(metric), loc="left", fontsize=11, fontweight="bold")
    axes.set_ylabel(label_of(metric, task), fontsize=9)
    frame(axes)
    _scale(axes)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=8, framealpha=0.85, edgecolor="none")


def frame(axes: Axes, *, ticks: int = 6) -> None:
    """Sets up the axis of steps, from 0, and a light grid."""
    axes.set_xlabel("step", fontsize=9)
    axes.tick_params(labelsize=8)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=ticks, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda step, _: f"{step:,.0f}"))
    axes.grid(axis="y", color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(x=0.02, y=0.08)
    axes.set_xlim(left=0)


def title(metric: str) -> str:
    """A metric's name in full."""
    if metric.startswith("hits_at_"):
        return f"Hits at {metric.removeprefix('hits_at_')}"
    name, at, cutoff = metric.partition("_at_")
    if at:
        return f"{_TITLES.get(name, name)} at {cutoff}"
    return _TITLES.get(metric, metric)


def label_of(metric: str, task: Task) -> str:
    """The unit of a metric, and which way it gets better."""
    unit = _unit(metric, task)
    better = direction(metric)
    return unit if better is None else f"{unit}\n{better.value} is better"


def save(figure: Figure, path: Path) -> Path:
    """Writes a figure into a PNG file, whole or not at all. Its text is shown as it is: `$` begins no formula."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    with files.atomic_write(path) as file, matplotlib.rc_context({"text.parse_math": False}), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph .* missing")  # shown as a box
        figure.savefig(file, format="png")
    return path


def one_line(text: str, longest: int) -> str:
    """A text in one line, with an ellipsis where it is longer."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


def _mark_best(axes: Axes, metric: str, points: Points) -> None:
    points = [(step, value) for step, value in points if math.isfinite(value)]
    if not points or direction(metric) is None:
        return
    choose = max if direction(metric) is Direction.HIGHER else min
    step, value = choose(points, key=lambda point: point[1])
    label = f"best validation: {value:.4f} at step {step:,}"
    style: dict[str, Any] = {"color": COLOURS["validation"], "markersize": 13, "markeredgewidth": 0.9, "zorder": 5}
    axes.plot([step], [value], marker="*", label=label, **_POINT, **style)


def _scale(axes: Axes) -> None:
    """A logarithmic axis where values are orders of magnitude apart, as in a training that diverges."""
    values = [value for line in axes.lines for value in np.asarray(line.get_ydata(), float) if math.isfinite(value)]
    if values and min(values) > 0 and max(values) > _WIDE * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=6))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _unit(metric: str, task: Task) -> str:
    found = next((each.unit for each in task.metrics if each.is_named(metric)), "")
    if metric == "loss" and not found:
        found = task.loss_unit
    return found.format(k=metric.rpartition("_")[2]) or metric


def write_plots(
    records: Iterable[Mapping[str, Any]], summary: Mapping[str, Any], directory: Path, *, kept: int | None = None
) -> list[Path]:
    """Writes the plots of a run: overview.png, and metrics.png and drift.png where there is more to show.

    Args:
        kept: the step of the final values; None: the last one.

    Returns:
        The files; none if there is nothing to draw.
    """
    recorded = read(records)
    if not recorded.losses and not recorded.evaluated:
        return []
    kept = int(summary["steps"]) if kept is None else kept
    written = [save(overview_figure(recorded, summary, kept), directory / "overview.png")]
    if further := further_metrics(recorded, tasks.named(summary["task"])):
        written.append(save(metrics_figure(further, recorded, summary, kept), directory / "metrics.png"))
    if recorded.drifts:
        written.append(save(drift_figure(recorded.drifts, name=summary["name"]), directory / "drift.png"))
    return written


def further_metrics(recorded: Curves, task: Task) -> list[str]:
    """The evaluated metrics that the overview does not show; the log loss is the loss of some tasks."""
    shown = {"loss", headline(task, recorded.evaluated)}
    if task.has_classes:
        shown.add("log_loss")
    return [metric for metric in recorded.evaluated if metric not in shown]


def metrics_figure(metrics: Sequence[str], recorded: Curves, summary: Mapping[str, Any], kept: int) -> Figure:
    """Several metrics over the steps, one panel each."""
    task, columns = tasks.named(summary["task"]), min(_COLUMNS, len(metrics))
    rows = -(-len(metrics) // columns)
    figure = Figure(figsize=(4.6 * columns + 1, 3.3 * rows + 0.5), dpi=150, layout="constrained")
    for place, metric in enumerate(metrics, 1):
        axes = figure.add_subplot(rows, columns, place)
        draw(axes, metric, recorded.evaluated[metric], _final_of(metric, task, summary, kept), task=task)
    heading = f"Further metrics · {one_line(str(summary['name']), 60)}"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def drift_figure(drifts: Sequence[tuple[int, Drift]], *, name: str) -> Figure:
    """The distance of each table's rows from their pretrained values over the steps: mean and largest.

    Args:
        drifts: (step, by table `mean`, `largest`, `start_norm`); of two for the same step, the later one counts.
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
            colour = TABLES[number % len(TABLES)]
            panel.plot(steps, values, label=label, color=colour, marker=few, markersize=4)
        panel.set_title(title, fontsize=10)
        panel.set_ylabel("distance ‖w − w₀‖₂")
        frame(panel, ticks=4)
        panel.set_ylim(bottom=0)
    heading = f"Drift from the pretrained values · {one_line(name, 60)}"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", frameon=False, fontsize=9)
    return figure


def files_figure(
    lines: Mapping[str, Mapping[int, float]], *, metric: str, name: str, files: Sequence[str], across: str
) -> Figure:
    """A metric of each file, of several ways to train for it.

    Args:
        lines: by way, the value by the number of the file, from 0.
        files: their names, in order; without any, they are numbered from 1.
        across: what they are.
    """
    figure = Figure(figsize=(7.2, 4.3), dpi=160, layout="constrained")
    axes = figure.subplots()
    for number, (label, points) in enumerate(lines.items()):
        numbers, values = zip(*sorted(points.items()), strict=True)
        axes.plot([each + 1 for each in numbers], values, label=label, color=TABLES[number % len(TABLES)], marker="o")
    frame(axes)
    axes.set_xlabel(across, fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True))
    if files:
        names: dict[float, str] = {number: one_line(file, 14) for number, file in enumerate(files, 1)}
        axes.xaxis.set_major_formatter(lambda place, _: names.get(place, ""))
    tested = [number + 1 for points in lines.values() for number in points]
    margin = max(0.2, 0.02 * (max(tested) - min(tested)))  # half a marker
    axes.set_xlim(min(tested) - margin, max(tested) + margin)
    better = direction(metric)
    axes.set_ylabel(title(metric) + ("" if better is None else f"\n{better.value} is better"), fontsize=9)
    figure.suptitle(one_line(name, 60), x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower left", frameon=False, fontsize=9, ncols=2)
    return figure


def overview_figure(recorded: Curves, summary: Mapping[str, Any], kept: int) -> Figure:
    """The whole run."""
    tables = summary.get("freeze") or {}
    drifts = _relative(recorded.drifts)
    upper, lower = 3.5, max(2.4 if drifts else 0.0, 0.8 + 0.24 * min(len(tables), _MOST_TABLES))
    figure = Figure(figsize=(11, 0.8 + upper + (lower if tables else 0)), dpi=150, layout="constrained")
    grid = figure.add_gridspec(2 if tables else 1, 2, height_ratios=[upper, lower] if tables else [upper])
    task = tasks.named(summary["task"])
    metric = headline(task, recorded.evaluated)
    by_name = {"loss": {"train": recorded.losses} if recorded.losses else {}, metric: {}}
    values = {name: {**recorded.evaluated.get(name, {}), **curve} for name, curve in by_name.items()}
    values = {name: dict(sorted(by_split.items())) for name, by_split in values.items()}
    finals = {name: _final_of(name, task, summary, kept) for name in values}
    drawn = [name for name in values if values[name] or finals[name].tests]
    for place, name in enumerate(drawn):
        axes = figure.add_subplot(grid[0, place] if len(drawn) > 1 else grid[0, :])
        draw(axes, name, values[name], finals[name], task=task, best=name != "loss")
        if kept != summary["steps"]:
            axes.axvline(kept, color="#b0b0b0", linewidth=1, linestyle=":", zorder=0)
    if tables:
        draw_moved(figure.add_subplot(grid[1, 0] if drifts else grid[1, :]), tables)
    if tables and drifts:
        _draw_drift(figure.add_subplot(grid[1, 1]), drifts)
    figure.suptitle(_heading(summary), x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def _final_of(metric: str, task: Task, summary: Mapping[str, Any], kept: int) -> Final:
    """The test value of a metric, with the best possible one, where they are known."""
    splits = {name: values for name, values in (summary.get("metrics") or {}).items() if name.startswith("test")}
    tests = {name: float(value) for name, values in splits.items() if (value := values.get(metric)) is not None}
    truth = summary.get("truth") or {}
    bayes = truth.get(f"bayes_{metric}")
    if metric == "loss" and task.labels is not Labels.NUMBER:
        bayes = truth.get("bayes_log_loss", bayes)
    finite = {name: value for name, value in tests.items() if math.isfinite(value)}
    return Final(kept, finite, None if bayes is None else float(bayes))


def draw_moved(axes: Axes, tables: Mapping[str, Mapping[str, Any]]) -> None:
    """Draws which part of each table's rows moved, stayed, or is frozen.

    Args:
        tables: `freeze` of summary.json.
    """
    largest = sorted(tables, key=lambda name: -_rows(tables[name]))[:_MOST_TABLES]
    names = [name for name in tables if name in largest]
    trainable = [tables[name] for name in names if tables[name]["trainable_rows"]]
    compared = all(each.get("trainable_rows_moved") is not None for each in trainable)
    key = "trainable_rows_moved" if compared else "trainable_rows_touched"
    labels = ("moved", "never moved", "frozen") if compared else ("looked up", "never looked up", "frozen")
    for place, name in enumerate(names):
        each, rows = tables[name], max(1, _rows(tables[name]))
        moved = int(each.get(key) or 0)
        left = 0.0
        for count, colour in (
            (moved, _MOVED),
            (int(each["trainable_rows"]) - moved, _STAYED),
            (int(each["frozen_rows"]), _FROZEN),
        ):
            axes.barh(place, count / rows, left=left, color=colour, height=0.72)
            left += count / rows
        axes.annotate(f"{moved:,} of {rows:,}", (1, place), (6, 0), textcoords="offset points", va="center", fontsize=8)
    for label, colour in zip(labels, (_MOVED, _STAYED, _FROZEN), strict=True):
        axes.barh([0], [0], color=colour, label=label)
    axes.set_yticks(range(len(names)), [one_line(name, 24) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlim(0, 1)
    axes.xaxis.set_major_formatter(PercentFormatter(1.0))
    axes.tick_params(labelsize=8)
    more = f" (the {len(names)} largest of {len(tables)} tables)" if len(names) < len(tables) else ""
    axes.set_xlabel(f"rows of the table{more}", fontsize=9)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    title = "Rows that moved" if compared else "Rows that were looked up"
    axes.set_title(title, loc="left", fontsize=11, fontweight="bold", pad=20)
    axes.legend(fontsize=8, frameon=False, ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderpad=0.2)


def _relative(drifts: Sequence[tuple[int, Drift]]) -> dict[str, Points]:
    """The mean distance of each table's rows from their pretrained values, in parts of their mean norm."""
    found: dict[str, dict[int, float]] = {}
    for step, tables in drifts:
        for table, each in tables.items():
            norm, mean = float(each["start_norm"]), float(each["mean"])
            if norm > 0 and math.isfinite(mean):
                found.setdefault(table, {0: 0.0})[step] = mean / norm
    return {table: sorted(points.items()) for table, points in found.items()}


def _draw_drift(axes: Axes, drifts: Mapping[str, Points]) -> None:
    farthest = sorted(drifts, key=lambda table: -drifts[table][-1][1])[:_MOST_DRIFTS]
    for number, table in enumerate(farthest):
        steps, values = zip(*drifts[table], strict=True)
        label = f"{one_line(table, 24)}: {values[-1]:.0%}"
        axes.plot(steps, values, color=TABLES[number], label=label, marker="o", markersize=3)
    more = f"the {len(farthest)} farthest of {len(drifts)} tables" if len(farthest) < len(drifts) else None
    axes.set_title("Drift from the pretrained rows", loc="left", fontsize=11, fontweight="bold")
    axes.set_ylabel("mean distance / mean norm", fontsize=9)
    frame(axes)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.legend(fontsize=8, framealpha=0.85, edgecolor="none", title=more, title_fontsize=8)


def _heading(summary: Mapping[str, Any]) -> str:
    status = str(summary["status"]).replace("_", " ")
    parts = [one_line(str(summary["name"]), 45), f"{status} after {plural(summary['steps'], 'step')}"]
    if summary.get("best_step") is not None:
        parts.append(f"best at step {summary['best_step']:,}")
    return "  ·  ".join(parts)


def _rows(table: Mapping[str, Any]) -> int:
    return int(table["frozen_rows"]) + int(table["trainable_rows"])
