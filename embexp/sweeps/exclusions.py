"""`sweep.exclude`: which jobs are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from embexp.config.folders import Folders
from embexp.config.nearest import did_you_mean, listing
from embexp.config.shown import shown
from embexp.errors import Fault

Exclusion = Mapping[str, Any]

_ABSENT = object()


def excluding(exclusions: Sequence[Exclusion], made: Mapping[str, str | None], container: Mapping[str, Any]) -> str:
    """Why a job is left out, or "".

    Args:
        exclusions: a job that has all settings of one of them is left out.
        made: the choice of each group.
        container: the config of the job as plain values.
    """
    for exclusion in exclusions:
        if all(_has(key, value, made, container) for key, value in exclusion.items()):
            words = " ".join(f"{key}={shown(value).strip(chr(39))}" for key, value in exclusion.items())
            return f"excluded by sweep.exclude: {words}"
    return ""


def faults(
    exclusions: Sequence[Exclusion], folders: Folders, made: Mapping[str, str | None], container: Mapping[str, Any]
) -> list[Fault]:
    """Keys that are neither choices nor settings of a job, and choices that do not exist: they would exclude nothing.

    Args:
        exclusions: of the config.
        folders: with the choices of each group.
        made: the choice of each group, in a job.
        container: the config of the job as plain values.
    """
    if not exclusions:
        return []
    groups, found = folders.choices, []
    for number, exclusion in enumerate(exclusions):
        for key, value in exclusion.items():
            path = f"sweep.exclude.{number}.{key}"
            known = groups.get(key.partition("@")[0])
            if known is None and _at(container, key) is _ABSENT:
                near = did_you_mean(key, [*made, *container])
                found.append(Fault(path, shown(value), "there is no such group, and no such key in the config", near))
            elif known is not None and value is not None and str(value) not in known:
                rule = f"group {key.partition('@')[0]} has {listing(known)}"
                found.append(Fault(path, shown(value), rule, did_you_mean(str(value), known)))
    return found


def _has(key: str, value: Any, made: Mapping[str, str | None], container: Mapping[str, Any]) -> bool:
    if key in made:
        return made[key] == (None if value is None else str(value))
    found = _at(container, key)
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    return bool(found == value)


def _at(container: Mapping[str, Any], key: str) -> Any:
    value: Any = container
    for part in key.split("."):
        value = value.get(part, _ABSENT) if isinstance(value, Mapping) else _ABSENT
    return value
