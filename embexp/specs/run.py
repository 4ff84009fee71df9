"""`RunSpec`: the spec of a run. Its rules, and settings that are valid but have no effect or are rarely intended.

Each rule is defined with its choice: see `Spec.faults`.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, get_args

from pydantic import BeforeValidator, Field, TypeAdapter
from pydantic.fields import FieldInfo

from embexp.errors import CombinationFault, Fault, UsageError
from embexp.specs import claims, fields, inits, tasks
from embexp.specs.base import (
    FUNCTION,
    Choice,
    JobCount,
    Note,
    Scope,
    Seed,
    Spec,
    for_each,
    summarize_names,
    union,
    where_known,
)
from embexp.specs.claims import Expected
from embexp.specs.data import DATE_PARTS, SOURCES, with_paths
from embexp.specs.freezing import Freeze, FreezeTable, NoFreeze
from embexp.specs.inits import Assign, Init, MemoryMap
from embexp.specs.models import MLP, ChosenMetric, CustomLoss, KerasModel, LossOfTask, chosen_metrics
from embexp.specs.optimizers import DenseOptimizer, TableOptimizer
from embexp.specs.pretrained import Checkpoint, NoPretrained, Parent, Pretrained, Sample, is_absent
from embexp.specs.running import Checkpointing, Output, Restoring, Runtime, RuntimeKind, Sweep, Train
from embexp.specs.strategies import CPU, Strategy
from embexp.specs.studies import DailyStudy, NoStudy
from embexp.specs.tables import Feature, Table
from embexp.specs.tasks import Labels, Task
from embexp.specs.tracking import NoTracking, Tracking

_BROUGHT: Mapping[str, tuple[str, tuple[type[Choice], ...]]] = {
    "data": ("data", SOURCES),
    "model": ("models", (MLP, KerasModel)),
    "loss": ("losses", (LossOfTask, CustomLoss)),
    "study": ("studies", (NoStudy, DailyStudy)),
}
"""What fields bring to keys of a spec: the group of `Field`, and the choices of the core."""

if TYPE_CHECKING:
    from embexp.specs.data import Data
    from embexp.specs.models import Loss, Model
    from embexp.specs.studies import StudyChoice as Study

    Recommendation = Any
else:
    Data, Model, Loss, Study = (union(group, *own) for group, own in _BROUGHT.values())
    Recommendation = fields.find("settings", "recommendation")

Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]*$", max_length=200)]  # of files, such as a vocabulary
"""Names of tables and features: letters, digits and underscores, a letter first (they become checkpoint keys)."""

INHERITED = ("optimizer", "pretrained", "init", "freeze")
"""Choices that tables inherit from the top level."""


class VariableRead(Spec):
    """An environment variable that a config has read."""

    value: str | None
    """What it was then: see `embexp.system.environment.fingerprint`. null: it was not set."""
    keys: tuple[str, ...]
    """The settings that it decided."""

    def described(self, name: str) -> str:
        """What the variable decided, in words."""
        keys = f"{', '.join(self.keys[:3])}{f' and {len(self.keys) - 3} more' if len(self.keys) > 3 else ''}"
        is_set = "is not set, and would decide" if self.value is None else "decides"
        return f"the environment variable {name} {is_set} {keys}"


class RunSpec(Spec):
    """All settings of the user. `embexp.runs.prepare` settles what depends on the data."""

    name: str
    """Name of the experiment, shown to people."""
    fields: tuple[Annotated[str, Field(pattern=FUNCTION)], ...] = Field(default=(), exclude_if=lambda given: not given)
    """Paths of fields that no installed package provides; see `embexp.fields`."""
    resolvers: dict[
        Annotated[str, Field(pattern=r"^[A-Za-z_]\w*$", max_length=200)],
        Annotated[str, Field(pattern=FUNCTION)],
    ] = Field(default_factory=dict, exclude_if=lambda given: not given)
    """Functions of the user that made values of the config, by the name of their interpolation. The spec has these
    values, and calls nothing again."""
    environment: dict[str, VariableRead] = Field(default_factory=dict, exclude_if=lambda given: not given)
    """Environment variables that values of the config came from. Composing fills it in; users don't set it."""
    task: Task
    seed: Seed = 0
    data: Data
    tables: Annotated[dict[Name, Table], Field(min_length=1)]
    features: Annotated[dict[Name, Feature], Field(min_length=1)]
    model: Model
    loss: Loss = LossOfTask.model_construct()
    metrics: Annotated[
        dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=200)], ChosenMetric],
        BeforeValidator(
            chosen_metrics,
            json_schema_input_type=str | tuple[str | dict[str, ChosenMetric], ...] | dict[str, ChosenMetric] | None,
        ),
    ] = Field(default_factory=dict)
    """Metrics of all splits in addition to those of the task, by name."""
    expect: Annotated[
        dict[str, dict[str, Expected]],
        BeforeValidator(
            claims.nested, json_schema_input_type=dict[str, dict[str, Expected | None] | Expected | None] | None
        ),
    ] = Field(default_factory=dict, exclude_if=lambda given: not given)
    """Expected results, by split and metric."""
    recommendation: Recommendation = Field(default_factory=lambda: Recommendation.model_construct())
    optimizer: TableOptimizer
    dense_optimizer: DenseOptimizer
    parent: Parent = Field(default_factory=Parent, exclude_if=is_absent)
    """The run that this one continues."""
    pretrained: Pretrained = NoPretrained.model_construct()
    init: Init = Assign.model_construct()
    freeze: Freeze = NoFreeze.model_construct()
    strategy: Strategy = CPU.model_construct()
    runtime: Runtime = Runtime.model_construct()
    train: Train
    restore: Restoring = Restoring.model_construct()
    checkpoint: Checkpointing = Checkpointing.model_construct()
    output: Output = Output.model_construct()
    tracking: Tracking = NoTracking.model_construct()
    study: Study = NoStudy.model_construct()
    sweep: Sweep = Sweep.model_construct()
    seeds: JobCount = 1
    """Number of seeds with which a sweep repeats each setting."""

    @property
    def standardizes_labels(self) -> bool:
        """Whether the model predicts standardised labels; those of tasks other than regression have no unit."""
        return self.train.standardize_labels and self.task.labels is Labels.NUMBER

    @property
    def further_metrics(self) -> dict[str, bool]:
        """The metrics that the config adds to those of the task, and whether higher is better."""
        chosen = {name: None if each.function is None else each.higher_is_better for name, each in self.metrics.items()}
        return tasks.further(self.task, chosen, self.task.cutoffs_of(self))

    @property
    def listed_metrics(self) -> tuple[str, ...]:
        """Those of embexp that the config lists, by key."""
        return tuple(name for name, each in self.metrics.items() if each.function is None)

    @property
    def grouped_by(self) -> str | None:
        """The column of ids whose values are the groups of grouped metrics; None: there are none."""
        return next((each.by for each in self.metrics.values() if each.function is None and each.by), None)

    def optimizer_of(self, table: str) -> TableOptimizer:
        """The table's own optimizer, or the top-level one, with the table's part of the weight decay."""
        found, scale = self.tables[table].optimizer or self.optimizer, self.tables[table].weight_decay_scale
        if scale == 1 or not found.weight_decay_factor:
            return found
        return found.model_copy(update={"weight_decay_factor": scale * found.weight_decay_factor})

    def pretrained_of(self, table: str) -> Pretrained:
        """The table's own pretrained setting, or the top-level one."""
        return self.tables[table].pretrained or self.pretrained

    def freeze_of(self, table: str) -> Freeze:
        """The table's own policy, or the top-level one."""
        return self.tables[table].freeze or self.freeze

    def init_of(self, table: str) -> Init:
        """The table's init method: its own, the top-level one, or `assign` if the top-level one does not fit it.

        A top-level `memory_map` fits pretrained tables with frozen rows whose storage allows mapping.
        """
        own = self.tables[table].init
        if own is not None:
            return own
        return self.init if self.init.fits(self, table) else Assign()

    @property
    def shared_runtimes(self) -> tuple[RuntimeKind, ...]:
        """The runtimes in which the init methods of all tables work, in the order in which `auto` prefers them."""
        everywhere = [self.init_of(table).runtimes for table in self.tables]
        return tuple(kind for kind in RuntimeKind if all(kind in runtimes for runtimes in everywhere))

    @property
    def executing_runtime(self) -> RuntimeKind:
        """The runtime of the config or, for `auto`, the first that all tables share; `auto` if they share none."""
        if self.runtime.kind is not RuntimeKind.AUTO:
            return self.runtime.kind
        return next(iter(self.shared_runtimes), RuntimeKind.AUTO)

    def frozen(self, table: str) -> bool:
        """Whether all rows of a table are frozen."""
        return isinstance(self.freeze_of(table), FreezeTable)

    def mappable(self, table: str) -> bool:
        """Whether a table may have frozen rows that can stay in their pretrained file."""
        frozen = not isinstance(self.freeze_of(table), NoFreeze)
        return frozen and not isinstance(self.pretrained_of(table), NoPretrained)

    def kept_by_reference(self, table: str) -> bool:
        """Whether a table is fully frozen and pretrained, so that checkpoints omit its values."""
        return self.frozen(table) and not isinstance(self.pretrained_of(table), NoPretrained)

    def dense_from(self) -> dict[str, Checkpoint]:
        """The settings that restore the dense part from their checkpoint, by config path."""
        found = {"pretrained": self.pretrained} if getattr(self.pretrained, "dense", None) is not False else {}
        for name, table in self.tables.items():
            if isinstance(table.pretrained, Checkpoint) and table.pretrained.dense:
                found[f"tables.{name}.pretrained"] = table.pretrained
        return {path: setting for path, setting in found.items() if isinstance(setting, Checkpoint)}

    def settled(self, dims: Mapping[str, int], unfilled: Collection[str] = ()) -> RunSpec:
        """The spec with the settings that depend on pretrained files.

        Args:
            unfilled: tables for which the top-level file has no rows; they count as not pretrained.
        """
        tables = {}
        for name, table in self.tables.items():
            updates: dict[str, object] = {}
            if table.dim is None and name in dims:
                updates["dim"] = dims[name]
            if name in unfilled:
                updates["pretrained"] = NoPretrained()
            tables[name] = table.model_copy(update=updates) if updates else table
        return self.model_copy(update={"tables": tables})

    def freeze_path(self, table: str) -> str:
        """Config path of the policy that `freeze_of` returns."""
        return f"tables.{table}.freeze" if self.tables[table].freeze is not None else "freeze"

    def pretrained_path(self, table: str) -> str:
        """Config path of the setting that `pretrained_of` returns."""
        return f"tables.{table}.pretrained" if self.tables[table].pretrained is not None else "pretrained"

    @property
    def fixed_batch(self) -> bool:
        """Whether all batches must have the size of a training batch, because of an `output_shape` or a TPU."""
        return self.strategy.fixed_batch or any(feature.output_shape is not None for feature in self.features.values())

    @property
    def evaluation_batch_size(self) -> int:
        """Batch size of evaluations."""
        return self.train.batch_size if self.fixed_batch else self.train.evaluation_batch_size

    def column_of(self, feature: str) -> str:
        """The data column that a feature reads."""
        return self.features[feature].column or feature

    def with_data_paths(self, change: Callable[[str], str]) -> RunSpec:
        """The same spec with each path of its data changed."""
        data = with_paths(self.data, change)
        return self if data is self.data else self.model_copy(update={"data": data})

    def ids_of(self, feature: str) -> str:
        """The column of ids that a feature gets; see `Feature.ids_column`."""
        return self.features[feature].ids_column(feature)

    def input_faults(self) -> list[Fault]:
        """The reasons why the model can't take the features of a run whose dims are known."""
        dims = {name: table.vector_dim(table.width) for name, table in self.tables.items()}
        shapes = {name: feature.activation_shape(dims[feature.table]) for name, feature in self.features.items()}
        classes = self.task.labels is Labels.CLASS
        return list(self.model.input_faults(shapes, self.data.dense_width, classes))

    def without_columns(self, names: Collection[str]) -> tuple[str, ...]:
        """The overrides of the same run without some columns, and without what is made of their dates; () if none.

        There are none for columns that the run can't do without, such as those that its model names.
        """
        gone = {*names, *(f"{name}_{part}" for name in names for part in DATE_PARTS)}
        kept = {
            name: each
            for name, each in self.features.items()
            if self.column_of(name) not in gone and each.weights not in gone
        }
        used = {each.table for each in kept.values()}
        removed = [
            *(f"features.{name}" for name in self.features if name not in kept),
            *(f"tables.{name}" for name in self.tables if name not in used and self.features_of(name)),
        ]
        found, update = [f"~{path}" for path in removed], dict[str, Any]()
        dense: Mapping[str, Any] = getattr(self.data, "dense_features", {})
        if left_out := [name for name in dense if name in gone]:
            rest = {name: each for name, each in dense.items() if name not in gone}
            update["data"] = self.data.model_copy(update={"dense_features": rest})
            if isinstance(self.data.model_dump()["dense_features"], list):
                found.insert(0, f"data.dense_features=[{','.join(rest)}]")
            else:
                found = [*(f"~data.dense_features.{name}" for name in left_out), *found]
        update["features"] = kept
        update["tables"] = {name: each for name, each in self.tables.items() if f"tables.{name}" not in removed}
        other = self.model_copy(update=update)
        plain = all(re.fullmatch(r"[\w-]+", name) for name in (*self.features, *self.tables, *dense))
        if not found or not kept or not plain or rule_faults(other) or other.input_faults():
            return ()
        return tuple(found)

    def features_of(self, table: str) -> Mapping[str, Feature]:
        """The features of a table, in config order."""
        return {name: feature for name, feature in self.features.items() if feature.table == table}

    def scope_of(self, path: str) -> Scope:
        """The scope of the part at a config path."""
        match path.split("."):
            case ["tables", table, _]:
                return Scope(path, (table,))
            case [name] if name in INHERITED:
                if "tables" not in self.__dict__:
                    return Scope(path, open=True)
                own = {table: settings.__dict__.get(name, ...) for table, settings in self.tables.items()}
                inheriting = tuple(table for table, choice in own.items() if choice is None)
                return Scope(path, inheriting, open=... in own.values())
            case _:
                return Scope(path)

    def settings_of(self, name: str) -> Iterator[tuple[Scope, Any]]:
        """The top-level choice of a group and tables' own choices, as far as they are known.

        Args:
            name: one of `INHERITED`.
        """
        owners: dict[str, Spec] = {name: self}
        owners |= {f"tables.{table}.{name}": each for table, each in self.__dict__.get("tables", {}).items()}
        for path, owner in owners.items():
            if (setting := owner.__dict__.get(name)) is not None:
                yield self.scope_of(path), setting

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Faults of several choices: init methods that share no runtime, and what the task lacks."""
        return where_known(
            inits.no_shared_runtime(self),
            lambda: _fields(self),
            lambda: self.task.faults(self),
            _no_predictions(self),
            lambda: _several_labels(self),
            for_each(lambda: self.metrics, lambda name: _no_metric(self, name)),
            lambda: claims.faults(self),
        )


def brought(spec: RunSpec) -> Iterator[tuple[str, fields.Origin]]:
    """The fields that a spec uses, as far as it is known, each with the config path that asks for it."""
    found = {"task": fields.origin_of("tasks", str(spec.__dict__.get("task")))}
    for key, (group, _) in _BROUGHT.items():
        found[f"{key}.kind"] = fields.origin_of(group, str(getattr(spec.__dict__.get(key), "__dict__", {}).get("kind")))
    for name in _SETTINGS & spec.model_fields_set:
        found[name] = fields.origin_of("settings", name)
    return ((path, origin) for path, origin in found.items() if origin is not None)


def own_fields(spec: RunSpec) -> list[fields.Origin]:
    """The fields that a spec uses or names, without those of embexp."""
    used = {origin.path for _, origin in brought(spec)} | {*spec.fields}
    return [origin for origin in fields.origins() if origin.is_own and origin.path in used]


def _fields(spec: RunSpec) -> Iterator[Fault]:
    """Fields that a config names where they can't be read, and one that it uses and does not name."""
    known = {origin.path for origin in fields.origins()}
    for path in (path for path in spec.fields if path not in known):
        rule = "fields is read before the config is composed, so it can't be swept or set by an interpolation"
        yield Fault("fields", repr(path), rule, f"add fields=[{path}] to the command line")
    for key, origin in brought(spec):
        if origin.is_own and not origin.installed and origin.path not in spec.fields:
            rule = f"it comes from {origin}, which fields does not list"
            yield Fault(key, repr(origin.field.name), rule, f"set fields=[{','.join([*spec.fields, origin.path])}]")


