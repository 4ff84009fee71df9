"""Optimizers of embedding tables (names and defaults as in `tf.tpu.experimental.embedding`) and of dense layers.

Learning-rate schedules: a factor over steps that multiplies an optimizer's `learning_rate`.

`t` is the number of the step, from 0. Each schedule first rises linearly over `warmup_steps`
(factor (t + 1) / warmup_steps), and its own shape starts counting after that.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from embexp.errors import CombinationFault
from embexp.specs.base import (
    BY_KIND,
    Choice,
    Count,
    Fraction,
    NamedCode,
    NonNegative,
    Number,
    Positive,
    Spec,
    WholeNumber,
    broken,
)

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


class _Warm(Spec):
    warmup_steps: WholeNumber = 0
    """Steps of linear warm-up before the shape begins; 0 for none."""

    @property
    def reaches_zero(self) -> bool:
        """Whether the factor is 0 at some step."""
        return False


class ConstantSchedule(_Warm):
    """Factor 1 throughout (after the warm-up)."""

    kind: Literal["constant"] = "constant"


class ExponentialSchedule(_Warm):
    """decay_rate ** (t / decay_steps); with `staircase`, t / decay_steps is rounded down."""

    kind: Literal["exponential"] = "exponential"
    decay_steps: Count
    decay_rate: Positive
    staircase: bool = False


class CosineSchedule(_Warm):
    """alpha + (1 - alpha) * (1 + cos(pi * min(t / decay_steps, 1))) / 2 (Loshchilov & Hutter 2017)."""

    kind: Literal["cosine"] = "cosine"
    decay_steps: Count | None = None
    """Steps until the factor is `alpha`; null: to the end of the run."""
    alpha: Fraction = 0.0

    @property
    def reaches_zero(self) -> bool:
        """Whether it may go on after `decay_steps` with a factor of 0; at the last step of a run it is above 0."""
        return self.alpha == 0 and self.decay_steps is not None


class PiecewiseSchedule(_Warm):
    """values[i] while t < boundaries[i]; the last value afterwards."""

    kind: Literal["piecewise"] = "piecewise"
    boundaries: tuple[Count, ...]
    values: tuple[NonNegative, ...]

    @model_validator(mode="after")
    def _shape(self) -> PiecewiseSchedule:
        if len(self.values) != len(self.boundaries) + 1:
            raise broken("values must have one more number than boundaries", "boundaries", "values")
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise broken("boundaries must be strictly increasing", "boundaries")
        return self

    @property
    def reaches_zero(self) -> bool:
        """Whether one of the values is 0."""
        return 0 in self.values


Schedule = Annotated[
    ConstantSchedule | ExponentialSchedule | CosineSchedule | PiecewiseSchedule,
    BY_KIND,
]


class DecayPer(StrEnum):
    """How often a row decays."""

    TOUCH = "touch"
    """In each step that looks it up: rows of frequent values decay more often than those of rare ones."""
    EPOCH = "epoch"
    """As often in an epoch whatever its frequency: a step's decay is divided by the number of the epoch's steps that
    are expected to look the row up."""


class _TableOptimizer(Choice):
    """Base class of table optimizers, which update each touched row once per step.

    The implementation is a pure function of rows, slots, gradients and learning rate, see `embexp.tables.optimizers`.
    """

    kind: str
    tensorflow: ClassVar[str | None] = None
    """Name in `tf.tpu.experimental.embedding`, with arguments that are named as the settings; None: it has none."""
    learning_rate: Positive
    schedule: Schedule = ConstantSchedule.model_construct()
    """Factor on `learning_rate` over the steps."""
    clip_weight_min: Number | None = None
    """Touched weights are raised to at least this after the update; null: no bound."""
    clip_weight_max: Number | None = None
    """Touched weights are lowered to at most this after the update; null: no bound."""
    clipvalue: Positive | tuple[Number, Number] | None = None
    """Each element of a row's summed gradient is clipped to [-c, c] or [low, high]; null: not clipped."""
    clipnorm: Positive | None = None
    """A row's summed gradient is scaled down to this L2 norm where it is longer, after `clipvalue`; null: never."""
    weight_decay_factor: NonNegative = 0.0
    """Decoupled weight decay of touched rows, before the step: w -= factor * w."""
    multiply_weight_decay_factor_by_learning_rate: bool = False
    """Makes the decay w -= factor * learning rate * w."""
    weight_decay_per: DecayPer = DecayPer.TOUCH
    """touch: each step that looks a row up decays it. epoch: all rows decay alike in an epoch, rare and frequent."""

    @model_validator(mode="after")
    def _bounds(self) -> _TableOptimizer:
        low, high = self.clip_weight_min, self.clip_weight_max
        if low is not None and high is not None and low > high:
            raise broken("clip_weight_min must not exceed clip_weight_max", "clip_weight_min", "clip_weight_max")
        if isinstance(self.clipvalue, tuple) and self.clipvalue[0] > self.clipvalue[1]:
            raise broken("clipvalue's lower bound must not exceed its upper bound", "clipvalue")
        return self

    slot_values: ClassVar[dict[str, float | str]] = {}
    """Initial values of its slots, or the settings that are these, by the names that TPUEmbedding gives the slots."""
    row_slots: ClassVar[frozenset[str]] = frozenset()
    """Those of its slots that have one number for each row; others have one for each parameter."""

    @property
    def initial_slots(self) -> dict[str, float]:
        """Its slots, with their initial values."""
        named = self.slot_values.items()
        return {slot: getattr(self, value) if isinstance(value, str) else value for slot, value in named}

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[CombinationFault]:
        """What a TPU, which has its own rules, does not do; decay by epoch where negatives are looked up, too."""
        if self.decays_per_epoch and spec.task.labels is None:
            rule = (
                f"task {spec.task} also looks rows up as negatives, so the data doesn't say how often each is looked up"
            )
            value = str(self.weight_decay_per)
            yield CombinationFault(f"{scope.path}.weight_decay_per", value, rule, "set it to touch")
        if not spec.strategy.own_memory:
            return
        if self.tensorflow is None:
            rule = "a TPU can't update tables with this optimizer"
            yield CombinationFault(scope.path, self.kind, rule, "choose another optimizer or another strategy")
        if self.decays_per_epoch:
            rule = "a TPU decays a row at every step that looks it up"
            value = str(self.weight_decay_per)
            yield CombinationFault(
                f"{scope.path}.weight_decay_per", value, rule, "choose optimizer=adagrad, or strategy=cpu"
            )
        if self.clipnorm is not None:
            rule = "a TPU clips each element of a gradient, not the norm of a row's gradient gradient"
            yield CombinationFault(f"{scope.path}.clipnorm", f"{self.clipnorm:g}", rule, "set clipvalue instead")
        if spec.strategy.sparse_cores_wanted:
            yield from self.beyond_sparse_cores(scope.path)

    def beyond_sparse_cores(self, path: str) -> Iterator[CombinationFault]:
        """Its settings that SparseCores can't honour, because `TPUEmbeddingV2` refuses or ignores them.

        Args:
            path: config path of the optimizer.
        """
        settings = {name: getattr(self, name) for name in ("clip_weight_min", "clip_weight_max", "clipvalue")}
        unset = {name: "null" for name, value in settings.items() if value is not None}
        for name, value in (unset | ({"lazy_adam": "true"} if self.moves_every_row else {})).items():
            rule = "TensorFlow's TPUEmbeddingV2, which updates rows on SparseCores, has no such setting"
            remedy = f"set it to {value}, or set strategy=cpu"
            yield CombinationFault(f"{path}.{name}", str(getattr(self, name)), rule, remedy)
        if self.weight_decay_factor:
            yield from self._undecayed_on_sparse_cores(path)

    def _undecayed_on_sparse_cores(self, path: str) -> Iterator[CombinationFault]:
        rule = "SparseCores apply weight decay as part of the gradient, which is exact only for the rule of sgd"
        remedy = "choose optimizer=sgd, set it to 0, or set strategy=cpu"
        yield CombinationFault(f"{path}.weight_decay_factor", f"{self.weight_decay_factor:g}", rule, remedy)

    @property
    def without_decay(self) -> Self:
        """The same optimizer without weight decay."""
        decay = ("weight_decay_factor", "multiply_weight_decay_factor_by_learning_rate", "weight_decay_per")
        return self.model_copy(update={name: type(self).model_fields[name].default for name in decay})

    @property
    def decays_per_epoch(self) -> bool:
        """Whether rows decay, and each as much in an epoch as any other."""
        return self.weight_decay_per is DecayPer.EPOCH and self.weight_decay_factor > 0

    @property
    def moves_every_row(self) -> bool:
        """Whether a step moves rows that the batch did not touch, at a cost of O(vocabulary)."""
        return False

    def inert(self, path: str) -> Iterator[str]:
        """Settings without effect, each as `config path: reason`."""
        if self.multiply_weight_decay_factor_by_learning_rate and not self.weight_decay_factor:
            yield f"{path}.multiply_weight_decay_factor_by_learning_rate: weight_decay_factor is 0"
        if self.weight_decay_per is DecayPer.EPOCH and not self.weight_decay_factor:
            yield f"{path}.weight_decay_per: weight_decay_factor is 0"


