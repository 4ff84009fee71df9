"""What every part of a `RunSpec` shares: frozen, no key beyond the declared ones, and rules of its own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from embexp.errors import Fault
from embexp.specs.partial import UnknownPartError

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope


class Spec(BaseModel):
    """A frozen description without keys beyond the declared ones."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        allow_inf_nan=False,
    )

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """What is wrong between this part and the rest of the run; what it requires by itself, its fields say.

        Args:
            spec: the run, which may be known in part: asking for another part raises `UnknownPartError` and ends the
                rule. Rules that need different parts are therefore generators of their own: see `where_known`.
            scope: where this part stands.
        """
        return iter(())

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