def _no_predictions(spec: RunSpec) -> Iterator[Fault]:
    own = [name for name, metric in spec.metrics.items() if metric.function is not None]
    if own and spec.task.labels is None:
        rule = f"they compare labels with predictions, but the metrics of task {spec.task} judge lists"
        yield Fault("metrics", ", ".join(own), rule, "remove them")


def _several_labels(spec: RunSpec) -> Iterator[Fault]:
    """Weights, where examples have several labels, and a task that takes one."""
    if not getattr(spec.data, "further_labels", ()):
        return
    rule = "examples with several labels can't have weights"
    if (weight := getattr(spec.data, "weight", None)) is not None:
        yield Fault("data.weight", repr(weight), rule, "remove it")
    if spec.train.class_weights is not None:
        yield Fault("train.class_weights", str(spec.train.class_weights), rule, "remove it")
    if spec.task.outputs(0) == 1:
        rule = f"task {spec.task} takes one label, but this source has several"
        yield Fault("data.kind", spec.data.kind, rule, "choose a task with several labels, or another source")


def _no_metric(spec: RunSpec, name: str) -> Iterator[Fault]:
    """A metric that the task does not have, and groups where there are none, or of no column of ids."""
    metric, path = spec.metrics[name], f"metrics.{name}"
    if metric.function is None and name not in (known := tasks.keys(spec.task)):
        near = difflib.get_close_matches(name, known, n=1)
        others = [str(task) for task in tasks.every() if name in tasks.keys(task)]
        rule = f"the metrics of task {spec.task} are {', '.join(known)}"
        remedy = f"did you mean {near[0]!r}?" if near else f"your own needs {path}.function=module:function"
        if others:
            rule, remedy = f"{rule}; this is a metric of {' and '.join(others)}", "leave it out"
        yield Fault(path, repr(name), rule, remedy)
    elif metric.function is None and tasks.is_grouped(name):
        columns = {spec.column_of(each): each for each in spec.features}
        names = ", ".join(columns)
        if metric.by is None:
            yield Fault(
                f"{path}.by", "null", "the metric is a mean over groups", f"name the column of the groups: {names}"
            )
        elif metric.by not in columns or spec.features[columns[metric.by]].buckets.given:
            near = difflib.get_close_matches(metric.by, columns, n=1)
            rule = f"groups must be values of a column that a feature reads as ids: {names}"
            yield Fault(f"{path}.by", repr(metric.by), rule, f"did you mean {near[0]!r}?" if near else "name one")
    elif metric.by is not None:
        yield Fault(f"{path}.by", repr(metric.by), "only grouped_auc has groups", "remove it, or list grouped_auc")


