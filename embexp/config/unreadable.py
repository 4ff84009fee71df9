"""Explains why a word of the command line is no override, and how to write it."""

from __future__ import annotations

import re
import unicodedata

from embexp.config.nearest import did_you_mean
from embexp.config.shown import shown
from embexp.errors import Fault

_FORMS = "an override is KEY=VALUE, +KEY=VALUE, ++KEY=VALUE or ~KEY"
_FUNCTIONS = ("range", "choice", "interval", "glob", "sort", "shuffle", "tag", "int", "float", "str", "bool")
"""Functions of Hydra's overrides."""
_CLOSED = {"[": "]", "{": "}", "(": ")"}


def fault(text: str) -> Fault | None:
    """The fault of a word that lacks a key or an =, or whose key is none; None: it has both.

    Args:
        text: the word.
    """
    prefix, key, value = _parts(text)
    if not text:
        return Fault("", "''", _FORMS, "leave the empty argument out")
    if not key:
        rule = "the key is missing" if value or "=" in text else _FORMS
        return Fault("", shown(text), rule, f"write KEY={value or 'VALUE'}")
    if unicodedata.category(text[0]) == "Pd" and text[0] != "-":
        return Fault(text, "an option", "it begins with a typographic dash", f"write -{text[1:]}, with a hyphen")
    if "=" not in text and "~" not in prefix:
        name, sign, rest = next(filter(all, (text.partition(each) for each in (":", "/"))), (text, "", ""))
        remedy = f"write {name}={rest}" if rest and name != "hydra" else f"write {key}=VALUE"
        return Fault(name if sign == ":" else key, shown(rest) if sign == ":" else "no value", _FORMS, remedy)
    if "+" in prefix and prefix not in ("+", "++"):
        return Fault(key, shown(value), _FORMS, f"write +{key}={value} for a new key")
    if strange := next((each for each in key if not each.isascii()), None):
        name = unicodedata.name(strange, "a character without a name").lower()
        return Fault(key, shown(value), f"{strange!r} in the key is a {name}, and keys are ASCII", "type the key again")
    if re.search(r"[*?{]", key):
        rule = "an override sets one name, and patterns are for files"
        remedy = "in the file, give the value to one name, and let the pattern refer to it: ${tables.C1.dim}"
        return Fault(key, shown(value), rule, remedy)
    if "[" in key:
        return Fault(key, shown(value), "an override sets a whole list", f"write {key.partition('[')[0]}=[…]")
    if "" in key.partition("@")[0].split("."):
        names = ".".join(filter(None, key.split(".")))
        return Fault(key, shown(value), "a key is names with single dots between them", f"write {names}={value}")
    if value.startswith("="):
        return Fault(key, shown(value), _FORMS, f"write {key}={value.lstrip('=')}, with one =")
    return None


def fault_of_value(text: str) -> Fault:
    """The fault of an override whose value Hydra can't read.

    Args:
        text: the override.
    """
    _, key, value = _parts(text)
    names = re.split(r"[./@:]", key)
    if wrong := next((each for each in names if not re.fullmatch(r"[A-Za-z_][\w-]*|\d+", each)), None):
        rule = "a name is letters, digits and underscores, a letter first"
        return Fault(key, shown(value), rule, f"rename {wrong}")
    if (called := re.match(r"(\w+)\(", value)) and value.endswith(")"):
        rule, near = f"there is no function {called[1]!r} of these arguments", did_you_mean(called[1], _FUNCTIONS)
        return Fault(key, value, rule, near or f"quote a text with brackets: '{key}=\"{value}\"'")
    opened = {bracket: value.count(bracket) - value.count(closed) for bracket, closed in _CLOSED.items()}
    bracket = next((each for each, count in opened.items() if count > 0), None)
    for quote in ("'", '"'):
        if value.replace(f"\\{quote}", "").count(quote) % 2:
            return Fault(key, value, "a quote is not closed", f"close it: {key}={quote}…{quote}")
    if bracket is not None and (value.startswith(("[", "{")) or "${" in value):
        return Fault(key, value, f"{bracket} is not closed", f"close it with {_CLOSED[bracket]}")
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    rule = "a text with such characters needs quotes"
    return Fault(key, value, rule, f"quote the value, and the word for the shell: '{key}=\"{quoted}\"'")


def _parts(text: str) -> tuple[str, str, str]:
    """The signs before the key, the key, and the value."""
    found = re.fullmatch(r"([+~]*)([^=]*)=?(.*)", text, re.DOTALL)
    return found.groups() if found else ("", text, "")  # type: ignore[return-value]
