"""The base class of every part of a `RunSpec`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from embexp.errors import Fault
from embexp.specs.bounds import ANY
from embexp.specs.partial import UnknownPartError

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class Spec(BaseModel):
    """A frozen part of a spec. It has no undeclared keys, and rules that compare it with other parts.

    pydantic builds the validator of `RunSpec` once, with those of all its parts inside. A part gets one of its own only
    where it is validated alone; so defaults are made by `model_construct`, which needs none.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
        defer_build=True,
    )

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Faults of this part in combination with the rest of the run; pydantic checks the part alone.

        Args:
            spec: the run. It may be partial: reading an unknown part raises `UnknownPartError`, which ends the rule.
                Rules that read different parts are therefore separate generators: see `where_known`.
            scope: the config path of this part.
        """
        return iter(())

    if not TYPE_CHECKING:  # mypy would accept any attribute

        def __getattr__(self, name: str) -> Any:
            """Raises `UnknownPartError` for fields that a partial spec lacks."""
            if name in type(self).model_fields:
                raise UnknownPartError(name)
            return super().__getattr__(name)


Number = Annotated[float, Field(strict=True)]
"""Any finite number."""
Positive = Annotated[float, Field(gt=0, strict=True)]
NonNegative = Annotated[float, Field(ge=0, strict=True)]
Fraction = Annotated[float, Field(ge=0, lt=1, strict=True)]
"""A fraction, [0, 1)."""
Count = Annotated[int, Field(ge=1, le=ANY, strict=True)]
"""A whole number of at least 1; `bounds` has those that are smaller."""
WholeNumber = Annotated[int, Field(ge=0, le=ANY, strict=True)]
"""A whole number of at least 0."""