def _take_in_fields() -> None:
    """Has specs take what fields bring that became known after this module was imported, and settings of strangers.

    A spec has settings only where they differ from their defaults, so that an installed field changes no other run.
    """
    described = RunSpec.model_fields
    for origin in fields.origins():
        if origin.is_own and (rule := _unusable(origin)):
            fields.refuse(origin, rule)
    for key, (group, own) in _BROUGHT.items():
        described[key].annotation = get_args(union(group, *own, strangers=True))[0]
    kept = {name for origin in fields.origins() for name in origin.field.settings}
    for name in [each for each in described if each not in kept and each in _SETTINGS]:
        del described[name]
    for name in kept - described.keys():
        described[name] = _settings_of(fields.find("settings", name))
        _SETTINGS.add(name)
    RunSpec.model_rebuild(force=True)


def _unusable(origin: fields.Origin) -> str:
    """Why something that a field names can't be used, in a sentence; "": all can, as far as specs need it."""
    light = "tensorflow" not in sys.modules
    if (rule := _wrong_name(origin)) or not light or "tensorflow" not in sys.modules:
        return rule
    return "its tasks, choices or settings import TensorFlow: import it only in modules that they name by a path"


def _wrong_name(origin: fields.Origin) -> str:
    """What a field names that is not there, or no object of its group, in a sentence; "": nothing."""
    core = {group: {each.model_fields["kind"].default for each in own} for group, own in _BROUGHT.values()}
    core |= {"tasks": set(), "settings": RunSpec.model_fields.keys() - _SETTINGS}
    for group, names in core.items():
        for name, path in getattr(origin.field, group).items():
            if name in names:
                return f"{group} has {name!r}, a name that embexp already uses"
            try:
                found = fields.imported(path)
            except Exception as error:
                return f"{group}[{name!r}] is {path!r}, but {fields.raised(error)}"
            kind = {"tasks": Task, "settings": Spec}.get(group, Choice)
            known = isinstance(found, Task) if kind is Task else isinstance(found, type) and issubclass(found, kind)
            if not known:
                return f"{group}[{name!r}] is {path!r}, which is not a {kind.__name__}"
            own = str(found) if group == "tasks" else found.model_fields["kind"].default if kind is Choice else name
            if own != name:
                return f"{group}[{name!r}] is {path!r}, but that object's name is {own!r}"
    return ""


