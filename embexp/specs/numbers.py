"""Numeric columns: how a model gets their values."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import BeforeValidator, SerializerFunctionWrapHandler, WrapSerializer, model_validator

from embexp.specs.base import Number, Spec


class Transform(StrEnum):
    """What is done to the values of a numeric column."""

    NONE = "none"
    LOG1P = "log1p"
    """sign(x) · ln(1 + |x|), which is ln(1 + x) for counts, and defined for negative numbers too."""
    STANDARDIZE = "standardize"
    """(x - mean) / standard deviation."""
    QUANTILE = "quantile"
    """The rank of a value among those of the training split, from 0 to 1, as scikit-learn's `QuantileTransformer`
    has it: 1,000 quantiles, linear between them."""


class Fill(StrEnum):
    """What stands for a missing value."""

    ERROR = "error"
    """Nothing: a missing value ends the run."""
    ZERO = "zero"
    MEAN = "mean"
    MEDIAN = "median"


def _short(value: Any) -> Any:
    """`log1p` and `[log1p, standardize]` are short for a mapping with that transform."""
    return {"transform": value} if isinstance(value, str | list | tuple) else value


class NumericColumn(Spec):
    """How a model gets the values of a numeric column. All that is fitted is fitted on the training split."""

    transform: Transform | tuple[Transform, ...] = Transform.NONE
    """One, or several in their order."""
    missing: Fill | Number = Fill.ERROR
    """What a missing value counts as, before the transform: a statistic of the values that are there, or a number."""
    indicator: bool = False
    """A further column, behind this one, that is 1 where the value is missing, else 0."""

    @property
    def transforms(self) -> tuple[Transform, ...]:
        """Those that change anything."""
        several = (self.transform,) if isinstance(self.transform, Transform) else self.transform
        return tuple(each for each in several if each is not Transform.NONE)

    @property
    def may_be_missing(self) -> bool:
        """Whether there is something to stand for a missing value."""
        return self.missing is not Fill.ERROR

    @property
    def width(self) -> int:
        """How many columns the model gets for it."""
        return 1 + self.indicator

    @property
    def described(self) -> str:
        """Its settings for people, such as `standardize, missing mean, indicator`; "" for a plain column."""
        parts = [" of ".join(reversed(self.transforms))] if self.transforms else []
        parts += [f"missing {self.missing:g}" if isinstance(self.missing, float) else f"missing {self.missing}"] * (
            self.may_be_missing
        )
        return ", ".join([*parts, *["indicator"] * self.indicator])

    @property
    def plain(self) -> bool:
        """Whether the model gets the values as they are."""
        return not self.transforms and not self.may_be_missing

    @model_validator(mode="after")
    def _fits(self) -> NumericColumn:
        several = () if isinstance(self.transform, Transform) else self.transform
        if len(set(several)) < len(several):
            raise ValueError("transform names each transform once")
        if len(several) > 1 and Transform.NONE in several:
            raise ValueError("transform none stands alone")
        if len(several) > 1 and Transform.QUANTILE in several:
            raise ValueError("transform quantile stands alone: ranks are the same before and after the others")
        if several[:2] == (Transform.STANDARDIZE, Transform.LOG1P):
            raise ValueError("transform log1p comes before standardize: it is made for counts and amounts")
        if self.indicator and not self.may_be_missing:
            raise ValueError("indicator needs missing, as with missing: error no value may be missing (zero fits most)")
        return self


def _named(value: Any) -> Any:
    """A list of names, or nothing, as a mapping of names."""
    if value is None:
        return {}
    if not isinstance(value, list | tuple):
        return value
    for place, name in enumerate(value):
        if not isinstance(name, str):
            raise ValueError("it must be a list of names of columns, or a mapping of names")
        if name in value[:place]:
            raise ValueError(f"it names column {name!r} twice")
    return {name: {} for name in value}


def _written(columns: dict[str, NumericColumn], write: SerializerFunctionWrapHandler) -> Any:
    """A list of names if that says all, as earlier versions recorded it."""
    return list(columns) if all(column == NumericColumn() for column in columns.values()) else write(columns)


NumericColumns = Annotated[
    dict[str, Annotated[NumericColumn, BeforeValidator(_short)]],
    BeforeValidator(_named, json_schema_input_type=tuple[str, ...] | dict[str, NumericColumn] | None),
    WrapSerializer(_written),
]
"""Numeric columns by name, in the order in which the model gets them. A list of names is a mapping without settings."""
