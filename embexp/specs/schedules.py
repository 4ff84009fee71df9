"""Learning-rate schedules: a factor over steps that multiplies an optimizer's `learning_rate`.

`t` is the number of the step, from 0. Each schedule first rises linearly over `warmup_steps`
(factor (t + 1) / warmup_steps), and its own shape starts counting after that.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from embexp.specs.base import Count, Fraction, NonNegative, Positive, Spec, WholeNumber


class _Warm(Spec):
    warmup_steps: WholeNumber = 0
    """Steps of linear warm-up before the shape begins; 0 for none."""


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


class PiecewiseSchedule(_Warm):
    """values[i] while t < boundaries[i]; the last value afterwards."""

    kind: Literal["piecewise"] = "piecewise"
    boundaries: tuple[Count, ...]
    values: tuple[NonNegative, ...]

    @model_validator(mode="after")
    def _shape(self) -> PiecewiseSchedule:
        if len(self.values) != len(self.boundaries) + 1:
            raise ValueError("values must have one number more than boundaries")
        if list(self.boundaries) != sorted(set(self.boundaries)):
            raise ValueError("boundaries must rise strictly")
        return self


Schedule = Annotated[
    ConstantSchedule | ExponentialSchedule | CosineSchedule | PiecewiseSchedule,
    Field(discriminator="kind"),
]
