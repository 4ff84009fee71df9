"""Names that stand for many: braces as in a shell, such as `C{1..26}` or `{user,item}_id`, and globs such as `C*`."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

from embexp.config.nearest import listing

MOST = 10_000
"""Most names that one pattern stands for."""
_BRACES = re.compile(r"\{([^{}]*)\}")
_RANGE = re.compile(r"(-?\d+|[A-Za-z])\.\.(-?\d+|[A-Za-z])(?:\.\.(-?\d+))?")
_GLOB = re.compile(r"[*?]")
_SHOWN = 6


class BadPatternError(Exception):
    """A pattern that stands for nothing: the message is the rule that it violates."""


def is_pattern(name: object) -> bool:
    """Whether a name has braces, or a character of globs: `*` for any text, `?` for any character."""
    return isinstance(name, str) and re.search(r"[{}*?]", name) is not None


def is_glob(name: str) -> bool:
    """Whether what a pattern stands for depends on the columns of the data."""
    return _GLOB.search(name) is not None


@functools.cache
def expanded(pattern: str) -> tuple[str, ...]:
    """The names, or globs, that a pattern with braces stands for, in the order of a shell, each once.

    Raises:
        BadPatternError: its braces hold neither a list nor a range, or it stands for more than `MOST` names.
    """
    found = dict.fromkeys(_limited(_expanded(pattern)))
    if odd := next((each for each in found if "{" in each or "}" in each), None):
        raise BadPatternError(f"a brace of {odd!r} has no partner")
    return tuple(found)


def names(pattern: str, columns: Iterable[str]) -> list[str]:
    """The names that a pattern stands for: those of its braces, and the columns that its globs match.

    Args:
        pattern: with braces, a glob, or both.
        columns: names of the data's columns; read only if the pattern is a glob.

    Raises:
        BadPatternError: it is none, or a glob of it matches no column.
    """
    found: dict[str, None] = {}
    for each in expanded(pattern):
        if not is_glob(each):
            found[each] = None
            continue
        matched = [column for column in columns if _matches(each, column)]
        if not matched:
            raise BadPatternError(f"no column of the data matches {each}: {_some(list(columns))}")
        found |= dict.fromkeys(matched)
    return list(found)


def matches(pattern: str, name: str) -> bool:
    """Whether a name is one that a pattern may stand for."""
    try:
        return any(_matches(each, name) if is_glob(each) else name == each for each in expanded(pattern))
    except BadPatternError:
        return False


def _matches(glob: str, name: str) -> bool:
    return fnmatchcase(name, glob.replace("[", "[[]"))  # a bracket is one: columns have names such as price[eur]


def _expanded(pattern: str) -> Iterator[str]:
    braces = _BRACES.search(pattern)
    if braces is None:
        yield pattern
        return
    for each in _alternatives(braces[1]):
        yield from _expanded(f"{pattern[: braces.start()]}{each}{pattern[braces.end() :]}")


def _alternatives(text: str) -> Iterable[str]:
    """What the text between two braces stands for."""
    if "," in text:
        return [each.strip() for each in text.split(",")]
    found = _RANGE.fullmatch(text)
    if found is None or found[1].isalpha() != found[2].isalpha() or found[3] in ("0", "-0"):
        rule = f"braces hold a list such as {{a,b}} or a range such as {{1..26}}, and these hold {text!r}"
        raise BadPatternError(rule)
    return _range(found[1], found[2], abs(int(found[3] or 1)))


def _range(first: str, last: str, step: int) -> Iterator[str]:
    letters = first.isalpha()
    start, stop = (ord(first), ord(last)) if letters else (int(first), int(last))
    padded = max(map(len, (first, last))) if any(re.match(r"-?0\d", each) for each in (first, last)) else 0
    for number in range(start, stop + (1 if stop >= start else -1), step if stop >= start else -step):
        yield chr(number) if letters else f"{number:0{padded}d}"


def _limited(found: Iterator[str]) -> Iterator[str]:
    for count, each in enumerate(found):
        if count == MOST:
            raise BadPatternError(f"a pattern stands for at most {MOST:,} names")
        yield each


def _some(columns: Sequence[str]) -> str:
    """The columns, of many the first ones."""
    if not columns:
        return "it has none beside the label"
    if len(columns) <= _SHOWN:
        return f"it has {listing(columns).replace(' or ', ' and ')}"
    return f"it has {', '.join(columns[:_SHOWN])} and {len(columns) - _SHOWN} more"
