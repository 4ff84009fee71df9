"""How rules read partial specs, which lack the fields that have faults."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

_Value = TypeVar("_Value")


class UnknownPartError(Exception):
    """A rule read a field that a partial spec lacks. Ends the rule, see `where_known`."""


def where_known(*rules: Iterable[_Value]) -> Iterator[_Value]:
    """Yields what rules find; each ends when it reads an unknown part.

    Args:
        *rules: generators. A rule about several tables uses `for_each`, so that an unknown part of one table does not
            hide faults of the others.
    """
    for rule in rules:
        with suppress(UnknownPartError):
            yield from rule


def for_each(names: Callable[[], Iterable[str]], rule: Callable[[str], Iterable[_Value]]) -> Iterator[_Value]:
    """Applies a rule to each table or feature; each application ends when it reads an unknown part.

    Args:
        names: returns the names of the tables or features.
        rule: called with each name.
    """
    for name in names():
        yield from where_known(rule(name))


def known_or(default: _Value, value: Callable[[], _Value]) -> _Value:
    """Calls `value`; returns `default` if it reads an unknown part."""
    try:
        return value()
    except UnknownPartError:
        return default


def is_complete(value: Any) -> bool:
    """Whether a part and its inner parts have all their fields."""
    fields = getattr(type(value), "model_fields", None)
    if fields is not None:
        return all(name in value.__dict__ and is_complete(value.__dict__[name]) for name in fields)
    if isinstance(value, Mapping):
        return all(map(is_complete, value.values()))
    return all(map(is_complete, value)) if isinstance(value, tuple) else True