class SGD(_TableOptimizer):
    """w -= lr * g."""

    kind: Literal["sgd"] = "sgd"
    implementation = "embexp.tables.optimizers:sgd"
    tensorflow = "SGD"
    learning_rate: Positive = 0.01

    def _undecayed_on_sparse_cores(self, path: str) -> Iterator[CombinationFault]:
        """A decay that goes on at a learning rate of 0, which no gradient does."""
        if self.schedule.reaches_zero and not self.multiply_weight_decay_factor_by_learning_rate:
            rule = (
                "SparseCores apply weight decay as part of the gradient, but the schedule makes the learning rate 0,"
                " where no gradient moves a row"
            )
            remedy = "set it to true, keep the schedule above 0, or set strategy=cpu"
            yield CombinationFault(f"{path}.multiply_weight_decay_factor_by_learning_rate", "False", rule, remedy)


FROZEN_ROWS_OPTIMIZER = SGD(learning_rate=1.0)
"""The optimizer of frozen rows on a TPU, where their gradients are zeros."""


class Adagrad(_TableOptimizer):
    """a += g^2; w -= lr * g / sqrt(a)."""

    kind: Literal["adagrad"] = "adagrad"
    implementation = "embexp.tables.optimizers:adagrad"
    tensorflow = "Adagrad"
    learning_rate: Positive = 0.001
    initial_accumulator_value: Positive = 0.1
    slot_values: ClassVar = {"accumulators": "initial_accumulator_value"}


