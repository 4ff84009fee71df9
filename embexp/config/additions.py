"""Choices for one table or feature that no file makes: they are added, as Hydra does with a `+` before them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Override

from embexp.config import name_patterns
from embexp.config.loader import Loader
from embexp.config.outline import outline
from embexp.config.overrides import is_selection, parse

_OF_TABLES = ("initializer", "optimizer", "pretrained", "init", "freeze")
"""Groups that a table has, at keys of the same name."""


def with_additions(loader: Loader, selections: Sequence[Override]) -> list[Override]:
    """The choices, with those added that are for a table or feature with another form of entry.

    `init@tables.C5.init=scaffold` needs a line of a defaults list to replace. A table that a pattern stands for, or
    one in the short form `tables: {C5: {dim: 16}}`, has none.

    Args:
        loader: has the folders, and parses overrides.
        selections: choices of the command line.
    """
    if not any(map(_is_for_one, selections)):
        return list(selections)
    chosen: dict[str, Any] = {
        each.get_key_element().lstrip("+"): _first(each.value())
        for each in selections
        if not each.is_delete() and not each.is_hydra_override()
    }
    found = outline(loader.folders, loader.config_name, chosen)
    return [
        loader.parse(f"+{each.input_line}")
        if _is_for_one(each) and each.get_key_element() not in found.choices and _is_there(found.values, each)
        else each
        for each in selections
    ]


def lines(loader: Loader, texts: Sequence[str]) -> list[str]:
    """The overrides of a sweep, with a `+` before choices that are to be added: Hydra's sweepers compose jobs, too."""
    parsed, _ = parse(loader, texts, sweeping=True)
    choices = [each for each in parsed if is_selection(loader.folders, each)]
    added = {
        before.input_line: after.input_line
        for before, after in zip(choices, with_additions(loader, choices), strict=True)
    }
    return [added.get(text) or text for text in texts]


def _first(value: Any) -> Any:
    """The first of several values."""
    return value.list[0] if isinstance(value, ChoiceSweep) and value.list else value


def _is_for_one(override: Override) -> bool:
    """Whether a choice is for a table or a feature, and neither adds nor removes."""
    if override.is_add() or override.is_force_add() or override.is_delete() or override.package is None:
        return False
    match override.package.split("."):
        case ["tables", _, group]:
            return group == override.key_or_group and group in _OF_TABLES
        case ["tables", _]:
            return override.key_or_group == "table"
        case ["features", _]:
            return override.key_or_group == "feature"
        case _:
            return False


def _is_there(values: Mapping[str, Any], override: Override) -> bool:
    """Whether the config has the table or feature, by its name or by a pattern."""
    place, name, *_ = (override.package or "").split(".")
    entries = values.get(place)
    keys = entries if isinstance(entries, Mapping) else ()
    return any(key == name or name_patterns.matches(key, name) for key in map(str, keys))
