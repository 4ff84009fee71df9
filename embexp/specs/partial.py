"""Specs known in part, as the rest has faults: how rules read them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

_Value = TypeVar("_Value")


class UnknownPartError(Exception):
    """A rule read a part of a spec that is not known, which ends the rule: see `where_known`."""


def where_known(*rules: Iterable[_Value]) -> Iterator[_Value]:
    """What rules find, each until it reads a part that is not known.

    Args:
        *rules: generators, so that each begins here. One that reads several tables wraps each of them in `for_each`, so
            that a table with faults hides nothing of the others.
    """
    for rule in rules:
        with suppress(UnknownPartError):
            yield from rule


def for_each(names: Callable[[], Iterable[str]], rule: Callable[[str], Iterable[_Value]]) -> Iterator[_Value]:
    """What a rule finds of each table or feature, each until it reads a part that is not known.

    Args:
        names: returns their names.
        rule: from a name to what is found.
    """
    for name in names():
        yield from where_known(rule(name))


def known_or(default: _Value, value: Callable[[], _Value]) -> _Value:
    """A value, or a default where it reads a part that is not known."""
    try:
        return value()
    except UnknownPartError:
        return default


def is_complete(value: Any) -> bool:
    """Whether all fields of a part are known, and of the parts within it."""
    fields = getattr(type(value), "model_fields", None)
    if fields is not None:
        return all(name in value.__dict__ and is_complete(value.__dict__[name]) for name in fields)
    if isinstance(value, Mapping):
        return all(map(is_complete, value.values()))
    return all(map(is_complete, value)) if isinstance(value, tuple) else True
