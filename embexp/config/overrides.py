"""Parses overrides, and distinguishes those that choose a file from those that set a value."""

from __future__ import annotations

from collections.abc import Iterable

from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import OverrideParseException

from embexp.config.folders import Folders
from embexp.config.loader import Loader
from embexp.errors import Fault

_DEEPEST = 32
"""Deepest nesting of values; Hydra and OmegaConf overflow the stack at about a hundred."""


def parse(loader: Loader, texts: Iterable[str], *, sweeping: bool = False) -> tuple[list[Override], list[Fault]]:
    """Parses overrides; invalid ones, and ones with several values unless `sweeping`, become faults."""
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
                    "a single run takes one value",
                    "add -m to run once for each; write a list as [a,b]; quote a text with a comma twice"
                    if override.value_type is ValueType.SIMPLE_CHOICE_SWEEP
                    else "add -m to run once for each",
                )
            )
            continue
        parsed.append(override)
    return parsed, faults


def _too_deep(text: str) -> Fault:
    return Fault(text.partition("=")[0][:80], "nested", f"values can be nested at most {_DEEPEST} levels deep")


def _depth(value: object) -> int:
    """Nesting depth of lists and mappings; stops counting at `_DEEPEST` + 1."""
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
