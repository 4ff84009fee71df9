"""Overrides that blanks have torn apart, such as `model.dropout = 0.1`, which the shell passes as three words."""

from __future__ import annotations

import re
from collections.abc import Iterable

from embexp.errors import Fault

_KEY = re.compile(r"[+~]{0,2}[\w./@-]+")


def whole(texts: Iterable[str]) -> tuple[list[str], list[Fault]]:
    """The words that stand for themselves, and a fault for each override in several words."""
    words, kept, faults = list(texts), [], []
    while words:
        text, count = _joined(words)
        if count == 1:
            kept.append(text)
        else:
            key, _, value = text.partition("=")
            rule = "blanks separate the words of a command line, so this is not one override"
            faults.append(Fault(key, value, rule, f"write {key}={value}, without blanks"))
        del words[:count]
    return kept, faults


def _joined(words: list[str]) -> tuple[str, int]:
    """The override that begins with the first word, without blanks, and how many words it is in."""
    first, second, third = [*words[:3], "", ""][:3]
    if _KEY.fullmatch(first) and second == "=" and third and "=" not in third:
        return f"{first}={third}", 3  # key = value
    if _KEY.fullmatch(first) and second.startswith("="):
        return f"{first}{second}", 2  # key =value
    key, _, value = first.partition("=")
    count = 1
    while _KEY.fullmatch(key) and (not value or value.endswith(",")) and _is_value(words[count : count + 1]):
        value += words[count]  # key= value, or key=value, value
        count += 1
    return f"{key}={value}" if count > 1 else first, count


def _is_value(word: list[str]) -> bool:
    """Whether a word, if there is one, is no override and no option."""
    return bool(word) and "=" not in word[0] and not word[0].startswith(("~", "-"))
