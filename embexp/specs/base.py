"""What every part of a `RunSpec` shares: frozen, and no key beyond the declared ones."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Spec(BaseModel):
    """A frozen, strict-keyed description. Field descriptions become the help of the JSON schema."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        use_attribute_docstrings=True,
        allow_inf_nan=False,
    )


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
