"""The plot that compares the runs of a study of new entities."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from embexp.reports import curves
from embexp.specs.studies import BASE, FULL, GROWN

_COLOURS = {BASE: "#9aa5b1", GROWN: "#3ca951", FULL: "#4269d0"}
_STAGES = {"setup": 0.35, "training": 1.0, "finishing": 0.55}
"""Stages of a run, each with the opacity of its bar."""
_METRICS = {"mrr": "MRR", "hits_at_1": "Hits@1", "hits_at_3": "Hits@3", "hits_at_10": "Hits@10"}


def write(summary: Mapping[str, Any], directory: Path, *, name: str) -> Path:
    """Plots the ranking metrics and the time of each run, and returns the PNG file.

    Args:
        summary: the content of the study's summary.json.
        directory: for the file; created if missing.
        name: of the experiment, for the title.
    """
    figure = Figure(figsize=(10.4, 4.3), dpi=160, layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    figure.suptitle(f"New entities · {name}", x=0.01, ha="left", fontsize=12, fontweight="bold")
    _quality(left, summary["runs"])
    _times(right, summary["runs"])
    return curves.save(figure, directory / "comparison.png")


def _quality(axes: Axes, runs: Mapping[str, Any]) -> None:
    groups = [(f"{label}\nnew", "test_new", metric) for metric, label in _METRICS.items()]
    groups += [("MRR\nknown", "test_known", "mrr"), ("MRR\nall", "test", "mrr")]
    for offset, run in ((-0.2, GROWN), (0.2, FULL)):
        values = [runs[run]["metrics"].get(split, {}).get(metric) or 0.0 for _, split, metric in groups]
        bars = axes.bar([place + offset for place in range(len(groups))], values, 0.38, label=run, color=_COLOURS[run])
        axes.bar_label(bars, fmt="%.3f", fontsize=7, padding=2)
    axes.set_xticks(range(len(groups)), [label for label, _, _ in groups])
    axes.set_ylim(0, 1.08)
    axes.set_title("Ranks of the test triples, filtered (1 is best)", loc="left", fontsize=10)
    axes.legend(frameon=False, fontsize=9, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    _plain(axes, "y")


def _times(axes: Axes, runs: Mapping[str, Any]) -> None:
    for place, (run, facts) in enumerate(runs.items()):
        start = 0.0
        for stage, strength in _STAGES.items():
            seconds = facts["seconds"][stage] or 0.0
            axes.barh(place, seconds, 0.55, left=start, color=_COLOURS[run], alpha=strength)
            start += seconds
        training = facts["seconds"]["training"]
        label = " unknown: killed at its end" if training is None else f" {start:.1f} s, training {training:.1f} s"
        axes.text(start, place, label, va="center", fontsize=8)
    axes.set_yticks(range(len(runs)), list(runs))
    axes.invert_yaxis()
    axes.set_xlim(0, 1.6 * max(facts["seconds"]["total"] or 1.0 for facts in runs.values()))
    axes.set_xlabel("seconds (pale: before and after training)")
    axes.set_title("Time", loc="left", fontsize=10)
    _plain(axes, "x")


def _plain(axes: Axes, direction: str) -> None:
    axes.grid(axis=direction, color="#e3e3e3", linewidth=0.8)  # type: ignore[arg-type]
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
