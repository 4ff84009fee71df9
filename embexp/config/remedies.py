"""Faults in the user's own words: values as typed, and remedies as overrides that can be typed instead."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from embexp.config.folders import at
from embexp.config.loader import Sources
from embexp.config.messages import Caller, format_value, in_quotes
from embexp.errors import Code, Fault

_QUOTES = "\"'"
_READ_BY_ALL = re.compile(r"[-+]?(0|[1-9]\d*)?(\.\d*)?|true|false|null")
"""Texts that everybody reads as the value that they are."""


def completed(faults: Iterable[Fault], container: Mapping[str, Any], sources: Sources) -> list[Fault]:
    """The faults with the source of their values, values as typed, and remedies for where they were typed.

    Args:
        container: the config as plain values.
    """
    return [_completed(each, at(container, each.path), sources) for each in faults]


def _completed(fault: Fault, value: Any, sources: Sources) -> Fault:
    path, written, override = fault.path, sources.written(fault.path), sources.override(fault.path)
    fault = replace(fault, source=fault.source or sources.describe(path))
    if written and fault.value == format_value(value) and not isinstance(value, Mapping | list):
        fault = replace(fault, value=_as_typed(written, value))
    if fault.code is Code.NOT_TEXT and "${" in written:
        return replace(fault, remedy="let it refer to a text")
    if fault.code is Code.TEXT_OF_NUMBER and "${" in written:
        decoded = f"${{oc.decode:{written.strip(_QUOTES)}}}"
        fix = (f"{path}={in_quotes(decoded)}",)
        return replace(fault, remedy=f"write {decoded if override is None else sources.caller.typed(fix)}", fix=fix)
    alone = override.key_or_group == path if override is not None else not path.rpartition(".")[2].isdecimal()
    if fault.code is Code.NOT_TEXT and (value is not None or not alone):  # a null that stands alone is meant as one
        meant = in_quotes(written or format_value(value))
        fix = (f"{path}={meant}",)
        if override is None or not alone:
            return replace(fault, remedy=f"put it in quotes: {meant}", fix=fix if alone else ())
        shell = ", within those for the shell" if sources.caller is Caller.COMMAND_LINE else ""
        return replace(fault, remedy=f"put it in quotes{shell}: {sources.caller.typed(fix)}", fix=fix)
    inside = "" if override is None else f"{override.key_or_group}."  # what sets it is to be written as a whole
    if any(inside and line.lstrip("+~").startswith(inside) for line in fault.fix):
        return replace(fault, fix=())
    return fault


def _as_typed(written: str, value: Any) -> str:
    """A value as it is written, with what was read if that is not plain: `1_1_1 (read as 111)`."""
    if (isinstance(value, str) and "${" not in written) or written == format_value(value):
        return format_value(value)
    return written if _READ_BY_ALL.fullmatch(written) else f"{written} (read as {format_value(value)})"
