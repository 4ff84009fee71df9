"""The metrics of tasks: their directions and values; those that early stopping watches and searches optimize."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Any, Literal

from embexp.errors import ConfigError, Fault
from embexp.specs import fields, tasks
from embexp.specs.fields import imported
from embexp.specs.tasks import Direction, Metric, Task

_SPLIT = "validation"
_NONE: Mapping[str, bool] = MappingProxyType({})


@cache
def every() -> Sequence[Metric]:
    """The metrics of all tasks, those that are measured without being listed first."""
    found = [metric for task in tasks.every() for metric in task.metrics]
    return sorted(found, key=lambda metric: metric.listed)


fields.on_change.append(every.cache_clear)


def directions() -> dict[str, Direction]:
    """Every metric with its direction, but for those at cutoffs of the config."""
    return {name: metric.direction for metric in every() for name in metric.names}


def direction(metric: str, own: Mapping[str, bool] = _NONE) -> Direction | None:
    """Which way a metric gets better; None for a name that no metric has.

    Args:
        own: see `further`; without those that embexp has by the same name.
    """
    if metric in own:
        return Direction.HIGHER if own[metric] else Direction.LOWER
    return next((each.direction for each in every() if each.is_named(metric)), None)


def highest(metric: str) -> float | None:
    """The best value of a metric of embexp that is best when it is highest; None: there is none."""
    higher = (each for each in every() if each.direction is Direction.HIGHER and each.is_named(metric))
    return next((each.most for each in higher), None)


def keys(task: Task) -> tuple[str, ...]:
    """What `metrics` of a config may list for a task, without the user's own."""
    return tuple(dict.fromkeys(each.key for each in task.metrics))


def is_grouped(key: str) -> bool:
    """Whether a metric is a mean over groups of examples."""
    return any(each.grouped for each in every() if each.key == key)


def further(task: Task, chosen: Mapping[str, bool | None], cutoffs: Sequence[int] | None = None) -> dict[str, bool]:
    """The metrics that a config adds to those of its task, by name, and whether higher is better.

    Args:
        chosen: of the user's own, whether higher is better; None: it is one of embexp's, by its key.
    """
    listed = [key for key, higher in chosen.items() if higher is None]
    ours = [(name, each) for name, each, _ in task.named_metrics(cutoffs, listed) if each.listed]
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
    for name, metric, k in task.named_metrics(cutoffs, listed):
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


def metrics_of(task: Task, cutoffs: Sequence[int] | None = None, own: Iterable[str] = ()) -> tuple[str, ...]:
    """The metrics of a task, and further ones; early stopping watches the first by default."""
    return (*(name for name, _, _ in task.named_metrics(cutoffs)), *own)


def headline(task: Task, measured: Iterable[str] = ()) -> str:
    """The metric that reports put first.

    Args:
        measured: metrics of the run; NDCG, the headline of recommendation, has its first cutoff in its name.
    """
    name, first, _ = next((each for each in task.named_metrics() if each[1].headline), next(task.named_metrics()))
    return next(filter(first.is_named, measured), name)


def watched(
    task: Task,
    metric: str | None,
    cutoffs: Sequence[int] | None = None,
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
    cutoffs: Sequence[int] | None = None,
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
