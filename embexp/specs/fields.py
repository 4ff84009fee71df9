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
        data: of `data`: `module:class` of each kind, by its name; likewise the next ones.
        models: of `model`.
        losses: of `loss`.
        studies: of `study`.
        settings: `module:class` of what only its tasks read, by the key of the config.
        methods: `module:function` of what a loaded run can do besides, by name; the run is its first argument.
        exports: `module:function` that writes what a run is exported as, by the word of `embexp export --as`; see
            `runs.exporting.Writer`.
        recognises: `module:function` from a path of data to the first experiment of what the field knows as a whole,
            see `cli.first_experiment.Recognised`, or None; "": nothing.
        commands: of `embexp`, by name: what it does, and `module:object` that has `main` and `HELP`.
    """

    name: str
    described: str
    tasks: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, str] = field(default_factory=dict)
    models: Mapping[str, str] = field(default_factory=dict)
    losses: Mapping[str, str] = field(default_factory=dict)
    studies: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    methods: Mapping[str, str] = field(default_factory=dict)
    exports: Mapping[str, str] = field(default_factory=dict)
    commands: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    recognises: str = ""


@cache
def fields() -> tuple[Field, ...]:
    """All fields that are known."""
    return tuple(importlib.import_module(f"embexp.fields.{name}").FIELD for name in SHIPPED)


def names(group: str) -> Iterator[str]:
    """The names of what all fields bring to a group, such as `tasks`."""
    return (name for each in fields() for name in getattr(each, group))


def imported(path: str) -> Any:
    """The object of a dotted path `module:object`."""
    module, _, attribute = path.partition(":")
    return getattr(importlib.import_module(module), attribute)


def path_of(group: str, name: str) -> Any:
    """What a field says of a name in a group, such as its dotted path; None: no field brings it."""
    return next((getattr(each, group)[name] for each in fields() if name in getattr(each, group)), None)


@cache
def find(group: str, name: str) -> Any:
    """The object of a name in a group; None: no field brings it."""
    path = path_of(group, name)
    return None if path is None else imported(path)
