"""Values in the words of YAML, for messages."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_LONGEST = 60


def shown(value: Any) -> str:
    """A value as a user would write it, cut where it is long."""
    text = _words(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"


def _words(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{value}'" if value.isprintable() else json.dumps(value)
        case Mapping():
            return "{" + ", ".join(f"{key}: {_words(each)}" for key, each in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(_words(each) for each in value) + "]"
        case _:
            return str(value)
