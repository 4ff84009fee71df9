"""What a run restores from another checkpoint before its first step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from embexp.errors import CombinationFault, Fault
from embexp.specs.base import Spec
from embexp.specs.partial import where_known
from embexp.specs.running import RuntimeKind

if TYPE_CHECKING:
    from embexp.specs.run import RunSpec
    from embexp.specs.scope import Scope

Key = Annotated[str, Field(min_length=1)]


class Restoring(Spec):
    """Variables restored from a checkpoint, of whatever program, after tables and model have their initial values."""

    path: Key | None = None
    """The checkpoint; null: nothing is restored."""
    only: Annotated[tuple[Key, ...], Field(min_length=1)] | None = None
    """Paths or names of what to restore; null: everything."""
    rename: dict[Key, Key] = Field(default_factory=dict)
    """The path or name in this run, by that in the checkpoint."""

    def faults(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        """Settings without a checkpoint, and a runtime that can't restore."""
        return where_known(self._without_effect(scope), self._not_in_estimators(spec, scope))

    def _without_effect(self, scope: Scope) -> Iterator[Fault]:
        if self.path is None:
            renamed = ", ".join(f"{key}: {name}" for key, name in self.rename.items())
            for name, value in (("only", f"[{', '.join(self.only or ())}]"), ("rename", f"{{{renamed}}}")):
                if getattr(self, name):
                    rule = "it has no effect, as restore.path is null"
                    yield Fault(f"{scope.path}.{name}", value, rule, "set restore.path to a checkpoint")

    def _not_in_estimators(self, spec: RunSpec, scope: Scope) -> Iterator[Fault]:
        if self.path is not None and spec.executing_runtime is RuntimeKind.ESTIMATOR:
            yield CombinationFault(
                f"{scope.path}.path",
                repr(self.path),
                "an Estimator restores only its own checkpoints",
                "choose runtime=session, or runtime=function",
            )
