"""What every part of a `RunSpec` shares: frozen, and no key beyond the declared ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from embexp.specs.partial import UnknownPartError


class Spec(BaseModel):
    """A frozen description without keys beyond the declared ones."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
    )

    if not TYPE_CHECKING:  # which would take any attribute for granted then

        def __getattr__(self, name: str) -> Any:
            """Asked for what is not there: a field that is not known, as in a spec only a part of which is."""
            if name in type(self).model_fields:
                raise UnknownPartError(name)
            return super().__getattr__(name)


Number = Annotated[float, Field(strict=True)]
"""Any finite number."""
Positive = Annotated[float, Field(gt=0, strict=True)]
NonNegative = Annotated[float, Field(ge=0, strict=True)]
Fraction = Annotated[float, Field(ge=0, lt=1, strict=True)]
"""A part of a whole, [0, 1)."""
Count = Annotated[int, Field(ge=1, strict=True)]
"""A whole number of at least 1."""
WholeNumber = Annotated[int, Field(ge=0, strict=True)]
"""A whole number of at least 0."""
