"""The metrics: names, tasks, directions and functions; those that early stopping watches and searches optimize."""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Literal

from embexp.errors import ConfigError, Fault
from embexp.specs.base import imported
from embexp.specs.losses import Recommendation
from embexp.specs.models import Task

HITS = (1, 3, 10)
"""The k of Hits@k."""
_SPLIT = "validation"
_NONE: Mapping[str, bool] = MappingProxyType({})


class Direction(StrEnum):
    """Which way a metric gets better."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True)
class Metric:
    """A metric of a split. Its functions return None where it is undefined.

    Attributes:
        name: with `{k}` for a metric that is measured at several cutoffs.
        value: `module:function` that computes it, of labels and logits (`metrics`), or of ranks or lists (`ranking`),
            and of `k`; None: it is counted over all users.
        constant: the same of the best constant prediction, or a random order (`baseline`); None: there is none.
        cutoffs: the values of k; None: those of the config.
        headline: whether reports put it first, instead of the first of the task.
        both_classes: whether it is undefined where all labels are equal.
        listed: whether it is measured only where the config lists it under `metrics`.
        grouped: whether it is a mean over groups of examples, see `by` of `ChosenMetric`.
        most: the best value of one that is best when it is highest; None: there is none.
    """

    name: str
    task: Task
    direction: Direction
    value: str | None
    constant: str | None = None
    cutoffs: tuple[int, ...] | None = ()
    headline: bool = False
    both_classes: bool = False
    listed: bool = False
    grouped: bool = False
    most: float | None = 1.0

    @property
    def key(self) -> str:
        """Its name in `metrics` of the config."""
        return self.name.format(k="k")

    def is_named(self, name: str) -> bool:
        """Whether a name is that of this metric, at any of its cutoffs."""
        at_cutoff = self.cutoffs is None and re.fullmatch(self.name.format(k="[1-9][0-9]*"), name)
        return bool(at_cutoff) or name in self.names

    @property
    def names(self) -> tuple[str, ...]:
        """Its names, but for cutoffs of the config."""
        return tuple(self.name.format(k=k) for k in self.cutoffs or (0,)) if self.cutoffs is not None else ()


_REGRESSION, _BINARY, _CLASSES = Task.REGRESSION, Task.BINARY, Task.CLASSIFICATION
_RANKING, _LISTS = Task.RANKING, Task.RECOMMENDATION
_LOWER, _HIGHER = Direction.LOWER, Direction.HIGHER
_VALUES, _RANKS, _CONSTANT = "embexp.training.metrics", "embexp.training.ranking", "embexp.training.baseline"
_CHOICES = "embexp.training.class_metrics"
METRICS = (
    Metric("rmse", _REGRESSION, _LOWER, f"{_VALUES}:rmse", f"{_CONSTANT}:rmse"),
    Metric("mae", _REGRESSION, _LOWER, f"{_VALUES}:mae", f"{_CONSTANT}:mae"),
    Metric("loss", _REGRESSION, _LOWER, f"{_VALUES}:squared_error", f"{_CONSTANT}:squared_error"),
    Metric("log_loss", _BINARY, _LOWER, f"{_VALUES}:log_loss", f"{_CONSTANT}:log_loss"),
    Metric("auc", _BINARY, _HIGHER, f"{_VALUES}:auc", f"{_CONSTANT}:auc", headline=True, both_classes=True),
    Metric("loss", _BINARY, _LOWER, f"{_VALUES}:log_loss", f"{_CONSTANT}:log_loss"),
    Metric("accuracy", _CLASSES, _HIGHER, f"{_VALUES}:accuracy", f"{_CONSTANT}:accuracy"),
    Metric("log_loss", _CLASSES, _LOWER, f"{_VALUES}:softmax_log_loss", f"{_CONSTANT}:softmax_log_loss"),
    Metric("macro_f1", _CLASSES, _HIGHER, f"{_VALUES}:macro_f1_of_logits", f"{_CONSTANT}:macro_f1"),
    Metric("loss", _CLASSES, _LOWER, f"{_VALUES}:softmax_log_loss", f"{_CONSTANT}:softmax_log_loss"),
    Metric("mrr", _RANKING, _HIGHER, f"{_RANKS}:mrr", f"{_CONSTANT}:mrr"),
    Metric("hits_at_{k}", _RANKING, _HIGHER, f"{_RANKS}:hits", f"{_CONSTANT}:hits", cutoffs=HITS),
    Metric("mean_rank", _RANKING, _LOWER, f"{_RANKS}:mean_rank", f"{_CONSTANT}:mean_rank"),
    Metric("mrr_tails", _RANKING, _HIGHER, f"{_RANKS}:mrr_tails", f"{_CONSTANT}:mrr_tails"),
    Metric("mrr_heads", _RANKING, _HIGHER, f"{_RANKS}:mrr_heads", f"{_CONSTANT}:mrr_heads"),
    Metric("ndcg_at_{k}", _LISTS, _HIGHER, f"{_RANKS}:ndcg", cutoffs=None),
    Metric("recall_at_{k}", _LISTS, _HIGHER, f"{_RANKS}:recall", cutoffs=None),
    Metric("hit_rate_at_{k}", _LISTS, _HIGHER, f"{_RANKS}:hit_rate", cutoffs=None),
    Metric("mrr", _LISTS, _HIGHER, f"{_RANKS}:first_hit"),
    Metric("coverage_at_{k}", _LISTS, _HIGHER, None, cutoffs=None),
    Metric("r2", _REGRESSION, _HIGHER, f"{_VALUES}:r2", f"{_CONSTANT}:r2", listed=True),
    Metric("mape", _REGRESSION, _LOWER, f"{_VALUES}:mape", f"{_CONSTANT}:mape", listed=True),
    Metric("pr_auc", _BINARY, _HIGHER, f"{_CHOICES}:pr_auc", both_classes=True, listed=True),
    Metric("brier", _BINARY, _LOWER, f"{_CHOICES}:brier", listed=True),
    Metric("calibration_error", _BINARY, _LOWER, f"{_CHOICES}:calibration_error", listed=True),
    Metric("accuracy", _BINARY, _HIGHER, f"{_CHOICES}:accuracy", listed=True),
    Metric("balanced_accuracy", _BINARY, _HIGHER, f"{_CHOICES}:balanced_accuracy", listed=True),
    Metric("precision", _BINARY, _HIGHER, f"{_CHOICES}:precision", listed=True),
    Metric("recall", _BINARY, _HIGHER, f"{_CHOICES}:recall", listed=True),
    Metric("f1", _BINARY, _HIGHER, f"{_CHOICES}:f1", listed=True),
    Metric("grouped_auc", _BINARY, _HIGHER, f"{_CHOICES}:grouped_auc", both_classes=True, listed=True, grouped=True),
    Metric("balanced_accuracy", _CLASSES, _HIGHER, f"{_CHOICES}:balanced_accuracy", listed=True),
    Metric("macro_precision", _CLASSES, _HIGHER, f"{_CHOICES}:macro_precision", listed=True),
    Metric("macro_recall", _CLASSES, _HIGHER, f"{_CHOICES}:macro_recall", listed=True),
    Metric("brier", _CLASSES, _LOWER, f"{_CHOICES}:brier", listed=True),
    Metric("calibration_error", _CLASSES, _LOWER, f"{_CHOICES}:calibration_error", listed=True),
    Metric("precision_at_{k}", _LISTS, _HIGHER, f"{_RANKS}:precision", cutoffs=None, listed=True),
    Metric("map_at_{k}", _LISTS, _HIGHER, f"{_RANKS}:average_precision", cutoffs=None, listed=True),
    Metric("novelty_at_{k}", _LISTS, _HIGHER, f"{_RANKS}:novelty", cutoffs=None, listed=True, most=None),
)
"""All metrics, in the order of reports. Early stopping watches the first of the task by default."""
DIRECTIONS = {name: metric.direction for metric in METRICS for name in metric.names}
"""Every metric with its direction, but for those at cutoffs of the config."""


def direction(metric: str, own: Mapping[str, bool] = _NONE) -> Direction | None:
    """Which way a metric gets better; None for a name that no metric has.

    Args:
        own: see `further`; without those that embexp has by the same name.
    """
    if metric in own:
        return Direction.HIGHER if own[metric] else Direction.LOWER
    return next((each.direction for each in METRICS if each.is_named(metric)), None)


def highest(metric: str) -> float | None:
    """The best value of a metric of embexp that is best when it is highest; None: there is none."""
    higher = (each for each in METRICS if each.direction is Direction.HIGHER and each.is_named(metric))
    return next((each.most for each in higher), None)


def named(
    task: Task, cutoffs: Sequence[int] = Recommendation().cutoffs, listed: Collection[str] = ()
) -> Iterator[tuple[str, Metric, int | None]]:
    """The metrics of a task with their names and cutoffs; those next to each other take turns at each cutoff.

    Args:
        listed: keys of metrics that are measured only where they are listed; others are ignored.
    """
    of_task = (each for each in METRICS if each.task is task and (not each.listed or each.key in listed))
    for at, several in itertools.groupby(of_task, lambda metric: metric.cutoffs):
        group = list(several)
        for k in cutoffs if at is None else at or (None,):
            yield from ((metric.name.format(k=k), metric, k) for metric in group)


def keys(task: Task) -> tuple[str, ...]:
    """What `metrics` of a config may list for a task, without the user's own."""
    return tuple(dict.fromkeys(each.key for each in METRICS if each.task is task))