class RowwiseAdagrad(_TableOptimizer):
    """a += mean of g^2 over the row; w -= lr * g / (sqrt(a) + epsilon), with one number a for each row."""

    kind: Literal["rowwise_adagrad"] = "rowwise_adagrad"
    implementation = "embexp.tables.optimizers:rowwise_adagrad"
    learning_rate: Positive = 0.001
    initial_accumulator_value: NonNegative = 0.0
    epsilon: Positive = 1e-8
    slot_values: ClassVar = {"row_accumulators": "initial_accumulator_value"}
    row_slots: ClassVar = frozenset({"row_accumulators"})


class AdagradMomentum(_TableOptimizer):
    """a = a + g^2 (or beta2-averaged); m = momentum * m + (a + epsilon)^(-1/exponent) * g; w -= lr * m."""

    kind: Literal["adagrad_momentum"] = "adagrad_momentum"
    implementation = "embexp.tables.optimizers:adagrad_momentum"
    tensorflow = "AdagradMomentum"
    learning_rate: Positive = 0.001
    momentum: Fraction = 0.0
    use_nesterov: bool = False
    exponent: Positive = 2.0
    beta2: Annotated[float, Field(gt=0, le=1, strict=True)] = 1.0
    """1: the squares are summed; below 1: they are averaged exponentially."""
    epsilon: Positive = 1e-10
    slot_values: ClassVar = {"accumulators": 0.0, "momenta": 0.0}

    def inert(self, path: str) -> Iterator[str]:
        """Nesterov's form without momentum."""
        yield from super().inert(path)
        if self.use_nesterov and not self.momentum:
            yield f"{path}.use_nesterov: momentum is 0"


