"""Validates a plain container: returns a `RunSpec` or all faults."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from embexp.config import pydantic_errors
from embexp.config.grammar import Models, chosen, kind_of, models_at
from embexp.config.nearest import did_you_mean, listing
from embexp.config.shown import shown
from embexp.errors import Fault
from embexp.specs.run import RunSpec

_MOVED = {"output.checkpoint": "it is checkpoint.save now: training, end or never"}
"""Keys of earlier versions, and what replaces them."""


_OF_FILES = ("defaults", "hydra")
"""Keys that a file may have at its top, and that no config keeps."""


def validate(container: Mapping[str, Any], *, reported: Collection[str] = ()) -> tuple[RunSpec | None, list[Fault]]:
    """Validates a whole config.

    Args:
        container: plain dicts, lists and scalars.
        reported: paths with faults that are already reported.

    Returns:
        The spec and no faults, or None and all faults.
    """
    try:
        return RunSpec.model_validate(container), []
    except ValidationError as error:
        faults = [_fault(each, container) for each in error.errors()]
    try:
        RunSpec.model_validate(known_keys(container))  # at an unknown key pydantic skips the rules between keys
    except ValidationError as error:
        faults += [_fault(each, container) for each in error.errors()]
    meant = {path for fault in faults for path in _meant(fault)}
    return None, [fault for fault in _merged(faults) if fault.path not in reported and not _follows(fault, meant)]


def _meant(fault: Fault) -> Iterator[str]:
    """The keys that a misspelt one may have been meant for."""
    place, dot, key = fault.path.rpartition(".")
    if fault.remedy.startswith("did you mean ") and f"has no key {key!r}" in fault.rule:
        yield from (f"{place}{dot}{each}" for each in re.findall(r"\w+", fault.remedy.removeprefix("did you mean ")))


def _follows(fault: Fault, meant: Collection[str]) -> bool:
    """Whether a fault is that of a value that a misspelt key would have set."""
    return fault.path in meant and (fault.value == "nothing" or " not set" in fault.rule or "neither " in fault.rule)


def known_keys(container: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a config without unknown keys."""
    copy: dict[str, Any] = _copy(container)
    try:
        RunSpec.model_validate(copy)
    except ValidationError as error:
        for each in error.errors():
            if each["type"] == "extra_forbidden":
                keys, parent = _place(each["loc"], copy)
                if isinstance(parent, dict):
                    parent.pop(keys[-1], None)
    return copy


def _copy(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _copy(each) for key, each in value.items()}
    return list(map(_copy, value)) if isinstance(value, list) else value


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _fault(error: ErrorDetails, container: Mapping[str, Any]) -> Fault:
    keys, parent = _place(error["loc"], container)
    path = ".".join(keys)
    value = "nothing" if error["type"] == "missing" else shown(error["input"])
    match error["type"]:
        case "extra_forbidden":
            return _unknown_key(keys, value, models_at(keys[:-1], container), parent)
        case "union_tag_invalid" | "union_tag_not_found":
            kind = _mapping(error["input"]).get("kind")
            known = [str(kind_of(model)) for model in models_at(keys, container)]
            return Fault(
                f"{path}.kind",
                "nothing" if kind is None else shown(kind),
                f"it must be {listing(known)}",
                f"set {path}.kind=…" if kind is None else did_you_mean(str(kind), known),
            )
        case "value_error":
            return Fault(
                path, _mentioned(pydantic_errors.rule_of(error), path, error["input"]), pydantic_errors.rule_of(error)
            )
        case _:
            return Fault(
                path,
                value,
                pydantic_errors.rule_of(error),
                pydantic_errors.remedy_of(error, path)
                or did_you_mean(str(error["input"]), pydantic_errors.valid_values(error)),
            )


def _place(location: Sequence[str | int], container: Any) -> tuple[list[str], Any]:
    """The config path of an error, and the mapping with its last key.

    pydantic inserts the name of the union branch that it tried between the keys; the path is without them.
    """
    keys: list[str] = []
    node, parent = container, None
    for part in location:
        if isinstance(node, Mapping):
            if part not in node and (part == node.get("kind") or part == "[key]"):
                continue
            keys.append(str(part))
            missing = part not in node
            node, parent = node.get(part), node
            if missing:
                break
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            keys.append(str(part))
            node, parent = node[part], node
        else:
            break
    return keys, parent


def _unknown_key(keys: Sequence[str], value: str, models: Models, parent: Any) -> Fault:
    """The fault of a key that its model lacks."""
    key, place = keys[-1], ".".join(keys[:-1])
    path = ".".join(keys)
    model = chosen(models, parent)
    if model is None:
        return Fault(path, value, "there is no such key")
    kind = kind_of(model)
    owners = [str(kind_of(each)) for each in models if key in each.model_fields]
    options = [name for name in model.model_fields if name != "kind"]
    near = _MOVED.get(path) or did_you_mean(key, options if place else [*options, *_OF_FILES])
    if owners and kind is not None:
        rule = f"{key} belongs to {listing(owners)}, not to {kind}"
        return Fault(path, value, rule, near or f"choose {listing(owners)} instead of {kind}, or remove the key")
    rule = f"{kind or place or 'a config'} has no key {key!r}"
    return Fault(path, value, rule, near or (f"its keys: {', '.join(options)}" if options else "it has no keys"))


def _mentioned(text: str, path: str, value: Any) -> str:
    """The keys of a mapping that a rule mentions, with their values; the whole value if there are none."""
    if not isinstance(value, Mapping):
        return shown(value)
    words = set(re.findall(rf"(?<![.\w])(?:{re.escape(path)}\.)?(\w+)", text))
    mentioned = {key: each for key, each in value.items() if key in words and not isinstance(each, Mapping)}
    return ", ".join(f"{key}: {shown(each)}" for key, each in mentioned.items()) or shown(value)


def _merged(faults: Sequence[Fault]) -> list[Fault]:
    """Merges the faults of each path, as each branch of a union reports one."""
    found: dict[str, Fault] = {}
    for fault in faults:
        before = found.get(fault.path)
        if before is None:
            found[fault.path] = fault
        elif fault.rule not in before.rule.split(", or "):
            found[fault.path] = replace(before, rule=f"{before.rule}, or {fault.rule}")
    return list(found.values())


def with_sources(faults: Sequence[Fault], source_of: Callable[[str], str]) -> list[Fault]:
    """The faults, each with the source of its value unless it has one."""
    return [fault if fault.source else replace(fault, source=source_of(fault.path)) for fault in faults]
