"""Code that a recorded spec names: it is run only where the user allows it by name.

A folder with a run may come from anybody, and so may a folder that looks like one of the user's own: all are treated
alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path

from embexp.errors import UsageError
from embexp.specs.base import named_code
from embexp.specs.run import RunSpec


def named(spec: RunSpec) -> tuple[str, ...]:
    """The functions of the user that a spec names, as `package.module:function`."""
    return tuple(named_by_all([spec]))


def named_by_all(specs: Iterable[RunSpec]) -> dict[str, str]:
    """The functions that specs, as those of a sweep, name, each with its config path."""
    return {part.function: f"{path}.function" for spec in specs for path, part in named_code(spec)}


def check(spec: RunSpec, allowed: Collection[str], *, record: Path) -> None:
    """Checks that the user allows the code that a recorded spec names.

    Args:
        allowed: the functions that the user allows, from `--allow-code`.

    Raises:
        UsageError: a function isn't allowed, or one is allowed that the spec does not name.
    """
    check_names(named_by_all([spec]), allowed, record=str(record))


def check_names(names: dict[str, str], allowed: Collection[str], *, record: str) -> None:
    """Checks that the user allows functions and classes that a record names.

    Args:
        names: the config path of each.
        allowed: what the user allows, from `--allow-code`.

    Raises:
        UsageError: one isn't allowed, or one is allowed that the record does not name.
    """
    if missing := [each for each in names if each not in allowed]:
        options = " ".join(f"--allow-code {each}" for each in missing)
        paths = ", ".join(dict.fromkeys(names[each] for each in missing))
        raise UsageError(
            f"{record} names code to run, {', '.join(missing)} ({paths}): look at it, and allow it by {options}"
        )
    if extra := [each for each in allowed if each not in names]:
        known = f"only {', '.join(names)}" if names else "no code"
        raise UsageError(f"--allow-code {' '.join(extra)}: {record} names {known}")
