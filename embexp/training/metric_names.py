"""Names of the metrics of each task, which way each is better, and those that a search makes better."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Literal

from embexp.errors import ConfigError, Fault
from embexp.specs.models import Recommendation, Task

HITS = (1, 3, 10)
"""The k of Hits@k."""
_SPLIT = "validation"
_NONE: Mapping[str, bool] = MappingProxyType({})


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


def direction(metric: str, own: Mapping[str, bool] = _NONE) -> Direction | None:
    """Which way a metric gets better; None for a name that no metric has.

    Args:
        own: the user's own metrics, and whether higher is better.
    """
    if metric in own:
        return Direction.HIGHER if own[metric] else Direction.LOWER
    return Direction.HIGHER if _AT_CUTOFF.fullmatch(metric) else DIRECTIONS.get(metric)


def top_n_names(cutoffs: Sequence[int]) -> tuple[str, ...]:
    """The metrics of task recommendation, NDCG at the first cutoff first."""
    first, *others = cutoffs
    kinds = ("ndcg", "recall", "hit_rate")
    found = [f"{kind}_at_{k}" for k in (first, *others) for kind in kinds]
    return (*found, "mrr", *(f"coverage_at_{k}" for k in cutoffs))


def metrics_of(
    task: Task, cutoffs: Sequence[int] = Recommendation().cutoffs, own: Iterable[str] = ()
) -> tuple[str, ...]:
    """The metrics of a task, and the user's own; early stopping watches the first by default."""
    return (*_metrics_of(task, cutoffs), *own)


def _metrics_of(task: Task, cutoffs: Sequence[int]) -> tuple[str, ...]:
    match task:
        case Task.RECOMMENDATION:
            return top_n_names(cutoffs)
        case Task.REGRESSION:
            return ("rmse", "mae", "loss")
        case Task.BINARY:
            return ("log_loss", "auc", "loss")
        case Task.CLASSIFICATION:
            return ("accuracy", "log_loss", "macro_f1", "loss")
        case Task.RANKING:
            return ("mrr", *(f"hits_at_{k}" for k in HITS), "mean_rank", "mrr_tails", "mrr_heads")


def headline(task: Task, measured: Iterable[str] = ()) -> str:
    """The metric that reports put first.

    Args:
        measured: metrics of the run; NDCG, the headline of recommendation, has its first cutoff in its name.
    """
    match task:
        case Task.RECOMMENDATION:
            return next((name for name in measured if name.startswith("ndcg_at_")), metrics_of(task)[0])
        case Task.REGRESSION:
            return "rmse"
        case Task.BINARY:
            return "auc"
        case Task.CLASSIFICATION:
            return "accuracy"
        case Task.RANKING:
            return "mrr"


def watched(
    task: Task,
    metric: str | None,
    cutoffs: Sequence[int] = Recommendation().cutoffs,
    own: Iterable[str] = (),
) -> str:
    """The metric that early stopping watches: `metric`, or the task's first if that is None.

    Args:
        own: the user's own metrics.

    Raises:
        ConfigError: the task has no such metric.
    """
    known = metrics_of(task, cutoffs, own)
    if metric is None:
        return known[0]
    if metric not in known:
        near = difflib.get_close_matches(metric, known, n=1)
        remedy = f"did you mean {near[0]!r}?" if near else ""
        rule = f"the metrics of task {task} are {', '.join(known)}"
        raise ConfigError([Fault("train.early_stopping.metric", repr(metric), rule, remedy)])
    return metric


@dataclass(frozen=True)
class Objective:
    """A metric of the validation split, and the way it gets better.

    Attributes:
        metric: its name, such as `auc`.
        higher_is_better: whether a search maximizes it.
    """

    metric: str
    higher_is_better: bool

    @property
    def direction(self) -> Literal["minimize", "maximize"]:
        """The word that sweepers use: minimize or maximize."""
        return "maximize" if self.higher_is_better else "minimize"


def objectives(
    task: Task,
    chosen: str | Sequence[str] | None,
    cutoffs: Sequence[int] = Recommendation().cutoffs,
    own: Mapping[str, bool] = _NONE,
) -> tuple[Objective, ...]:
    """The objectives of a search.

    Args:
        chosen: `sweep.objective`: one name, several, or None for the task's default, that of early stopping. The split
            may stand before the name: `validation auc`.
        own: see `direction`.

    Raises:
        ConfigError: the task has no such metric, it is not one of the validation split, or it is named twice.
    """
    known = metrics_of(task, cutoffs, own)
    names = [known[0]] if chosen is None else [chosen] if isinstance(chosen, str) else list(chosen)
    found: list[Objective] = []
    faults: list[Fault] = []
    for text in names:
        *split, name = text.replace(".", " ").replace("/", " ").split() or [""]
        fault = _fault(task, known, split, name, text)
        if fault is None and any(each.metric == name for each in found):
            fault = Fault("sweep.objective", repr(text), "it is named twice", "name each objective once")
        if fault is not None:
            faults.append(fault)
        else:
            higher = direction(name, own) is Direction.HIGHER
            found.append(Objective(name, higher))
    if not names:
        faults.append(
            Fault("sweep.objective", "[]", "a search needs an objective", "null is the task's default metric")
        )
    if faults:
        raise ConfigError(faults)
    return tuple(found)


def _fault(task: Task, known: Sequence[str], split: Sequence[str], name: str, text: str) -> Fault | None:
    if list(split) not in ([], [_SPLIT]):
        return Fault(
            "sweep.objective",
            repr(text),
            "settings are chosen by the validation split: chosen by the test split, its metrics would say nothing of"
            " new data any more"
            if split[0] == "test"
            else "settings are chosen by the validation split",
            f"write sweep.objective={name}" if name in known else f"metrics of task {task}: {', '.join(known)}",
        )
    if name not in known:
        return Fault("sweep.objective", repr(text), f"the metrics of task {task} are {', '.join(known)}")
    return None
