"""Which code a config may name: that of the user's own modules, and what the user allows by name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from embexp.system import user_code


@dataclass(frozen=True)
class Permission:
    """What a config may name.

    Attributes:
        allowed: functions and classes that the user allows, as `package.module:name`.
        own: whether the user's own modules may be named without that; a config that a sweep has recorded may not.
    """

    allowed: frozenset[str] = frozenset()
    own: bool = True

    def refusal(self, function: str) -> str:
        """Why a config may not name a function or a class, without a full stop; "" if it may.

        Args:
            function: `package.module:name`.
        """
        if function in self.allowed:
            return ""
        if not self.own:
            return "what the folder of a sweep has recorded is not trusted to name code"
        why = user_code.foreign(function)
        return f"{why}, and a config may name code of your own modules only" if why else ""

    def remedy(self, function: str) -> str:
        """What to do about a refusal."""
        module = function.partition(":")[0].partition(".")[0]
        hidden = [each for each in (Path(f"{module}.py"), Path(module)) if each.exists()] if self.own else []
        hint = f"rename {hidden[0]}, which that hides; or, " if hidden else ""
        return f"{hint}if you want it to be run, allow it: --allow-code {function}"


OWN_MODULES = Permission()
"""The user's own modules, and nothing else."""
