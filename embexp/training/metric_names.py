"""Names of the metrics of each task, and which way each gets better. Without NumPy: reports and sweeps import it."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from enum import StrEnum

from embexp.errors import ConfigError, Fault
from embexp.specs.models import Task
from embexp.specs.recommendation import Recommendation

HITS = (1, 3, 10)
"""The k of Hits@k."""


class Direction(StrEnum):
    """Which way a metric gets better."""

    LOWER = "lower"
    HIGHER = "higher"


DIRECTIONS = {
    "rmse": Direction.LOWER,
    "mae": Direction.LOWER,
    "log_loss": Direction.LOWER,
    "auc": Direction.HIGHER,
    "accuracy": Direction.HIGHER,
    "macro_f1": Direction.HIGHER,
    "mrr": Direction.HIGHER,
    **{f"hits_at_{k}": Direction.HIGHER for k in HITS},
    "mean_rank": Direction.LOWER,
    "mrr_tails": Direction.HIGHER,
    "mrr_heads": Direction.HIGHER,
    "loss": Direction.LOWER,
}
"""Every metric with its direction, but for those of task recommendation at a cutoff k."""

_AT_CUTOFF = re.compile(r"(recall|ndcg|hit_rate|coverage)_at_[1-9][0-9]*")


def direction(metric: str) -> Direction | None:
    """Which way a metric gets better; None for a name that no metric has."""
    return Direction.HIGHER if _AT_CUTOFF.fullmatch(metric) else DIRECTIONS.get(metric)


def top_n_names(cutoffs: Sequence[int]) -> tuple[str, ...]:
    """The metrics of task recommendation, NDCG at the first cutoff first."""
    first, *others = cutoffs
    kinds = ("ndcg", "recall", "hit_rate")
    found = [f"{kind}_at_{k}" for k in (first, *others) for kind in kinds]
    return (*found, "mrr", *(f"coverage_at_{k}" for k in cutoffs))


def names(task: Task, cutoffs: Sequence[int] = Recommendation().cutoffs) -> tuple[str, ...]:
    """The metrics of a task; early stopping watches the first by default.

    Args:
        task: of the run.
        cutoffs: of task recommendation.
    """
    match task:
        case Task.RECOMMENDATION:
            return top_n_names(cutoffs)
        case Task.RATING:
            return ("rmse", "mae", "loss")
        case Task.CLICK:
            return ("log_loss", "auc", "loss")
        case Task.CLASSIFICATION:
            return ("accuracy", "log_loss", "macro_f1", "loss")
        case Task.RANKING:
            return ("mrr", *(f"hits_at_{k}" for k in HITS), "mean_rank", "mrr_tails", "mrr_heads")


def headline(task: Task, measured: Iterable[str] = ()) -> str:
    """The metric that reports put first.

    Args:
        task: of the run.
        measured: metrics of the run; NDCG, the headline of recommendation, has its first cutoff in its name.
    """
    match task:
        case Task.RECOMMENDATION:
            return next((name for name in measured if name.startswith("ndcg_at_")), names(task)[0])
        case Task.RATING:
            return "rmse"
        case Task.CLICK:
            return "auc"
        case Task.CLASSIFICATION:
            return "accuracy"
        case Task.RANKING:
            return "mrr"


def watched(task: Task, metric: str | None, cutoffs: Sequence[int] = Recommendation().cutoffs) -> str:
    """The metric that early stopping watches: `metric`, or the task's first if that is None.

    Raises:
        ConfigError: the task has no such metric.
    """
    known = names(task, cutoffs)
    if metric is None:
        return known[0]
    if metric not in known:
        near = difflib.get_close_matches(metric, known, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else ""
        rule = f"the metrics of task {task} are {', '.join(known)}"
        raise ConfigError([Fault("train.early_stopping.metric", repr(metric), rule, remedy)])
    return metric