_SETTINGS: set[str] = set()
"""Keys of settings that fields other than those of embexp bring."""


def _settings_of(kind: type[Spec]) -> FieldInfo:
    default = kind()
    given: Any = Field(default=default, exclude_if=lambda value: value == default)
    return FieldInfo.from_annotated_attribute(kind, given)


fields.on_change.append(_take_in_fields)
if any(origin.is_own for origin in fields.origins()):
    _take_in_fields()


def recorded(text: str | bytes, record: object) -> RunSpec:
    """A spec that a record has as JSON, whose fields are taken in first, as far as the user allows their code.

    Raises:
        UsageError: it names a field that the user does not allow.
        ConfigError: a field can't be taken in, see `fields.add`.
        ValidationError: it is no spec that this version understands.
    """
    if missing := fields.take_in(_named_fields(text)):
        raise UsageError(not_allowed(record, dict.fromkeys(missing, "fields")))
    return RunSpec.model_validate_json(text)


def allow_fields(text: str) -> None:
    """Allows the fields of a spec as JSON that another process of this program has checked."""
    fields.allow(_named_fields(text))


def _named_fields(text: str | bytes) -> list[str]:
    """The fields that a spec as JSON names; what is no spec names none, as validation reports it."""
    if b'"fields"' not in (text.encode() if isinstance(text, str) else text):
        return []
    with contextlib.suppress(ValueError, AttributeError, TypeError):
        return [path for path in json.loads(text).get("fields", ()) if isinstance(path, str)]
    return []


