"""Plots of a run as PNG files: the overview, further metrics, and drift."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from embexp.reports import curves
from embexp.reports.curves import Curves, Drift
from embexp.reports.overview import final_of, overview_figure
from embexp.specs.models import Task
from embexp.training.metric_names import headline

_COLUMNS = 3


def write(
    records: Iterable[Mapping[str, Any]], summary: Mapping[str, Any], directory: Path, *, kept: int | None = None
) -> list[Path]:
    """Writes the plots of a run: overview.png, and metrics.png and drift.png where there is more to show.

    Args:
        records: the lines of metrics.jsonl.
        summary: the content of summary.json.
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
    """Several metrics over the steps, one panel each.

    Args:
        metrics: their names.
        recorded: by step.
        summary: the content of summary.json.
        kept: the step of the final values.
    """
    task, columns = Task(summary["task"]), min(_COLUMNS, len(metrics))
    rows = -(-len(metrics) // columns)
    figure = Figure(figsize=(4.6 * columns + 1, 3.3 * rows + 0.5), dpi=150, layout="constrained")
    for place, metric in enumerate(metrics, 1):
        axes = figure.add_subplot(rows, columns, place)
        curves.draw(axes, metric, recorded.evaluated[metric], final_of(metric, task, summary, kept), task=task)
    heading = f"Further metrics · {curves.shown(str(summary['name']), 60)}"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12, fontweight="bold")
    return figure


def drift_figure(drifts: Sequence[tuple[int, Drift]], *, name: str) -> Figure:
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
            colour = curves.TABLES[number % len(curves.TABLES)]
            panel.plot(steps, values, label=label, color=colour, marker=few, markersize=4)
        panel.set_title(title, fontsize=10)
        panel.set_ylabel("distance ‖w − w₀‖₂")
        curves.frame(panel, ticks=4)
        panel.set_ylim(bottom=0)
    heading = f"Drift from the pretrained values · {curves.shown(name, 60)}"
    figure.suptitle(heading, x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower left", frameon=False, fontsize=9)
    return figure
