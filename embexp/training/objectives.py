"""`sweep.objective`: the validation metrics that a search makes better."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from embexp.errors import ConfigError, Fault
from embexp.specs.models import Task
from embexp.specs.recommendation import Recommendation
from embexp.training import metric_names

_SPLIT = "validation"


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
    task: Task, chosen: str | Sequence[str] | None, cutoffs: Sequence[int] = Recommendation().cutoffs
) -> tuple[Objective, ...]:
    """The objectives of a search.

    Args:
        task: of the run.
        chosen: `sweep.objective`: one name, several, or None for the task's default, that of early stopping. The split
            may stand before the name: `validation auc`.
        cutoffs: of task recommendation.

    Raises:
        ConfigError: the task has no such metric, it is not one of the validation split, or it is named twice.
    """
    known = metric_names.names(task, cutoffs)
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
            higher = metric_names.direction(name) is metric_names.Direction.HIGHER
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
