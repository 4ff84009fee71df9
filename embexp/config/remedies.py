"""Faults in the user's own words: values as typed, and remedies as overrides that can be typed instead.

A fault is found in plain values, where `1_1_1` is 111, and where an override of a whole list is one item. Here its
value and its fix become those of the override, or the file, that set the value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from embexp.config import override_text
from embexp.config.folders import at
from embexp.config.loader import Sources, text_of
from embexp.config.messages import Caller, format_value
from embexp.config.override_text import in_quotes
from embexp.errors import Code, Fault

_QUOTES = "\"'"
_READ_BY_ALL = re.compile(r"[-+]?(0|[1-9]\d*)?(\.\d*)?|true|false|null")
"""Texts that everybody reads as the value that they are."""


def completed(faults: Iterable[Fault], container: Mapping[str, Any], sources: Sources) -> list[Fault]:
    """The faults with the source of their values, values as typed, and remedies for where they were typed.

    Args:
        container: the config as plain values.
    """
    faults = [replace(each, source=each.source or sources.describe(each.path)) for each in faults]
    quoted: dict[str, list[str]] = {}  # one fix for all values of an override that lack quotes
    for fault in faults:
        override, written = sources.override(fault.path), sources.written(fault.path)
        if fault.code is Code.NOT_TEXT and override is not None and written and "${" not in written:
            quoted.setdefault(override.key_or_group, []).append(f"{fault.path}={in_quotes(written)}")
    return [_completed(fault, at(container, fault.path), sources, quoted) for fault in faults]


def _completed(fault: Fault, value: Any, sources: Sources, quoted: Mapping[str, Sequence[str]]) -> Fault:
    written, override, caller = sources.written(fault.path), sources.override(fault.path), sources.caller
    if written and fault.value == format_value(value) and not isinstance(value, Mapping | list):
        fault = replace(fault, value=_as_typed(written, value))
    in_list = fault.path.rpartition(".")[2].isdecimal()
    if fault.code is Code.NOT_TEXT and "${" in written:
        return replace(fault, remedy="let it refer to a text")
    if fault.code is Code.NOT_TEXT and (value is not None or in_list):  # a null that stands alone is meant as one
        if override is None:
            meant = in_quotes(written or format_value(value))
            alone = () if in_list else (f"{fault.path}={meant}",)
            return replace(fault, remedy=f"put it in quotes: {meant}", fix=alone)
        shell = ", within those for the shell" if caller is Caller.COMMAND_LINE else ""
        fix = _in_overrides(quoted[override.key_or_group], sources)
        return replace(fault, remedy=f"put it in quotes{shell}: {caller.typed(fix)}", fix=fix)
    if fault.code is Code.TEXT_OF_NUMBER and "${" in written:
        decoded = f"${{oc.decode:{written.strip(_QUOTES)}}}"
        fix = _in_overrides([f"{fault.path}={in_quotes(decoded)}"], sources)
        return replace(fault, remedy=f"write {decoded if override is None else caller.typed(fix)}", fix=fix)
    return replace(fault, fix=_in_overrides(fault.fix, sources))


def _as_typed(written: str, value: Any) -> str:
    """A value as it is written, with what was read if that is not plain: `1_1_1 (read as 111)`."""
    if (isinstance(value, str) and "${" not in written) or written == format_value(value):
        return format_value(value)
    return written if _READ_BY_ALL.fullmatch(written) else f"{written} (read as {format_value(value)})"


def _in_overrides(fix: Sequence[str], sources: Sources) -> tuple[str, ...]:
    """A fix with whole overrides instead of those of an item of one."""
    lines: list[str] = []
    texts: dict[str, str] = {}
    for line in fix:
        path, sign, new = line.lstrip("+~").partition("=")
        override = sources.override(path)
        key = path if override is None else override.key_or_group
        before = "" if override is None else texts.get(key, text_of(override))
        keys = path.removeprefix(f"{key}.").split(".") if path != key else []
        after = override_text.with_item(before, keys, new if sign else None) if keys else None
        if after is None:
            lines.append(line)
        else:
            texts[key] = after
    return (*lines, *(f"{key}={text}" for key, text in texts.items()))
