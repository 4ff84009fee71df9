"""The loss of a run, and the user's own metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BeforeValidator, Field

from embexp.errors import Fault
from embexp.specs.base import FUNCTION, Choice, NamedCode, NonNegative, is_null

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


class RankingLoss(StrEnum):
    """The loss over the candidates of a query."""

    SOFTMAX = "softmax"
    """-log p[answer] with p = softmax(scores of the candidates)."""
    BINARY = "binary"
    """The log loss of each candidate's sigmoid, 1 for the answer and 0 for others; their mean."""


class LossOfTask(Choice):
    """The loss that follows from task and model."""

    kind: Literal["of_task"] = "of_task"
    implementation = "embexp.training.models:of_task"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task from which no loss follows."""
        if not spec.task.loss:
            yield Fault(scope.path, self.kind, f"task {spec.task} has several losses", f"choose {spec.task.losses}")


class CustomLoss(NamedCode):
    """The user's own function: `function(labels, logits, **args)` returns the loss of each example."""

    kind: Literal["custom"] = "custom"
    implementation = "embexp.training.models:custom_loss"

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A task whose loss compares candidates."""
        if spec.task.labels is None:
            rule = f"it takes the labels and logits of examples, and task {spec.task} compares candidates"
            yield Fault(scope.path, self.kind, rule, f"choose {spec.task.losses}")


Loss = Choice
"""Any loss: those of the core, and those that fields bring."""


class ChosenMetric(NamedCode):
    """A metric of embexp, by its name, or the user's own: `function(labels, predictions, **args)` returns a number."""

    function: Annotated[str, Field(pattern=FUNCTION)] | None = None  # type: ignore[assignment]
    """Dotted path `package.module:function` of the user's own; null: embexp's metric of that name."""
    higher_is_better: bool = True
    """Which way early stopping and searches take the user's own."""
    by: str | None = Field(default=None, exclude_if=is_null)
    """Of grouped_auc: the column whose values are the groups, which a feature reads."""


def chosen_metrics(value: object) -> object:
    """A metric or a list, by name or with settings, as a mapping by name; null as an empty one, and null settings too.

    Raises:
        ValueError: an entry of the list is neither, or a name stands there twice.
    """
    found: dict[object, object] = {}
    entries: list[object] = (
        list(value) if isinstance(value, list | tuple) else [] if value is None else [value]
    )  # a name alone, too
    for each in entries:
        named = {each: None} if isinstance(each, str) else each
        if not isinstance(named, Mapping):
            raise ValueError(f"{each!r} is no metric: list names, such as pr_auc, or names with settings")
        if twice := [name for name in named if name in found]:
            raise ValueError(f"{twice[0]} is listed twice")
        found.update({name: {} if settings is None else settings for name, settings in named.items()})
    return found


def _class_weights(value: object) -> object:
    """With the names of classes as text: a number or a truth value may be one."""
    if not isinstance(value, Mapping):
        return value
    return {str(key).lower() if isinstance(key, bool) else str(key): weight for key, weight in value.items()}


ClassWeights = Annotated[
    Literal["balanced"] | Annotated[dict[str, NonNegative], Field(min_length=1)] | None,
    BeforeValidator(_class_weights),
    Field(exclude_if=is_null),
]
"""How much the examples of each class count in the loss, by its name; balanced: all classes the same in total."""
