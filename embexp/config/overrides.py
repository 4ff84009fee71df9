"""Parses overrides: which choose a file, which set a value, and what is wrong with a word that is none."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Override, ValueType
from hydra.errors import OverrideParseException

from embexp.config import patterns
from embexp.config.folders import Folders
from embexp.config.loader import Loader
from embexp.config.messages import did_you_mean, format_value
from embexp.config.outline import outline
from embexp.config.yaml_files import DEEPEST, MOST_DIGITS
from embexp.errors import Fault

_QUOTED = re.compile(r"""\\.|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_DIGITS = re.compile(rf"(?<!\w)\d(?:_?\d){{{MOST_DIGITS},}}(?!\w)")
"""A whole number that is too long."""
_TIMES = {2: "twice", 3: "three times"}
_FORMS = "an override is KEY=VALUE, +KEY=VALUE, ++KEY=VALUE or ~KEY"
_FUNCTIONS = ("range", "choice", "interval", "glob", "sort", "shuffle", "tag", "int", "float", "str", "bool")
"""Functions of Hydra's overrides."""
_CLOSED = {"[": "]", "{": "}", "(": ")"}
_KEY = re.compile(r"[+~]{0,2}[\w./@-]+")
_OF_TABLES = ("initializer", "optimizer", "pretrained", "init", "freeze")
"""Groups that a table has, at keys of the same name."""


def parse(loader: Loader, texts: Iterable[str], *, sweeping: bool = False) -> tuple[list[Override], list[Fault]]:
    """Parses overrides; invalid ones, and ones with several values unless `sweeping`, become faults."""
    parsed = []
    whole, faults = _whole(texts)
    for text in whole:
        if (fault := _fault(text)) is not None:
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
            faults.append(_fault_of_value(text))
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
    return Fault(key, format_value(value), rule, "quote it if it is a text")


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


def _fault(text: str) -> Fault | None:
    """The fault of a word that lacks a key or an =, or whose key is none; None: it has both."""
    prefix, key, value = _parts(text)
    if not text:
        return Fault("", "''", _FORMS, "leave the empty argument out")
    if not key:
        rule = "the key is missing" if value or "=" in text else _FORMS
        return Fault("", format_value(text), rule, f"write KEY={value or 'VALUE'}")
    if unicodedata.category(text[0]) == "Pd" and text[0] != "-":
        return Fault(text, "an option", "it begins with a typographic dash", f"write -{text[1:]}, with a hyphen")
    if "=" not in text and "~" not in prefix:
        name, sign, rest = next(filter(all, (text.partition(each) for each in (":", "/"))), (text, "", ""))
        remedy = f"write {name}={rest}" if rest and name != "hydra" else f"write {key}=VALUE"
        return Fault(name if sign == ":" else key, format_value(rest) if sign == ":" else "no value", _FORMS, remedy)
    if "+" in prefix and prefix not in ("+", "++"):
        return Fault(key, format_value(value), _FORMS, f"write +{key}={value} for a new key")
    if strange := next((each for each in key if not each.isascii()), None):
        name = unicodedata.name(strange, "a character without a name").lower()
        return Fault(
            key, format_value(value), f"{strange!r} in the key is a {name}, and keys are ASCII", "type the key again"
        )
    if re.search(r"[*?{]", key):
        rule = "an override sets one name, and patterns are for files"
        remedy = "in the file, give the value to one name, and let the pattern refer to it: ${tables.C1.dim}"
        return Fault(key, format_value(value), rule, remedy)
    if "[" in key:
        return Fault(key, format_value(value), "an override sets a whole list", f"write {key.partition('[')[0]}=[…]")
    if "" in key.partition("@")[0].split("."):
        names = ".".join(filter(None, key.split(".")))
        return Fault(key, format_value(value), "a key is names with single dots between them", f"write {names}={value}")
    if value.startswith("="):
        return Fault(key, format_value(value), _FORMS, f"write {key}={value.lstrip('=')}, with one =")
    return None


def _fault_of_value(text: str) -> Fault:
    """The fault of an override whose value Hydra can't read."""
    _, key, value = _parts(text)
    names = re.split(r"[./@:]", key)
    if wrong := next((each for each in names if not re.fullmatch(r"[A-Za-z_][\w-]*|\d+", each)), None):
        rule = "a name is letters, digits and underscores, a letter first"
        return Fault(key, format_value(value), rule, f"rename {wrong}")
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


def _whole(texts: Iterable[str]) -> tuple[list[str], list[Fault]]:
    """The words that stand for themselves, and a fault for each override in several words."""
    words, kept, faults = list(texts), [], []
    while words:
        text, count = _joined(words)
        if count == 1:
            kept.append(text)
        else:
            key, _, value = text.partition("=")
            rule = "blanks separate the words of a command line, so this is not one override"
            faults.append(Fault(key, value, rule, f"write {key}={value}, without blanks"))
        del words[:count]
    return kept, faults


def _joined(words: list[str]) -> tuple[str, int]:
    """The override that begins with the first word, without blanks, and how many words it is in."""
    first, second, third = [*words[:3], "", ""][:3]
    if _KEY.fullmatch(first) and second == "=" and third and "=" not in third:
        return f"{first}={third}", 3  # key = value
    if _KEY.fullmatch(first) and second.startswith("="):
        return f"{first}{second}", 2  # key =value
    key, _, value = first.partition("=")
    count = 1
    while _KEY.fullmatch(key) and (not value or value.endswith(",")) and _is_value(words[count : count + 1]):
        value += words[count]  # key= value, or key=value, value
        count += 1
    return f"{key}={value}" if count > 1 else first, count


def _is_value(word: list[str]) -> bool:
    """Whether a word, if there is one, is no override and no option."""
    return bool(word) and "=" not in word[0] and not word[0].startswith(("~", "-"))


def with_additions(loader: Loader, selections: Sequence[Override]) -> list[Override]:
    """The choices, with those added that are for a table or feature with another form of entry.

    `init@tables.C5.init=scaffold` needs a line of a defaults list to replace. A table that a pattern stands for, or
    one in the short form `tables: {C5: {dim: 16}}`, has none.

    Args:
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
    return any(key == name or patterns.matches(key, name) for key in map(str, keys))
