"""The base class of models and the rules for inputs that they share; the user's own model.

Rules for inputs are shared by the config's check, the run, and the model's function.

The loss of a run, and the user's own metrics.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import BeforeValidator, Field

from embexp.errors import Fault
from embexp.specs.base import FUNCTION, Choice, Dim, Fraction, NamedCode, NonNegative, is_null

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


class Activation(StrEnum):
    """Non-linearity of hidden layers."""

    RELU = "relu"
    GELU = "gelu"
    SILU = "silu"
    TANH = "tanh"


Widths = tuple[Dim, ...]
DENSE = "dense.features"
"""Name of the input of dense features, float32 [B, n]. A feature's name has no dot, so none can clash with it."""
Shapes = Mapping[str, tuple[int | None, ...]]
"""Shape of each feature's activation without the batch: (dim,) when combined, (length, dim) when a sequence."""


class DenseModel(Choice):
    """Base class of models; the implementation takes symbolic activations and a `Head`, see `training.models`."""

    kind: str
    has_weights: ClassVar[bool] = True
    """Whether it has weights outside the tables."""

    in_step: ClassVar[str] = ""
    """`module:function` from the built model, this and the inputs of a run to the parts of `training.step.Step` that
    only such models have, by name; "": they have none."""

    def settled(self, spec: RunSpec, *, rows: Mapping[str, int], examples: int) -> Self:
        """The same model with settings that follow from the data, such as a temperature by the number of items.

        Args:
            rows: of each table.
            examples: of the training split; 0: no training.
        """
        return self

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """Widths of consecutive hidden layers by config path; for a convolution, its numbers of feature maps."""
        return {}

    def input_shapes(self, shapes: Shapes) -> Shapes:
        """The input shapes of the built model, from the shapes of the features; see `training.models`."""
        return shapes

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """The reasons why it can't take these inputs, under `model.`, `features.` and `data.`.

        Args:
            classes: whether it must return a logit per class, as task classification requires.
        """
        return iter(())

    def inert(self, spec: RunSpec) -> Iterator[str]:
        """Settings without effect, each as `config path: reason`."""
        return iter(())


class MLP(DenseModel):
    """All activations and dense features, concatenated, through hidden layers to the logit."""

    kind: Literal["mlp"] = "mlp"
    implementation = "embexp.training.models:mlp"
    hidden: Widths = (64,)
    activation: Activation = Activation.RELU
    dropout: Fraction = 0.0

    @property
    def hidden_widths(self) -> dict[str, Sequence[int]]:
        """Its hidden layers."""
        return {"model.hidden": self.hidden}

    def input_shapes(self, shapes: Shapes) -> Shapes:
        """The input shapes of the built model, from the shapes of the features; see `training.models`."""
        return shapes

    def input_faults(self, shapes: Shapes, dense_width: int, classes: bool = False) -> Iterator[Fault]:
        """Sequences of unknown length."""
        return length_faults(self.kind, shapes)


class KerasModel(NamedCode, DenseModel):
    """The user's own function, which returns a `keras.Model`."""

    kind: Literal["keras"] = "keras"
    implementation = "embexp.training.models:own"


def unknown_features(named: Mapping[str, Sequence[str]], shapes: Shapes) -> Iterator[Fault]:
    """Features that the settings of a model name and the run lacks."""
    for key, names in named.items():
        for name in names:
            if name not in shapes:
                near = difflib.get_close_matches(name, shapes, n=1)
                remedy = f"did you mean {near[0]!r}?" if near else f"the features are {listed(shapes)}"
                yield Fault(f"model.{key}", repr(name), "this run has no such feature", remedy)


def unused_features(kind: str, named: Mapping[str, Sequence[str]], shapes: Shapes) -> Iterator[Fault]:
    """Features of the run that no setting of a model names, but for those that a misspelt name means."""
    names = [name for names in named.values() for name in names]
    meant = [difflib.get_close_matches(name, shapes, n=1) for name in names if name not in shapes]
    used = {*names, *(near for found in meant for near in found)}
    *keys, last = (f"model.{key}" for key in named)
    for name in shapes:
        if name not in used:
            rule = f"every feature must be used, but {kind} uses only those that its settings name"
            remedy = f"add {name!r} to {', '.join(keys)} or {last}, or remove the feature"
            yield Fault(f"features.{name}", "unused", rule, remedy)


def bias_faults(path: str, names: Sequence[str], shapes: Shapes) -> Iterator[Fault]:
    """Features of several numbers that a setting names as biases."""
    for name in names:
        if name in shapes and tuple(shapes[name]) != (1,):
            yield Fault(path, repr(name), f"a bias has dim 1, but {name!r} gives {shape_text(shapes[name])}")


def dense_faults(kind: str, dense_width: int, remedy: str) -> Iterator[Fault]:
    """Dense features, where a model takes none."""
    if dense_width:
        yield Fault("data.dense_features", f"{dense_width} columns", f"{kind} takes no dense features", remedy)


def vector_faults(kind: str, shapes: Shapes) -> Iterator[Fault]:
    """Faults unless there is one vector per feature, all of one dim."""
    yield from sequence_faults(kind, shapes)
    dims = {name: shape[-1] for name, shape in shapes.items()}
    if len(set(dims.values())) > 1:
        found = ", ".join(f"{name} {dim}" for name, dim in dims.items())
        yield Fault("model", kind, f"the vectors that it multiplies must have the same dim, but they have {found}")


def sequence_faults(kind: str, shapes: Shapes) -> Iterator[Fault]:
    """Sequences of vectors, where a model takes one vector per feature."""
    for name, shape in shapes.items():
        if len(shape) != 1:
            rule = f"{kind} takes one vector per feature"
            remedy = f"set features.{name}.max_sequence_length to 0 and leave output_shape unset, or choose model=mlp"
            yield Fault(f"features.{name}", f"a sequence of shape {shape_text(shape)}", rule, remedy)


def length_faults(kind: str, shapes: Shapes) -> Iterator[Fault]:
    """Sequences of unknown length, where a model concatenates all activations."""
    for name, shape in shapes.items():
        if None in shape:
            rule = f"{kind} concatenates all activations, so their length must be known"
            remedy = f"set features.{name}.max_sequence_length"
            yield Fault(f"features.{name}", f"activations of shape {shape_text(shape)}", rule, remedy)


def shape_text(shape: tuple[int | None, ...]) -> str:
    """The shape of a batch of activations in words, such as `[B, 4, 16]`."""
    return "[B, " + ", ".join("?" if size is None else str(size) for size in shape) + "]"


def listed(names: Mapping[str, object]) -> str:
    """The names in their order, separated by commas."""
    return ", ".join(sorted(names)) or "none"


Model = DenseModel
"""Any model: those of the core, and those that fields bring."""


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
            rule = f"it takes labels and logits of examples, but task {spec.task} compares candidates"
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
