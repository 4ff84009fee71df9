"""Config values in error messages: as YAML, long ones cut off."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST = 60


def shown(value: Any) -> str:
    """A value as YAML, cut off if it is long."""
    text = _yaml(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"


def _yaml(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{value}'" if value.isprintable() else json.dumps(value)
        case Mapping():
            return "{" + ", ".join(f"{key}: {_yaml(each)}" for key, each in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(_yaml(each) for each in value) + "]"
        case _:
            return str(value)
