"""Sentences about tables and features: those that are alike become one, so that 26 tables are not 26 warnings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_NAMED = 3
"""Names before the rest are counted."""
_ABOUT = re.compile(r"((?:[^:.]+: )?)((?:tables|features)\.\w+(?:\.\w+)*): (.*)", re.DOTALL)


def few(names: Sequence[str], what: str = "") -> str:
    """`a, b, c`; of five or more `a, b, c and 2 more`.

    Args:
        names: one at least.
        what: is named behind the count, in the plural.
    """
    if len(names) <= _NAMED + 1:
        return ", ".join(names)
    return " ".join(filter(None, (f"{', '.join(names[:_NAMED])} and {len(names) - _NAMED:,} more", what)))


def merged(lines: Iterable[str]) -> list[str]:
    """Lines such as `tables.item: WHAT` or `no effect: tables.item: WHAT`; those that say the same become one.

    It stands where the first of them stood.
    """
    found: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        about = _ABOUT.fullmatch(line)
        start, name, what = about.groups() if about else (line, "", "")
        names = found.setdefault((start, what), [])
        if name and name not in names:
            names.append(name)
    return [f"{start}{few(names)}: {what}" if names else start for (start, what), names in found.items()]
