"""Tasks: what a run predicts, the labels that it takes, and its metrics. Each is an object that its field defines.

The metrics of tasks: their directions and values; those that early stopping watches and searches optimize.
"""

from __future__ import annotations

import difflib
import itertools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic_core import PydanticKnownError, core_schema

from embexp.errors import ConfigError, Fault
from embexp.specs import fields
from embexp.specs.fields import imported

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.tables import Feature

SOURCE, RELATION, CANDIDATES = "source", "relation", "candidates"
"""Id columns of queries, whose answers are ranked among candidates."""
ALL_RELATIONS = "relation.all"
"""Id column of every relation, int32 [1, R], where a model predicts relations; it is a feature of that name, too. No
feature of a config has a dot."""
KNOWN = "known"
"""Id column of all known answers of each query: in an evaluation, and those of the training split in KvsAll."""


class Direction(StrEnum):
    """Which way a metric improves."""

    LOWER = "lower"
    HIGHER = "higher"


@dataclass(frozen=True)
class Metric:
    """A metric of a split. Its functions return None if it is undefined.

    Attributes:
        name: name, with `{k}` for a metric that is measured at several cutoffs.
        value: `module:function` that computes it from the results of the task's evaluation and `k`; None: it is counted
            over all users.
        constant: the same for the best constant prediction or a random order; None: there is none.
        cutoffs: the values of k; None: those of the config.
        unit: axis label in plots, with `{k}`; "": its name.
        headline: whether reports put it first instead of the first metric of the task.
        both_classes: whether it is undefined if all labels are equal.
        listed: whether it is measured only if the config lists it under `metrics`.
        grouped: whether it is a mean over groups of examples, see `by` of `ChosenMetric`.
        most: the best possible value, if higher is better; None: there is none.
        test: `module:function` of an exact test of two models on the same rows, see `training.significance`. It takes
            the labels, the outcomes of both models, see `training.intervals.Outcomes`, and `k`; "": there is none.
    """

    name: str
    direction: Direction
    value: str | None
    constant: str | None = None
    cutoffs: tuple[int, ...] | None = ()
    unit: str = ""
    headline: bool = False
    both_classes: bool = False
    listed: bool = False
    grouped: bool = False
    most: float | None = 1.0
    test: str = ""

    @property
    def key(self) -> str:
        """Its name in `metrics` of the config."""
        return self.name.format(k="k")

    def is_named(self, name: str) -> bool:
        """Whether a name is this metric's, at any of its cutoffs."""
        at_cutoff = self.cutoffs is None and re.fullmatch(self.name.format(k="[1-9][0-9]*"), name)
        return bool(at_cutoff) or name in self.names

    @property
    def names(self) -> tuple[str, ...]:
        """Its names, without those at cutoffs from the config."""
        return tuple(self.name.format(k=k) for k in self.cutoffs or (0,)) if self.cutoffs is not None else ()


class Labels(StrEnum):
    """What the label of an example is, for tasks that predict labels."""

    NUMBER = "number"
    BINARY = "binary"
    """0 or 1."""
    CLASS = "class"
    """0, 1, 2, …"""


@dataclass(frozen=True)
class Compared:
    """What a step looks up of a feature in addition to the rows of its examples, to compare answers with others.

    Attributes:
        path: the config path that decides it.
        every: what the rows of its table are, such as entities, if all of them are looked up; otherwise "".
        made: whether all of its ids are made for a batch, so that examples have none.
        remedy: how to look up fewer.
        of_example: number of rows drawn per example.
        of_batch: number of rows drawn per batch.
        whole_batch: whether an example is compared with the whole batch.
    """

    path: str
    value: str
    every: str = ""
    made: bool = False
    remedy: str = ""
    of_example: int = 0
    of_batch: int = 0
    whole_batch: bool = False


