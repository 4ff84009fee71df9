"""Parses overrides, and distinguishes those that choose a file from those that set a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import OverrideParseException

from embexp.config import torn, unreadable
from embexp.config.folders import Folders
from embexp.config.loader import Loader
from embexp.config.shown import shown
from embexp.config.yaml_files import DEEPEST, MOST_DIGITS
from embexp.errors import Fault

_QUOTED = re.compile(r"""\\.|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_DIGITS = re.compile(rf"(?<!\w)\d(?:_?\d){{{MOST_DIGITS},}}(?!\w)")
"""A whole number that is too long."""
_TIMES = {2: "twice", 3: "three times"}


def parse(loader: Loader, texts: Iterable[str], *, sweeping: bool = False) -> tuple[list[Override], list[Fault]]:
    """Parses overrides; invalid ones, and ones with several values unless `sweeping`, become faults."""
    parsed = []
    whole, faults = torn.whole(texts)
    for text in whole:
        if (fault := unreadable.fault(text)) is not None:
            faults.append(fault)
            continue
        if (number := _DIGITS.search(_QUOTED.sub("", text))) is not None:
            faults.append(_too_long(text, number[0]))
            continue
        try:
            override = loader.parse(text)
        except RecursionError:
            faults.append(_too_deep(text))
            continue
        except OverrideParseException:
            faults.append(unreadable.fault_of_value(text))
            continue
        if max(override.key_or_group.count("."), _depth(override.value())) > DEEPEST:
            faults.append(_too_deep(text))
            continue
        if override.is_sweep_override() and not sweeping:
            faults.append(
                Fault(
                    override.get_key_element(),
                    text.partition("=")[2],
                    "a single run takes one value",
                    _of_several(text.partition("=")[2], override),
                )
            )
            continue
        parsed.append(override)
    return parsed, faults


def repeated(parsed: Iterable[Override]) -> Iterator[Fault]:
    """The faults of keys that are given more than once: only one of the values could count."""
    given: dict[str, list[Override]] = {}
    for override in parsed:
        given.setdefault(override.get_key_element().lstrip("+~"), []).append(override)
    for key, several in given.items():
        if len(several) > 1:
            listed = " and ".join(str(each.input_line).partition("=")[2] or "a removal" for each in several)
            yield Fault(key, listed, f"it is given {_TIMES.get(len(several), f'{len(several)} times')}", "give it once")


def _of_several(value: str, override: Override) -> str:
    """What to do about several values, or about one with a comma."""
    if re.fullmatch(r"\d{1,3}(,\d{3})+", value):
        return f"write {value.replace(',', '')} for that number; add -m to run once for each of several"
    if re.fullmatch(r"-?0,\d+", value):
        return f"write {value.replace(',', '.')} for that number; add -m to run once for each of several"
    if override.value_type is ValueType.SIMPLE_CHOICE_SWEEP:
        return "add -m to run once for each; write a list as [a,b]; quote a text with a comma twice"
    return "add -m to run once for each"


def _too_long(text: str, number: str) -> Fault:
    key, _, value = text.lstrip("+~").partition("=")
    rule = f"a number has at most {MOST_DIGITS} digits, and this one has {len(number.replace('_', '')):,}"
    return Fault(key, shown(value), rule, "quote it if it is a text")


def _too_deep(text: str) -> Fault:
    return Fault(text.partition("=")[0][:80], "nested", f"values can be nested at most {DEEPEST} levels deep")


def _depth(value: object) -> int:
    """Nesting depth of lists and mappings; stops counting at `DEEPEST` + 1."""
    depth, level = 0, [value]
    while depth <= DEEPEST and (level := [each for each in level if isinstance(each, list | dict)]):
        depth += 1
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
    return depth


def is_selection(folders: Folders, override: Override) -> bool:
    """Whether an override chooses a file, or is one of Hydra's own settings, rather than setting a value."""
    if override.is_hydra_override():
        return True
    return folders.is_group(override.key_or_group) and not isinstance(override.value(), dict)
