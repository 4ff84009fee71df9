"""Values and names in error messages: values as YAML, long ones cut off, and suggestions for misspelt names."""

from __future__ import annotations

import difflib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from embexp.system.printable import without_secrets

_LONGEST = 60
_PLAIN = re.compile(r"[A-Za-z_/][\w./:-]*")
"""Texts that Hydra reads without quotes as they are, except `_NOT_TEXT`."""
_NOT_TEXT = ("null", "true", "false", "nan", "inf")
_ALSO_CALLED = {
    "xavier": ("glorot_uniform", "glorot_normal"),
    "xavier_uniform": ("glorot_uniform",),
    "xavier_normal": ("glorot_normal",),
    "glorot": ("glorot_uniform", "glorot_normal"),
}
"""Names that other libraries have for a choice."""


class Caller(Enum):
    """Who gives the overrides: remedies are in the words of the command line, or of Python."""

    COMMAND_LINE = "the command line"
    PYTHON = "the overrides"

    def typed(self, overrides: Iterable[str]) -> str:
        """Overrides as they are typed: words for the shell, or items of a list."""
        return " ".join(map(shlex.quote, overrides)) if self is Caller.COMMAND_LINE else ", ".join(map(repr, overrides))

    @property
    def each(self) -> str:
        """How to run once for each of several values."""
        return "add -m to run" if self is Caller.COMMAND_LINE else "call embexp.sweep([[…], […]]) to run"

    def option(self, name: str, value: str) -> str:
        """An option, such as `--config-dir conf` or `config_dir='conf'`."""
        if self is Caller.COMMAND_LINE:
            return f"--{name} {value}"
        return f"{name.replace('-', '_')}={[value] if name == 'allow-code' else value!r}"


def format_value(value: Any) -> str:
    """A value as YAML, cut off if it is long."""
    text = _yaml(without_secrets(value))
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"


def _yaml(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str():
            return f"'{value}'" if value.isprintable() else json.dumps(value)
        case Mapping():
            return "{" + ", ".join(f"{key}: {_yaml(each)}" for key, each in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(_yaml(each) for each in value) + "]"
        case _:
            return str(value)


def as_override(value: Any) -> str:
    """A value as an override has it, so that Hydra reads the same value."""
    match value:
        case None | bool() | int() | float():
            return format_value(value)
        case Mapping():
            return "{" + ",".join(f"{key}:{as_override(each)}" for key, each in value.items()) + "}"
        case list() | tuple():
            return "[" + ",".join(map(as_override, value)) + "]"
        case _:
            text = str(value)
            return text if _PLAIN.fullmatch(text) and text.lower() not in _NOT_TEXT else in_quotes(text)


def in_quotes(text: str) -> str:
    """A text in the quotes of Hydra's overrides, where a backslash escapes a quote, and a backslash before one."""
    return '"' + re.sub(r'(\\*)("|\Z)', lambda found: found[1] * 2 + ('\\"' if found[2] else ""), text) + '"'


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean a or b?` with up to three known names similar to `name`, or "" if there is none."""
    return suggestion(nearest(name, known))


def suggestion(names: Sequence[str]) -> str:
    """`did you mean a or b?`, or "" without names."""
    return f"did you mean {' or '.join(names)}?" if names else ""


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Up to three similar names, the most similar first; dotted names may also share only their last key."""
    candidates = sorted(set(known) - {name})
    if same := [candidate for candidate in candidates if candidate.lower() == name.lower()]:
        return same[:1]
    also = [each for other in _close(name.lower(), [*_ALSO_CALLED])[:1] for each in _ALSO_CALLED[other]]
    if also and set(also) <= set(candidates):
        return also
    parent, _, last = name.rpartition(".")
    siblings = [candidate for candidate in candidates if parent and candidate.rpartition(".")[0] == parent]
    # A long parent that they share would make any two keys similar.
    if near := _close(last, [sibling.rpartition(".")[2] for sibling in siblings]):
        return [f"{parent}.{each}" for each in near]
    near = _close(name, [candidate for candidate in candidates if candidate not in siblings])
    if not near and "." not in name:
        near = [candidate for candidate in candidates if candidate.rpartition(".")[2] == name][:3]
    if not near and "." in name:
        near = [candidate for candidate in candidates if candidate.rpartition(".")[2] == last][:3]
    return near


def _close(name: str, candidates: list[str]) -> list[str]:
    return difflib.get_close_matches(name, candidates, n=3, cutoff=0.6 if len(name) < 6 else 0.7)


def listing(names: Iterable[str]) -> str:
    """`a`, `a or b`, `a, b or c`."""
    names = list(names)
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} or {names[-1]}"


def lines(error: BaseException) -> list[str]:
    """The lines of an error, or of its cause if the error has no text; at least one."""
    text = str(error).strip()
    if not text and error.__cause__ is not None:
        return lines(error.__cause__)
    return [line.strip() for line in text.rstrip(".").split("\n")] if text else [type(error).__name__]


def first_line(error: BaseException) -> str:
    """The first line of an error, without a full stop."""
    return lines(error)[0].rstrip(".")


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what led to it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
