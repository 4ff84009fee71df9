"""Parsing overrides, and telling those that choose a file from those that set a value."""

from __future__ import annotations

from collections.abc import Iterable

from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import OverrideParseException

from embexp.config.folders import Folders
from embexp.config.loader import Loader
from embexp.errors import Fault

_DEEPEST = 32
"""Hydra and OmegaConf would run out of stack at about a hundred."""


def parse(loader: Loader, texts: Iterable[str], *, sweeping: bool = False) -> tuple[list[Override], list[Fault]]:
    """Parses overrides. One that can't be parsed, or has several values without `sweeping`, becomes a fault."""
    parsed, faults = [], []
    for text in texts:
        try:
            override = loader.parse(text)
        except RecursionError:
            faults.append(_too_deep(text))
            continue
        except OverrideParseException as error:
            detail = " ".join(error.message.split("\n")[0].split())
            rule = "an override is KEY=VALUE, +KEY=VALUE, ++KEY=VALUE or ~KEY"
            faults.append(Fault(text, "unreadable", rule, _syntax_hint(text, detail)))
            continue
        if max(override.key_or_group.count("."), _depth(override.value())) > _DEEPEST:
            faults.append(_too_deep(text))
            continue
        if override.is_sweep_override() and not sweeping:
            faults.append(
                Fault(
                    override.get_key_element(),
                    text.partition("=")[2],
                    "one run takes one value",
                    "add -m to run once for each; for a list write [a,b], for one text with a comma quote it twice"
                    if override.value_type is ValueType.SIMPLE_CHOICE_SWEEP
                    else "add -m to run once for each",
                )
            )
            continue
        parsed.append(override)
    return parsed, faults


def _too_deep(text: str) -> Fault:
    return Fault(text.partition("=")[0][:80], "nested", f"nothing in a config is nested deeper than {_DEEPEST} times")


def _depth(value: object) -> int:
    """How deeply lists and mappings are nested, counted no further than to what is too deep."""
    depth, level = 0, [value]
    while depth <= _DEEPEST and (level := [each for each in level if isinstance(each, list | dict)]):
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth


def is_selection(folders: Folders, override: Override) -> bool:
    """Whether an override chooses a file, or is one of Hydra's own settings, rather than setting a value."""
    if override.is_hydra_override():
        return True
    return folders.is_group(override.key_or_group) and not isinstance(override.value(), dict)


def _syntax_hint(text: str, detail: str) -> str:
    if "=" not in text and not text.startswith("~"):
        return "the = is missing"
    return f"quote the value, and once more for the shell: key=\"'value'\" ({detail})"