class Task(str):
    """What a model predicts. An instance is a string, its own name, which records hold; there is one per name.

    Attributes:
        described: what is predicted, how it is scored, and the loss.
        metrics: in the order of reports. Early stopping watches the first by default.
        labels: the kind of labels; None: the answer is one of several candidates.
        of_interactions: whether each row of a file, or each row whose label reaches a threshold, is an interaction.
        settings: the setting of the config that only this task reads; "": there is none.
        cutoffs: list lengths at which it is measured, unless the config sets others.
        data: `module:function` that completes scanned data with what only this task needs, before TensorFlow is
            imported, see `embexp.runs.prepare`; "": nothing.
        additions: `module:function` that adds to training batches, see `embexp.data.batches`; "": nothing.
        loss: `module:function` that returns the loss that follows from task and model; "": none follows.
        loss_unit: axis label of the loss in plots, if the loss is not a metric.
        losses: choices of the loss that it supports, for messages.
        reference: `module:object` of the constant prediction that a model must beat, see `training.baseline`; "": none.
        serving: `module:function` that makes a served model, see `embexp.runs.serving`.
        answers: the id column whose rows are the labels, which no feature reads, and the feature whose table holds
            them.
        takes_rows: whether a served model may take the rows of its features, see `serving.row_model`.
        evaluator: `module:class` of its evaluation, see `embexp.runs.evaluations`.
    """

    described: str
    metrics: tuple[Metric, ...]
    evaluator: str
    serving: str
    labels: Labels | None = None
    of_interactions: ClassVar[bool] = False
    settings: ClassVar[str] = ""
    cutoffs: tuple[int, ...] = ()
    data: str = ""
    additions: str = ""
    loss: str = ""
    losses: ClassVar[str] = "loss=of_task"
    loss_unit: ClassVar[str] = ""
    reference: str = ""
    answers: tuple[str, str] | None = None
    takes_rows: bool = False

    def __new__(cls, name: str, **attributes: Any) -> Self:
        """Stores the attributes."""
        self = super().__new__(cls, name)
        self.__dict__.update(attributes)
        return self

    def __reduce__(self) -> Any:
        """Only its name is pickled."""
        return named, (str(self),)

    def __deepcopy__(self, memo: object) -> Self:
        """Itself."""
        return self

    @property
    def has_classes(self) -> bool:
        """Whether labels are classes, two or more."""
        return self.labels in (Labels.BINARY, Labels.CLASS)

    def outputs(self, classes: int) -> int:
        """Number of logits per example.

        Args:
            classes: number of classes of the label; 0: none.
        """
        return max(1, classes) if self.labels is Labels.CLASS else 1

    def cutoffs_of(self, spec: RunSpec) -> tuple[int, ...]:
        """The lengths of lists at which a run is measured."""
        return self.cutoffs

    def recorded_cutoffs(self, settings: Mapping[str, Any]) -> tuple[int, ...]:
        """The same for a recorded spec, given as values by config path."""
        return self.cutoffs

    def compared(self, spec: RunSpec) -> dict[str, Compared]:
        """What a step looks up in addition to its examples, by feature."""
        return {}

    def further_features(self, spec: RunSpec, data: Any) -> dict[str, Feature]:
        """Features that no config has, by their column in training batches, whose rows are all looked up."""
        return {}

    def memory_lines(self, spec: RunSpec, data: Any) -> Iterator[str]:
        """What `plan` says about the memory of steps and evaluations, if batches alone don't determine it."""
        return iter(())

    def training_warnings(self, spec: RunSpec, data: Any, steps: int) -> Iterator[str]:
        """What a user should know before training begins, such as that it takes very long.

        Args:
            data: of the run, see `embexp.runs.prepare`.
        """
        return iter(())

    def faults(self, spec: RunSpec) -> Iterator[Fault]:
        """What a run of this task lacks, or can't have. The spec may be partial, see `Spec.faults`."""
        return iter(())

    def named_metrics(
        self, cutoffs: Sequence[int] | None = None, listed: Collection[str] = ()
    ) -> Iterator[tuple[str, Metric, int | None]]:
        """Its metrics with their names and cutoffs. Adjacent metrics with cutoffs alternate at each cutoff.

        Args:
            cutoffs: None: those of the task.
            listed: keys of metrics that are measured only where they are listed; others are ignored.
        """
        cutoffs = self.cutoffs if cutoffs is None else cutoffs
        measured = (each for each in self.metrics if not each.listed or each.key in listed)
        for at, several in itertools.groupby(measured, lambda metric: metric.cutoffs):
            group = list(several)
            for k in cutoffs if at is None else at or (None,):
                yield from ((metric.name.format(k=k), metric, k) for metric in group)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: Any) -> core_schema.CoreSchema:
        """A task by its name, which is all that is recorded."""
        return core_schema.no_info_plain_validator_function(
            _validated, serialization=core_schema.to_string_ser_schema()
        )

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: core_schema.CoreSchema, handler: Any) -> dict[str, Any]:
        """The names of all tasks."""
        return {"enum": list(fields.names("tasks")), "type": "string"}


