"""Fields of use, such as recommendation: each brings its tasks, and later choices, under names that configs use.

A field is a package whose `FIELD` is importable without TensorFlow and names everything else by dotted path, so that
only what a config chooses is imported.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

SHIPPED = ("columns", "graphs", "recommendation", "texts")
"""The fields of embexp, each a package in `embexp.fields`."""


@dataclass(frozen=True)
class Field:
    """What a field brings.

    Attributes:
        described: what it is for, in a line.
        tasks: `module:object` of each task, by its name.
    """

    name: str
    described: str
    tasks: Mapping[str, str] = field(default_factory=dict)


@cache
def fields() -> tuple[Field, ...]:
    """All fields that are known."""
    return tuple(importlib.import_module(f"embexp.fields.{name}").FIELD for name in SHIPPED)


def names(group: str) -> Iterator[str]:
    """The names of what all fields bring to a group, such as `tasks`."""
    return (name for each in fields() for name in getattr(each, group))


@cache
def find(group: str, name: str) -> Any:
    """The object of a name in a group; None: no field brings it."""
    for each in fields():
        if (path := getattr(each, group).get(name)) is not None:
            module, _, attribute = path.partition(":")
            return getattr(importlib.import_module(module), attribute)
    return None
