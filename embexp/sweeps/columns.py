"""Columns of a sweep's table for `output.compare`: values of summary.json with readable units."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from typing import Any

from embexp.sweeps.outcomes import Outcome
from embexp.system import terminal

_LARGE = 1_000


def keys_of(outcomes: Sequence[Outcome]) -> list[str]:
    """Dotted keys that any job compares, in their order."""
    return list(dict.fromkeys(key for each in outcomes for key in each.compared))


def heads(keys: Sequence[str], *, taken: Collection[str]) -> dict[str, str]:
    """The heading of each key's column: the fewest last parts of the key that are unique among keys and `taken`.

    `initialization.peak_anonymous_bytes` gets `peak anonymous`; its cells show the unit.
    """
    found = {}
    for key in keys:
        others = [each for each in keys if each != key]
        parts = key.split(".")
        lengths = range(1, len(parts) + 1)
        short = (_words(parts[-length:]) for length in lengths if not _clash(parts[-length:], others, taken))
        found[key] = next(short, key)
    return found


def cell(key: str, value: Any) -> str:
    """A value in the unit that its key names."""
    match value:
        case None:
            return ""
        case bool() | str():
            return str(value)
        case int() | float() if key.endswith("bytes"):
            return terminal.byte_size(value)
        case int() | float() if key.endswith("seconds"):
            return terminal.duration(value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.0f}" if value >= _LARGE else f"{value:.4f}"
        case _:
            return json.dumps(value, ensure_ascii=False)


def absent(outcomes: Sequence[Outcome]) -> list[str]:
    """Keys that no finished job's summary has."""
    finished = [each for each in outcomes if each.status.has_results]
    return [key for key in keys_of(finished) if all(each.compared.get(key) is None for each in finished)]


def _words(parts: Sequence[str]) -> str:
    return " ".join([*parts[:-1], parts[-1].removesuffix("_bytes")]).replace("_", " ")


def _clash(parts: Sequence[str], others: Sequence[str], taken: Collection[str]) -> bool:
    words = _words(parts)
    return words in taken or any(_words(other.split(".")[-len(parts) :]) == words for other in others)
