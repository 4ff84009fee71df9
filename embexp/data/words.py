"""Texts as words."""

from __future__ import annotations

import re

PATTERN = r"\b\w\w+\b"
"""Two or more letters, digits or underscores: scikit-learn's default `token_pattern` (`CountVectorizer`)."""
_WORD = re.compile(PATTERN)


def words(text: str, separator: str | None = None) -> list[str]:
    """The words of a text in their order, in lower case; or its tokens, as they are, with a separator between them."""
    if separator is not None:
        return [token for token in text.split(separator) if token]
    return _WORD.findall(text.lower())