def not_allowed(record: object, names: Mapping[str, str]) -> str:
    """Why nothing is done with a record that names code which the user has not allowed.

    Args:
        names: of functions and other objects, each with its config path.
    """
    options = " ".join(f"--allow-code {each}" for each in names)
    return (
        f"{record} names code to run: {', '.join(names)} ({', '.join(dict.fromkeys(names.values()))}). Read "
        f"that code; to allow it, add {options}, or in Python allow_code={list(names)}"
    )


def data_of(settings: object) -> Data:
    """A source by its settings, of which `kind` says what it is.

    Raises:
        ValidationError: there is no such source, or a setting is wrong.
    """
    field = RunSpec.model_fields["data"]
    described: Any = Annotated[field.annotation, field]
    found: Data = TypeAdapter(described).validate_python(settings)
    return found


def rule_faults(spec: RunSpec) -> list[Fault]:
    """The faults between valid parts of a run, in the order of the config's keys.

    Args:
        spec: may be partial.
    """
    return list(where_known(*(partial(part.faults, spec, scope) for scope, part in parts(spec))))


def combination_faults(spec: RunSpec) -> list[CombinationFault]:
    """The faults for which a sweep skips a job."""
    return [fault for fault in rule_faults(spec) if isinstance(fault, CombinationFault)]