class Adam(_TableOptimizer):
    """Adam without bias correction, as a TPU computes it."""

    kind: Literal["adam"] = "adam"
    implementation = "embexp.tables.optimizers:adam"
    tensorflow = "Adam"
    learning_rate: Positive = 0.001
    beta_1: Fraction = 0.9
    beta_2: Fraction = 0.999
    epsilon: Positive = 1e-7
    lazy_adam: bool = True
    """True: touched rows only. False: every row every step, at a cost of O(vocabulary)."""
    sum_inside_sqrt: bool = True
    """sqrt(v + epsilon^2) when true, sqrt(v) + epsilon when false."""
    slot_values: ClassVar = {"momenta": 0.0, "velocities": 0.0}

    @property
    def moves_every_row(self) -> bool:
        """Whether it is not lazy."""
        return not self.lazy_adam


class FTRL(_TableOptimizer):
    """Follow the regularised leader (McMahan et al. 2013)."""

    kind: Literal["ftrl"] = "ftrl"
    implementation = "embexp.tables.optimizers:ftrl"
    tensorflow = "FTRL"
    learning_rate: Positive = 0.001
    learning_rate_power: Annotated[float, Field(le=0, strict=True)] = -0.5
    l1_regularization_strength: NonNegative = 0.0
    l2_regularization_strength: NonNegative = 0.0
    beta: NonNegative = 0.0
    initial_accumulator_value: Positive = 0.1
    multiply_linear_by_learning_rate: bool = False
    slot_values: ClassVar = {"accumulators": "initial_accumulator_value", "linears": 0.0}


class CustomTableOptimizer(NamedCode, _TableOptimizer):
    """The user's own rule: `function(rows, slots, gradients, learning_rate, **args)` returns rows and slots."""

    kind: Literal["custom"] = "custom"
    implementation = "embexp.tables.optimizers:custom"
    slots: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=200)], Number] = Field(
        default_factory=dict
    )
    """Numbers that it keeps for each parameter, by name, with their initial values."""

    @property
    def initial_slots(self) -> dict[str, float]:
        """Those of the config."""
        return dict(self.slots)


TableOptimizer = Annotated[
    SGD | Adagrad | RowwiseAdagrad | AdagradMomentum | Adam | FTRL | CustomTableOptimizer, BY_KIND
]


def slots_of(optimizer: TableOptimizer) -> dict[str, float]:
    """Slots of an optimizer, by the names that TPUEmbedding gives them, with their initial values."""
    return optimizer.initial_slots


class _DenseOptimizer(Choice):
    """Base class of the optimizers of dense layers; the implementation takes the learning rate, or its schedule."""

    kind: str
    slots: ClassVar[int]
    """Numbers that it keeps for each weight."""
    learning_rate: Positive
    schedule: Schedule = ConstantSchedule.model_construct()


class _KerasOptimizer(_DenseOptimizer):
    """Base class of those of Keras."""

    clipnorm: Positive | None = None
    """Each gradient's norm is clipped to this; null: not clipped."""
    weight_decay: NonNegative = 0.0
    """Keras' decoupled weight decay, times the learning rate."""


class DenseSGD(_KerasOptimizer):
    """keras.optimizers.SGD."""

    kind: Literal["sgd"] = "sgd"
    implementation = "embexp.training.models:sgd"
    slots = 0
    learning_rate: Positive = 0.01
    momentum: Fraction = 0.0
    nesterov: bool = False


class DenseAdagrad(_KerasOptimizer):
    """keras.optimizers.Adagrad."""

    kind: Literal["adagrad"] = "adagrad"
    implementation = "embexp.training.models:adagrad"
    slots = 1
    learning_rate: Positive = 0.001
    initial_accumulator_value: Positive = 0.1
    epsilon: Positive = 1e-7


class DenseAdam(_KerasOptimizer):
    """keras.optimizers.Adam."""

    kind: Literal["adam"] = "adam"
    implementation = "embexp.training.models:adam"
    slots = 2
    learning_rate: Positive = 0.001
    beta_1: Fraction = 0.9
    beta_2: Fraction = 0.999
    epsilon: Positive = 1e-7


class CustomDenseOptimizer(NamedCode, _DenseOptimizer):
    """The user's own function: `function(learning_rate, **args)` returns a `keras.optimizers.Optimizer`."""

    kind: Literal["custom"] = "custom"
    implementation = "embexp.training.models:custom_optimizer"
    slots = 2
    """What most have."""


DenseOptimizer = Annotated[DenseSGD | DenseAdagrad | DenseAdam | CustomDenseOptimizer, BY_KIND]
