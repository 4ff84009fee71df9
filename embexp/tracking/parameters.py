"""The settings of a run as flat parameters, and as YAML."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from embexp.specs.run import RunSpec
from embexp.tracking.tracker import Parameter

_NO_RESULTS = ("output", "checkpoint", "tracking", "name", "sweep", "seeds")
"""Parts of a spec that change no result."""


def parameters(spec: RunSpec) -> dict[str, Parameter]:
    """The settings that decide the results, by config path such as `optimizer.learning_rate`.

    Settings that are null are left out; lists are JSON.
    """
    content = spec.model_dump(mode="json")
    for part in _NO_RESULTS:
        content.pop(part, None)
    return dict(_leaves(content, ""))


def as_yaml(spec: RunSpec) -> str:
    """The whole spec as YAML."""
    return yaml.safe_dump(spec.model_dump(mode="json"), sort_keys=False, allow_unicode=True, width=120)


def _leaves(content: Mapping[str, Any], path: str) -> Iterator[tuple[str, Parameter]]:
    for key, value in content.items():
        place = f"{path}.{key}" if path else str(key)
        match value:
            case None | []:
                continue
            case Mapping():
                yield from _leaves(value, place)
            case list():
                yield place, json.dumps(value, ensure_ascii=False)
            case bool() | int() | float() | str():
                yield place, value
            case _:
                yield place, str(value)
