"""What the columns of a report are called, and how their cells read."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import Any

from embexp.reports.query import text_of
from embexp.reports.statistics import Estimate
from embexp.system import terminal

_LARGE, _SMALL, _TINY = 1_000, 1e-3, 5e-5


def heads(keys: Sequence[str], *, taken: Collection[str] = ()) -> dict[str, str]:
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


def short_keys(keys: Sequence[str], *, taken: Collection[str] = ()) -> dict[str, str]:
    """Settings by the fewest last parts that are unique among keys and `taken`, spelled as in the config."""
    found = {}
    for key in keys:
        parts = key.split(".")
        ends = (".".join(parts[-length:]) for length in range(1, len(parts) + 1))
        others = [f".{each}" for each in keys if each != key]
        found[key] = next((e for e in ends if e not in taken and not any(o.endswith(f".{e}") for o in others)), key)
    return found


def cell(key: str, value: Any) -> str:
    """A value of summary.json in the unit that its key names."""
    match value:
        case None:
            return ""
        case bool():
            return text_of(value)
        case int() | float() if key.endswith("bytes"):
            return terminal.byte_size(value)
        case int() | float() if key.endswith("seconds"):
            return terminal.duration(value)
        case int():
            return f"{value:,}"
        case float():
            return figure(value)
        case _:
            return text_of(value)


def setting(value: Any) -> str:
    """A setting, in one line."""
    return "" if value is None else printable(" ".join(text_of(value).split()))


def printable(text: str) -> str:
    """Text without characters that would move the cursor or change colours."""
    return "".join(each if each.isprintable() else f"\\x{ord(each):02x}" for each in text)


def figure(value: float | None) -> str:
    """A metric: four decimals, fewer of a large value, and three digits of a small one."""
    if value is None:
        return ""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    if abs(value) >= _LARGE:
        return f"{value:,.1f}"
    return f"{value:.4f}" if abs(value) >= _SMALL else f"{value:.3g}"


def spread(estimate: Estimate | None, key: str = "") -> str:
    """A mean with its standard deviation, in the unit that the key names."""
    if estimate is None:
        return ""
    if estimate.std is None:
        return cell(key, estimate.mean)
    if key.endswith(("bytes", "seconds")) or not _SMALL <= abs(estimate.mean) < _LARGE or 0 < estimate.std < _TINY:
        return f"{cell(key, estimate.mean)} ± {cell(key, estimate.std)}"
    return f"{estimate.mean:.4f} ± {estimate.std:.4f}"


def interval(estimate: Estimate | None) -> str:
    """The ends of a confidence interval."""
    if estimate is None or estimate.low is None or estimate.high is None:
        return ""
    return f"{figure(estimate.low)} – {figure(estimate.high)}"


def probability(p: float | None) -> str:
    """A p-value."""
    if p is None:
        return ""
    return "< 0.001" if p < 0.001 else f"{p:.3f}"


def _words(parts: Sequence[str]) -> str:
    return " ".join([*parts[:-1], parts[-1].removesuffix("_bytes")]).replace("_", " ")


def _clash(parts: Sequence[str], others: Sequence[str], taken: Collection[str]) -> bool:
    words = _words(parts)
    return words in taken or any(_words(other.split(".")[-len(parts) :]) == words for other in others)