def is_grouped(key: str) -> bool:
    """Whether a metric is a mean over groups of examples."""
    return any(each.grouped for each in METRICS if each.key == key)


def further(
    task: Task, chosen: Mapping[str, bool | None], cutoffs: Sequence[int] = Recommendation().cutoffs
) -> dict[str, bool]:
    """The metrics that a config adds to those of its task, by name, and whether higher is better.

    Args:
        chosen: of the user's own, whether higher is better; None: it is one of embexp's, by its key.
    """
    listed = [key for key, higher in chosen.items() if higher is None]
    ours = [(name, each) for name, each, _ in named(task, cutoffs, listed) if each.listed]
    own = {name: higher for name, higher in chosen.items() if higher is not None}
    return {name: each.direction is Direction.HIGHER for name, each in ours} | own


def computed(
    task: Task,
    of: Literal["value", "constant"],
    *arguments: Any,
    cutoffs: Sequence[int] = (),
    listed: Collection[str] = (),
    grouped: Any = None,
) -> dict[str, Any]:
    """What the functions of a task's metrics return for these arguments, but for those that are undefined.

    Args:
        grouped: one more argument, for metrics that are means over groups; None: these are left out.
    """
    known: dict[tuple[str, int | None], Any] = {}
    found = {}
    for name, metric, k in named(task, cutoffs, listed):
        if metric.grouped and grouped is None:
            continue
        if (function := getattr(metric, of)) is None:
            continue
        if (function, k) not in known:  # two names may share one, as the loss does
            more = (*arguments, grouped) if metric.grouped else arguments
            known[function, k] = imported(function)(*more, **({} if k is None else {"k": k}))
        if (value := known[function, k]) is not None:
            found[name] = value
    return found


