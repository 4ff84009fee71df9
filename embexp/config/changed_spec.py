"""The spec of a run with some settings changed, to resume it with, or to run it again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from embexp.config import overrides as parsing
from embexp.config.loader import Loader
from embexp.config.shown import shown
from embexp.config.validate import validate, with_sources
from embexp.errors import ConfigError, Fault
from embexp.specs import run
from embexp.specs.run import RunSpec

CHANGEABLE = ("train.steps", "train.epochs", "output", "checkpoint", "tracking")
"""Settings of a recorded run that may change: its length, and those that change no result."""


RESUMED = "a run is resumed with the settings that it began with"


def changed_spec(spec: RunSpec, texts: Sequence[str], loader: Loader, *, rule: str = RESUMED) -> RunSpec:
    """A recorded spec with overrides.

    Args:
        spec: of the run.
        texts: overrides such as `train.epochs=40`.
        loader: parses them.
        rule: why other settings can't change, for the error message.

    Raises:
        ConfigError: with all faults; an override of anything that decides the results before the resumption is one.
    """
    parsed, faults = parsing.parse(loader, texts)
    container: dict[str, Any] = spec.model_dump(mode="json")
    for override in parsed:
        path = override.key_or_group
        if not any(path == each or path.startswith(f"{each}.") for each in CHANGEABLE):
            faults.append(_unchangeable(path, shown(override.value()), container, rule))
            continue
        _set(container, path.split("."), override.value())
    if faults:
        raise ConfigError(faults)
    changed, faults = validate(container)
    if changed is not None:
        faults += run.rule_faults(changed)
    if changed is None or faults:
        raise ConfigError(with_sources(faults, lambda path: "an override"))
    return changed


def _set(container: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    """Sets a value; what is no mapping on the way becomes one, so that validation reports the path."""
    node = container
    for key in keys[:-1]:
        if not isinstance(node.get(key), dict):
            node[key] = {}
        node = node[key]
    node[keys[-1]] = value


def _unchangeable(path: str, value: str, container: Any, rule: str) -> Fault:
    node: Any = container
    for key in path.split("."):
        node = node.get(key) if isinstance(node, dict) else None
    was = "" if node is None else f" (it is {shown(node)})"
    return Fault(
        path,
        value,
        f"{rule}{was}",
        f"only {', '.join(CHANGEABLE)} can change; start a new run for anything else",
    )