RENAMED = {"rating": "regression", "click": "binary"}
"""Tasks by their names before 0.2.0, which are still read."""


@cache
def named(name: str) -> Task:
    """The task of a name.

    Raises:
        ValueError: there is none.
    """
    found = fields.find("tasks", RENAMED.get(name, name))
    if not isinstance(found, Task):
        raise ValueError(f"{name!r} is not a task; the tasks are {', '.join(fields.names('tasks'))}")
    return found


fields.on_change.append(named.cache_clear)


def every() -> Iterator[Task]:
    """All tasks, in the order of their fields."""
    return (named(name) for name in fields.names("tasks"))


def settings_of_others(task: Task) -> Iterator[str]:
    """The settings of a config that only other tasks read."""
    return (each.settings for each in every() if each.settings and each.settings != task.settings)


def _validated(value: object) -> Task:
    try:
        return named(str(value))
    except ValueError:
        *rest, last = (repr(name) for name in fields.names("tasks"))
        raise PydanticKnownError("enum", {"expected": f"{', '.join(rest)} or {last}"}) from None


_SPLIT = "validation"
_NONE: Mapping[str, bool] = MappingProxyType({})


@cache
def every_metric() -> Sequence[Metric]:
    """The metrics of all tasks, those that are measured without being listed first."""
    found = [metric for task in every() for metric in task.metrics]
    return sorted(found, key=lambda metric: metric.listed)


fields.on_change.append(every_metric.cache_clear)


def directions() -> dict[str, Direction]:
    """Every metric with its direction, but for those at cutoffs of the config."""
    return {name: metric.direction for metric in every_metric() for name in metric.names}


def direction(metric: str, own: Mapping[str, bool] = _NONE) -> Direction | None:
    """Which way a metric gets better; None for a name that no metric has.

    Args:
        own: see `further`; without those that embexp has by the same name.
    """
    if metric in own:
        return Direction.HIGHER if own[metric] else Direction.LOWER
    return next((each.direction for each in every_metric() if each.is_named(metric)), None)


def highest(metric: str) -> float | None:
    """The best value of a metric of embexp that is best when it is highest; None: there is none."""
    higher = (each for each in every_metric() if each.direction is Direction.HIGHER and each.is_named(metric))
    return next((each.most for each in higher), None)


def keys(task: Task) -> tuple[str, ...]:
    """What `metrics` of a config may list for a task, without the user's own."""
    return tuple(dict.fromkeys(each.key for each in task.metrics))


def is_grouped(key: str) -> bool:
    """Whether a metric is a mean over groups of examples."""
    return any(each.grouped for each in every_metric() if each.key == key)


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
        ConfigError: the task has no such metric, it is not one of the validation split, or it is listed twice.
    """
    known = metrics_of(task, cutoffs, own)
    names = [known[0]] if chosen is None else [chosen] if isinstance(chosen, str) else list(chosen)
    found: list[Objective] = []
    faults: list[Fault] = []
    for text in names:
        *split, name = text.replace(".", " ").replace("/", " ").split() or [""]
        fault = _objective_fault(task, known, split, name, text)
        if fault is None and any(each.metric == name for each in found):
            fault = Fault("sweep.objective", repr(text), "it is listed twice", "list each objective once")
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


def _objective_fault(task: Task, known: Sequence[str], split: Sequence[str], name: str, text: str) -> Fault | None:
    if list(split) not in ([], [_SPLIT]):
        rule = "a search must choose settings on the validation split"
        if split[0] == "test":
            rule += ": if it chose them on the test split, test metrics would no longer say anything about new data"
        remedy = f"write sweep.objective={name}" if name in known else f"metrics of task {task}: {', '.join(known)}"
        return Fault("sweep.objective", repr(text), rule, remedy)
    if name not in known:
        return Fault("sweep.objective", repr(text), f"the metrics of task {task} are {', '.join(known)}")
    return None