def parts(spec: RunSpec) -> Iterator[tuple[Scope, Spec]]:
    """The run and all known parts of it, each before its inner parts."""
    return _parts(spec, spec, "")


def _parts(spec: RunSpec, part: Spec, path: str) -> Iterator[tuple[Scope, Spec]]:
    yield spec.scope_of(path), part
    for name in type(part).model_fields:
        value = part.__dict__.get(name)  # has only known fields
        named = value if isinstance(value, Mapping) else {"": value}
        for key, inner in named.items():
            if isinstance(inner, Spec):
                yield from _parts(spec, inner, ".".join(filter(None, (path, name, key))))


def inert_settings(spec: RunSpec) -> list[str]:
    """Settings without effect, each as `config path: reason`."""
    return [
        *_inherited(spec),
        *_mapped(spec),
        *_frozen(spec),
        *_samples(spec),
        *(line for scope, optimizer in spec.settings_of("optimizer") for line in optimizer.inert(scope.path)),
        *_model(spec),
        *_train(spec),
    ]


def doubtful_settings(spec: RunSpec) -> list[str]:
    """Warnings about settings that are rarely intended, shown before a run and by `embexp plan`."""
    lines = []
    for scope, freeze in spec.settings_of("freeze"):
        random = [name for name in scope.tables if isinstance(spec.pretrained_of(name), NoPretrained)]
        if isinstance(freeze, FreezeTable) and freeze.random is None and random:
            lines.append(
                f"{summarize_names([f'tables.{name}' for name in random])}: frozen but not pretrained, so the "
                f"random initial values never change; if you want that, choose "
                f"{scope.choosing('freeze', 'random_table')}"
            )
    return lines


