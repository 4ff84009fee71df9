"""What the user may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question that names up to three known words like `word`, or "" where nothing is like it."""
    near = nearest(word, known)
    return f"did you mean {' or '.join(near)}?" if near else ""


def nearest(word: str, known: Iterable[str]) -> list[str]:
    """Up to three of `known`, those most like `word` first; dotted words may also agree in their last part alone."""
    candidates = sorted(set(known) - {word})
    near = difflib.get_close_matches(word, candidates, n=3, cutoff=0.6 if len(word) < 6 else 0.7)
    if not near and "." not in word:
        near = [each for each in candidates if each.rpartition(".")[2] == word][:3]
    if not near and "." in word:
        last = word.rpartition(".")[2]
        near = [each for each in candidates if each.rpartition(".")[2] == last][:3]
    return near


def listing(words: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    words = list(words)
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} or {words[-1]}"
