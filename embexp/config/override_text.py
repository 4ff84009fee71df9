"""The text of an override's value: quotes, and the items of a list or a mapping as they are written."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from embexp.config.messages import format_value

_PLAIN = re.compile(r"[A-Za-z_/][\w./:-]*")
"""Texts that Hydra reads without quotes as they are, except `_NOT_TEXT`."""
_NOT_TEXT = ("null", "true", "false", "nan", "inf")
_TOKEN = re.compile(r"""\\.|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|.""", re.DOTALL)
_CLOSED = {"[": "]", "{": "}"}


def as_override(value: Any) -> str:
    """A value as an override has it, so that Hydra reads the same value."""
    match value:
        case None | bool() | int() | float():
            return format_value(value)
        case Mapping():
            return "{" + ",".join(f"{key}:{as_override(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(as_override, value)) + "]"
        case _:
            text = str(value)
            return text if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT else in_quotes(text)


def in_quotes(text: str) -> str:
    """A text in the quotes of Hydra's overrides, where a backslash escapes a quote, and a backslash before one."""
    return '"' + re.sub(r'(\\*)("|\Z)', lambda found: found[1] * 2 + ('\\"' if found[2] else ""), text) + '"'


def items(text: str) -> dict[str, str] | None:
    """The items of a list, by place, or of a mapping, by key, as they are written; None: it is neither."""
    text = text.strip()
    if len(text) < 2 or _CLOSED.get(text[0]) != text[-1]:
        return None
    parts, depth = [""], 0
    for token in _TOKEN.findall(text[1:-1]):
        depth += (token in "[{(") - (token in "]})")
        if token == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += token
    parts = [part.strip() for part in parts] if "".join(parts).strip() else []
    if text[0] == "[":
        return {str(place): part for place, part in enumerate(parts)}
    return {key.strip(): part.strip() for key, _, part in (part.partition(":") for part in parts)}


def item(text: str, keys: Sequence[str]) -> str:
    """The text of an item inside a list or mapping; "" if there is none."""
    for key in keys:
        text = (items(text) or {}).get(key, "")
    return text


def joined(opening: str, parts: Mapping[str, str]) -> str:
    """A list or mapping of items as they are written.

    Args:
        opening: `[` or `{`.
    """
    inside = parts.values() if opening == "[" else (f"{key}:{part}" for key, part in parts.items())
    return f"{opening}{','.join(inside)}{_CLOSED[opening]}"


def with_item(text: str, keys: Sequence[str], new: str | None) -> str | None:
    """The text with another item at `keys`, or without it if that is None; None: the text has no place for one."""
    if not keys:
        return new
    parts = items(text)
    if parts is None:
        return None
    inner = with_item(parts.get(keys[0], "{}"), keys[1:], new)
    if inner is not None:
        parts[keys[0]] = inner
    elif len(keys) == 1:
        parts.pop(keys[0], None)
    else:
        return None
    return joined(text.strip()[0], parts)