def _inherited(spec: RunSpec) -> Iterator[str]:
    for name in INHERITED:
        if not spec.scope_of(name).tables:
            yield f"{name}: every table has its own setting"


def _mapped(spec: RunSpec) -> Iterator[str]:
    if isinstance(spec.init, MemoryMap):
        inheriting = spec.scope_of("init").tables
        others = [f"tables.{name}" for name in inheriting if not isinstance(spec.init_of(name), MemoryMap)]
        if others:
            names = summarize_names(others)
            yield f"init memory_map on {names}: not frozen or not pretrained, so their rows are assigned"


def _frozen(spec: RunSpec) -> Iterator[str]:
    for name, table in spec.tables.items():
        if table.optimizer is not None and spec.frozen(name):
            yield Note(f"tables.{name}.optimizer", "the table is frozen")
    if all(spec.frozen(name) for name in spec.tables):
        yield "optimizer: every table is frozen"


def _samples(spec: RunSpec) -> Iterator[str]:
    default = Sample()
    for scope, setting in spec.settings_of("pretrained"):
        if isinstance(setting, Sample) and setting.path is not None:
            for key in ("rows", "dim", "seed"):
                if getattr(setting, key) != getattr(default, key):
                    yield Note(f"{scope.path}.{key}", "path names a file, so no sample is generated")


def _model(spec: RunSpec) -> Iterator[str]:
    yield from spec.model.inert(spec)
    if not spec.model.has_weights and all(table.adapter is None for table in spec.tables.values()):
        yield f"dense_optimizer: {spec.model.kind} has no weights outside the tables"
    for name in tasks.settings_of_others(spec.task):
        if getattr(spec, name) != type(spec).model_fields[name].get_default(call_default_factory=True):
            yield f"{name}: the task is {spec.task}"


def _train(spec: RunSpec) -> Iterator[str]:
    requested, used = spec.train.evaluation_batch_size, spec.evaluation_batch_size
    if requested not in (used, Train.model_fields["evaluation_batch_size"].default):
        why = "an output_shape sets the batch size"
        if spec.strategy.fixed_batch:
            why = f"strategy {spec.strategy.kind} requires batches of one size"
        yield f"train.evaluation_batch_size: {why}, so evaluations use train.batch_size ({used:,})"
    if spec.train.standardize_labels and not spec.standardizes_labels:
        yield f"train.standardize_labels: labels of task {spec.task} have no unit"
    if spec.train.epochs is not None and spec.train.epochs <= 1:
        for name, table in spec.tables.items():
            if table.reset is not None:
                yield Note(f"tables.{name}.reset", "training ends after its first epoch")
    stopping = spec.train.early_stopping
    if stopping.patience is None:
        if stopping.metric is not None:
            yield "train.early_stopping.metric: patience is null, so nothing stops early"
        if stopping.min_delta:
            yield "train.early_stopping.min_delta: patience is null, so nothing stops early"