def metrics_of(
    task: Task, cutoffs: Sequence[int] = Recommendation().cutoffs, own: Iterable[str] = ()
) -> tuple[str, ...]:
    """The metrics of a task, and further ones; early stopping watches the first by default."""
    return (*(name for name, _, _ in named(task, cutoffs)), *own)


def headline(task: Task, measured: Iterable[str] = ()) -> str:
    """The metric that reports put first.

    Args:
        measured: metrics of the run; NDCG, the headline of recommendation, has its first cutoff in its name.
    """
    name, first, _ = next((each for each in named(task) if each[1].headline), next(named(task)))
    return next(filter(first.is_named, measured), name)


def watched(
    task: Task,
    metric: str | None,
    cutoffs: Sequence[int] = Recommendation().cutoffs,
    own: Iterable[str] = (),
) -> str:
    """The metric that early stopping watches: `metric`, or the task's first if that is None.

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
    """A metric of the validation split, and the way it gets better."""

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
        rule = "a search needs an objective"
        faults.append(Fault("sweep.objective", "[]", rule, "null is the task's default metric"))
    if faults:
        raise ConfigError(faults)
    return tuple(found)


def _fault(task: Task, known: Sequence[str], split: Sequence[str], name: str, text: str) -> Fault | None:
    if list(split) not in ([], [_SPLIT]):
        rule = "settings are chosen by the validation split"
        if split[0] == "test":
            rule += ": chosen by the test split, its metrics would say nothing of new data any more"
        remedy = f"write sweep.objective={name}" if name in known else f"metrics of task {task}: {', '.join(known)}"
        return Fault("sweep.objective", repr(text), rule, remedy)
    if name not in known:
        return Fault("sweep.objective", repr(text), f"the metrics of task {task} are {', '.join(known)}")
    return None
