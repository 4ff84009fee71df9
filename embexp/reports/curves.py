"""The curves of a run, from the lines of metrics.jsonl, and how a metric is drawn over the steps."""

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
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from embexp.specs.models import Task
from embexp.system import files
from embexp.training.metric_names import Direction, direction

COLOURS = {"train": "#4269d0", "validation": "#e8710a", "test": "#3ca951"}
TABLES = ("#4269d0", "#e8710a", "#3ca951", "#9c6b4e", "#a463f2", "#ff8ab7", "#6b6b6b", "#97bbf5")
_TRUTH = "#6b6b6b"
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
"""By table `mean`, `largest`, `start_norm`, see `embexp.freezing.drift`."""


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
    """The curves of a run.

    Args:
        records: the lines of metrics.jsonl.
    """
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
        axes.plot(
            [final.step],
            [final.tests[split]],
            linestyle="none",
            marker=marker,
            markersize=6.5,
            color=COLOURS["test"],
            markeredgecolor="white",
            clip_on=False,
            zorder=6,
            label=label,
        )
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
    """Writes a figure as PNG. Its text is shown as it is: `$` begins no formula."""
    for text in figure.findobj(Text):
        text.set_parse_math(False)
    with (
        files.atomic_write(path) as file,
        matplotlib.rc_context({"text.parse_math": False}),
        warnings.catch_warnings(),
    ):
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
    axes.plot(
        [step],
        [value],
        linestyle="none",
        marker="*",
        markersize=13,
        color=COLOURS["validation"],
        markeredgecolor="white",
        markeredgewidth=0.9,
        zorder=5,
        label=f"best validation: {value:.4f} at step {step:,}",
    )


def _scale(axes: Axes) -> None:
    """A logarithmic axis where values are orders of magnitude apart, as in a training that diverges."""
    values = [value for line in axes.lines for value in np.asarray(line.get_ydata(), float) if math.isfinite(value)]
    if values and min(values) > 0 and max(values) > _WIDE * min(values):
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(numticks=6))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _unit(metric: str, task: Task) -> str:
    match task, metric:
        case Task.CLICK | Task.CLASSIFICATION, "loss" | "log_loss":
            return "log loss (nats per example)"
        case Task.RATING, "loss":
            return "mean squared error (rating points²)"
        case Task.RATING, "rmse" | "mae":
            return f"{metric.upper()} (rating points)"
        case _, "auc":
            return "AUC (0.5 is chance)"
        case _, "accuracy":
            return "fraction of the examples"
        case Task.RANKING, "loss":
            return "loss of the model (mean per query)"
        case Task.RECOMMENDATION, "loss":
            return "chosen loss (mean per interaction)"
        case Task.RECOMMENDATION, "mrr":
            return "MRR over the full catalogue (1 is best)"
        case Task.RECOMMENDATION, _:
            return f"mean over users, lists of {metric.rpartition('_')[2]}"
        case _, "mrr" | "mrr_tails" | "mrr_heads":
            return "MRR, filtered (1 is best)"
        case _, "mean_rank":
            return "mean rank, filtered (1 is best)"
        case _, "macro_f1":
            return "F1, mean over the classes"
        case _:
            return f"fraction with rank ≤ {metric.removeprefix('hits_at_')}" if "hits" in metric else metric
