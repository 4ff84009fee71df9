"""Plots of a run as PNG files: the whole run in one picture, further metrics, and drift."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from embexp.reports import curves
from embexp.reports.curves import Curves, Drift, Final, Points
from embexp.specs.models import Task
from embexp.training.metric_names import headline

_COLUMNS = 3
_MOST_TABLES = 40
_MOST_DRIFTS = len(curves.TABLES)
_MOVED, _STAYED, _FROZEN = "#4269d0", "#c3d0f2", "#c9c9c9"


def write_plots(
    records: Iterable[Mapping[str, Any]], summary: Mapping[str, Any], directory: Path, *, kept: int | None = None
) -> list[Path]:
    """Writes the plots of a run: overview.png, and metrics.png and drift.png where there is more to show.

    Args:
        records: the lines of metrics.jsonl.
        directory: for the files; created if missing.
        kept: the step of the final values; None: the last one.

    Returns:
        The files; none if there is nothing to draw.
    """
    recorded = curves.read(records)
    if not recorded.losses and not recorded.evaluated:
        return []
    kept = int(summary["steps"]) if kept is None else kept
    written = [curves.save(overview_figure(recorded, summary, kept), directory / "overview.png")]
    if further := further_metrics(recorded, Task(summary["task"])):
        written.append(curves.save(metrics_figure(further, recorded, summary, kept), directory / "metrics.png"))
    if recorded.drifts:
        written.append(curves.save(drift_figure(recorded.drifts, name=summary["name"]), directory / "drift.png"))
    return written


def further_metrics(recorded: Curves, task: Task) -> list[str]:
    """The evaluated metrics that the overview does not show; the log loss is the loss of some tasks."""
    shown = {"loss", headline(task, recorded.evaluated)}
    if task in (Task.CLICK, Task.CLASSIFICATION):
        shown.add("log_loss")
    return [metric for metric in recorded.evaluated if metric not in shown]


def metrics_figure(metrics: Sequence[str], recorded: Curves, summary: Mapping[str, Any], kept: int) -> Figure:
    """Several metrics over the steps, one panel each."""
    task, columns = Task(summary["task"]), min(_COLUMNS, len(metrics))
    rows = -(-len(metrics) // columns)
    figure = Figure(figsize=(4.6 * columns + 1, 3.3 * rows + 0.5), dpi=150, layout="constrained")
    for place, metric in enumerate(metrics, 1):
        axes = figure.add_subplot(rows, columns, place)
        curves.draw(axes, metric, recorded.evaluated[metric], _final_of(metric, task, summary, kept), task=task)
    heading = f"Further metrics · {curves.one_line(str(summary['name']), 60)}"
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
            colour = curves.TABLES[number % len(curves.TABLES)]
            panel.plot(steps, values, label=label, color=colour, marker=few, markersize=4)
        panel.set_title(title, fontsize=10)
        panel.set_ylabel("distance ‖w − w₀‖₂")
        curves.frame(panel, ticks=4)
        panel.set_ylim(bottom=0)
    heading = f"Drift from the pretrained values · {curves.one_line(name, 60)}"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", frameon=False, fontsize=9)
    return figure


def overview_figure(recorded: Curves, summary: Mapping[str, Any], kept: int) -> Figure:
    """The whole run."""
    tables = summary.get("freeze") or {}
    drifts = _relative(recorded.drifts)
    upper, lower = 3.5, max(2.4 if drifts else 0.0, 0.8 + 0.24 * min(len(tables), _MOST_TABLES))
    figure = Figure(figsize=(11, 0.8 + upper + (lower if tables else 0)), dpi=150, layout="constrained")
    grid = figure.add_gridspec(2 if tables else 1, 2, height_ratios=[upper, lower] if tables else [upper])
    task = Task(summary["task"])
    metric = headline(task, recorded.evaluated)
    by_name = {"loss": {"train": recorded.losses} if recorded.losses else {}, metric: {}}
    values = {name: {**recorded.evaluated.get(name, {}), **curve} for name, curve in by_name.items()}
    values = {name: dict(sorted(by_split.items())) for name, by_split in values.items()}
    finals = {name: _final_of(name, task, summary, kept) for name in values}
    drawn = [name for name in values if values[name] or finals[name].tests]
    for place, name in enumerate(drawn):
        axes = figure.add_subplot(grid[0, place] if len(drawn) > 1 else grid[0, :])
        curves.draw(axes, name, values[name], finals[name], task=task, best=name != "loss")
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
    if metric == "loss" and task is not Task.RATING:
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
    axes.set_yticks(range(len(names)), [curves.one_line(name, 24) for name in names])
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
        label = f"{curves.one_line(table, 24)}: {values[-1]:.0%}"
        axes.plot(steps, values, color=curves.TABLES[number], label=label, marker="o", markersize=3)
    more = f"the {len(farthest)} farthest of {len(drifts)} tables" if len(farthest) < len(drifts) else None
    axes.set_title("Drift from the pretrained rows", loc="left", fontsize=11, fontweight="bold")
    axes.set_ylabel("mean distance / mean norm", fontsize=9)
    curves.frame(axes)
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.legend(fontsize=8, framealpha=0.85, edgecolor="none", title=more, title_fontsize=8)


def _heading(summary: Mapping[str, Any]) -> str:
    status = str(summary["status"]).replace("_", " ")
    parts = [curves.one_line(str(summary["name"]), 45), f"{status} after {summary['steps']:,} steps"]
    if summary.get("best_step") is not None:
        parts.append(f"best at step {summary['best_step']:,}")
    return "  ·  ".join(parts)


def _rows(table: Mapping[str, Any]) -> int:
    return int(table["frozen_rows"]) + int(table["trainable_rows"])
