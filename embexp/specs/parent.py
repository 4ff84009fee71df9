"""The run that another one goes on from: what its data decided stays decided, and other data add to it."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from embexp.errors import Fault
from embexp.specs.base import Count, Spec, is_null
from embexp.specs.pretrained import Checkpoint

if TYPE_CHECKING:
    from embexp.specs.base import Scope
    from embexp.specs.run import RunSpec


class Schedules(StrEnum):
    """Where learning-rate schedules begin."""

    RESTART = "restart"
    """At step 0 of this run."""
    CONTINUE = "continue"
    """At the step at which the parent ended."""


class Classes(StrEnum):
    """What a label with a class is that the parent does not know."""

    SAME = "same"
    """An error."""
    EXTEND = "extend"
    """A further class: the last layer grows."""


class Gone(Spec):
    """Tokens that have not been seen for a while lose their rows."""

    after: Count
    """Number of runs in a row, this one included, whose training data lacked a token before its row goes."""


class Parent(Spec):
    """What a run takes over from an earlier one, its parent, of the same columns."""

    path: Annotated[str, Field(min_length=1)] | None = None
    """Directory of the parent; null: the run has none, and nothing else here has an effect."""
    gone: Literal["keep"] | Gone = "keep"
    """Rows of tokens that the data no longer hold: all are kept, or they go after some runs."""
    classes: Classes = Classes.SAME
    """What a label with an unknown class is."""
    schedules: Schedules = Schedules.RESTART
    """Where learning-rate schedules begin."""
    replay: Annotated[float, Field(ge=0, lt=1, strict=True)] = 0.0
    """Share of the training examples that are drawn from the training data of the parent and of the runs before it."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """A parent whose rows the run does not take."""
        if self.path is None:
            return
        yield from _no_replay(self, spec, scope)
        if isinstance(self.gone, Gone) and spec.data.token_rules is None:
            rule = f"rows of data={spec.data.kind} can't be dropped: only columns and texts support that"
            yield Fault(f"{scope.path}.gone", f"after {self.gone.after}", rule, "set it to keep")
        top = spec.pretrained
        if not isinstance(top, Checkpoint) or top.path != self.path:
            rule = "a run that continues another one takes its rows and its dense part from it"
            remedy = f"choose pretrained=checkpoint pretrained.path={self.path}, or run embexp continue {self.path}"
            yield Fault(f"{scope.path}.path", repr(self.path), rule, remedy)


def _no_replay(parent: Parent, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
    """Earlier examples, where ids have weights."""
    weighted = [name for name, each in spec.features.items() if each.weights is not None]
    if parent.replay and weighted:
        rule = f"earlier examples are mixed in without id weights, but feature {weighted[0]} has weights"
        yield Fault(f"{scope.path}.replay", str(parent.replay), rule, "set it to 0")


def is_absent(parent: Parent) -> bool:
    """For the field of specs, which records lack where there is no parent."""
    return is_null(parent.path)
