"""Code that a recorded spec names: it is run only where the user allows it by name."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from embexp.errors import UsageError
from embexp.specs.models import KerasModel
from embexp.specs.run import RunSpec


def named(spec: RunSpec) -> tuple[str, ...]:
    """The functions of the user that a spec names, as `package.module:function`."""
    return (spec.model.function,) if isinstance(spec.model, KerasModel) else ()


def check(spec: RunSpec, allowed: Collection[str], *, record: Path) -> None:
    """Checks that the user allows the code that a recorded spec names.

    Args:
        spec: recorded, perhaps by somebody else.
        allowed: the functions that the user allows, from `--allow-code`.
        record: where the spec comes from.

    Raises:
        UsageError: a function isn't allowed, or one is allowed that the spec does not name.
    """
    functions = named(spec)
    if missing := [each for each in functions if each not in allowed]:
        options = " ".join(f"--allow-code {each}" for each in missing)
        raise UsageError(
            f"{record} names code to run, {', '.join(missing)} (model.function): look at it, and allow it by {options}"
        )
    if extra := [each for each in allowed if each not in functions]:
        names = f"only {', '.join(functions)}" if functions else "no code"
        raise UsageError(f"--allow-code {' '.join(extra)}: {record} names {names}")
