"""Parses overrides, and sets the values of a composed config, so that each fault names its override."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import ChoiceSweep, Override, ValueType
from hydra.errors import OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from embexp.config import patterns
from embexp.config.folders import DEEPEST, MOST_DIGITS, Folders, outline, paths
from embexp.config.loader import Loader
from embexp.config.messages import (
    Caller,
    as_override,
    did_you_mean,
    first_line,
    format_value,
    in_quotes,
    nearest,
    suggestion,
)
from embexp.config.selections import choices
from embexp.errors import Code, Fault

_QUOTED = re.compile(r"""\\.|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""")
_DIGITS = re.compile(rf"(?<!\w)\d(?:_?\d){{{MOST_DIGITS},}}(?!\w)")
"""A whole number that is too long."""
_TIMES = {2: "twice", 3: "three times"}
_FORMS = "an override is KEY=VALUE, +KEY=VALUE, ++KEY=VALUE or ~KEY"
_KEY = re.compile(r"[+~]{0,2}[\w./@-]+")
_NAMES = re.compile(r"(?:[A-Za-z_][\w-]*|\d+)(?:[./@:](?:[A-Za-z_][\w-]*|\d+))*", re.ASCII)
_OF_TABLES = ("initializer", "optimizer", "pretrained", "init", "freeze")
"""Groups that a table has, at keys of the same name."""
_KEYED_BY_NAME = ("tables", "features")
"""Mappings with names as keys: a new key needs `+`, as a typo would otherwise create a new table."""
_NUMERIC = "data.dense_features"
"""A list of names, or a mapping of names to a transform, or to settings."""


def parse(loader: Loader, texts: Iterable[str], *, sweeping: bool = False) -> tuple[list[Override], list[Fault]]:
    """Parses overrides; invalid ones, and ones with several values unless `sweeping`, become faults."""
    whole, faults = _whole(texts)
    parsed = []
    for text in whole:
        found = _parsed(loader, text)
        if isinstance(found, Override) and found.is_sweep_override() and not sweeping:
            value = text.partition("=")[2]
            found = _of_several(found.get_key_element(), value, found, loader.permission.caller)
        if isinstance(found, Fault):
            faults.append(found)
        else:
            parsed.append(found)
    return parsed, faults


def _parsed(loader: Loader, text: str) -> Override | Fault:
    if (fault := _fault(text)) is not None:
        return fault
    _, key, value = _parts(text)
    if (number := _DIGITS.search(_QUOTED.sub("", text))) is not None:
        rule = f"a number has at most {MOST_DIGITS} digits, and this one has {len(number[0].replace('_', '')):,}"
        return Fault(key, format_value(value), rule, "quote it if it is a text")
    too_deep = Fault(key[:80], "nested", f"values can be nested at most {DEEPEST} levels deep")
    try:
        override = loader.parse(text)
    except RecursionError:
        return too_deep
    except OverrideParseException:
        return _fault_of_value(loader, key, value)
    return too_deep if max(key.count("."), _depth(override.value())) > DEEPEST else override


def repeated(parsed: Iterable[Override]) -> Iterator[Fault]:
    """The faults of keys that are given more than once: only one of the values could count."""
    given: dict[str, list[Override]] = {}
    for override in parsed:
        given.setdefault(override.get_key_element().lstrip("+~"), []).append(override)
    for key, several in given.items():
        if len(several) > 1:
            listed = " and ".join(str(each.input_line).partition("=")[2] or "a removal" for each in several)
            rule = f"it is given {_TIMES.get(len(several), f'{len(several)} times')}"
            yield Fault(key, listed, rule, "give it once", fix=(str(several[-1].input_line),))


def _of_several(key: str, value: str, override: Override, caller: Caller) -> Fault:
    """The fault of several values, or of one with a comma."""
    remedy = f"{caller.each} once for each"
    if override.value_type is ValueType.SIMPLE_CHOICE_SWEEP:
        remedy += "; write a number without commas, and a list as [a,b]; quote a text with a comma twice"
    return Fault(key, value, "a single run takes one value", remedy)


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
        return Fault("", "''", _FORMS, "leave the empty argument out", fix=("",))
    if not key:
        rule = "the key is missing" if value or "=" in text else _FORMS
        return Fault("", format_value(text), rule, f"write KEY={value or 'VALUE'}")
    if text[0] in "–—":
        return Fault(text, "an option", "it begins with a typographic dash", f"write -{text[1:]}, with a hyphen")
    if "+" in prefix and prefix not in ("+", "++"):
        remedy = f"write ++{key}={value}, which sets a key or adds it"
        return Fault(key, format_value(value), _FORMS, remedy, fix=(f"++{key}={value}",))
    if "=" not in text and "~" not in prefix:
        name, _, rest = text.partition(":")
        meant = f"{name}={rest}" if rest else ""
        shown, fix = format_value(rest) if rest else "no value", (meant,) if rest else ()
        return Fault(name, shown, _FORMS, f"write {meant or f'{key}=VALUE'}", fix=fix)
    if re.search(r"[*?{]", key):
        rule = "an override sets one name, and patterns are for files"
        remedy = "in the file, give the value to one name, and let the pattern refer to it: ${tables.C1.dim}"
        return Fault(key, format_value(value), rule, remedy)
    if value.startswith("="):
        meant = f"{key}={value.lstrip('=')}"
        return Fault(key, format_value(value), _FORMS, f"write {meant}, with one =", fix=(meant,))
    return None


def _fault_of_value(loader: Loader, key: str, value: str) -> Fault:
    """The fault of an override whose value Hydra can't read."""
    caller = loader.permission.caller
    if not _NAMES.fullmatch(key):
        rule = "a key is names with single dots between them: ASCII letters, digits and underscores, a letter first"
        return Fault(key, format_value(value), rule, "write the key so; a list is set as a whole")
    for end in ("'", '"', "]", "}", ")"):
        if _can_be(loader, mended := f"{key}={value}{end}"):
            return Fault(key, value, f"{end} is missing at its end", f"write {caller.typed([mended])}", fix=(mended,))
    rule, shell = "a text with such characters needs quotes", ", and the word for the shell"
    shell = shell if caller is Caller.COMMAND_LINE else ""
    if value.startswith(("[", "{")):
        return Fault(key, value, rule, f"quote the texts in it{shell}")
    mended = f"{key}={in_quotes(value)}"
    return Fault(key, value, rule, f"quote the value{shell}: {caller.typed([mended])}", fix=(mended,))


def _can_be(loader: Loader, text: str) -> bool:
    """Whether Hydra can read a text as an override."""
    try:
        loader.parse(text)
    except OverrideParseException:
        return False
    return True


def _parts(text: str) -> tuple[str, str, str]:
    """The signs before the key, the key, and the value."""
    found = re.fullmatch(r"([+~]*)([^=]*)=?(.*)", text, re.DOTALL)
    return found.groups() if found else ("", text, "")  # type: ignore[return-value]


def _whole(texts: Iterable[str]) -> tuple[list[str], list[Fault]]:
    """The words that stand for themselves, and a fault for each override that blanks have made several words."""
    found: list[list[str]] = []
    for word in texts:
        before = "".join(found[-1]) if found else ""
        key, sign, value = before.partition("=")
        goes_on = _KEY.fullmatch(key) and (
            (not value or value.endswith(",")) and "=" not in word and not word.startswith(("~", "-"))
            if sign
            else word.startswith("=")
        )
        if goes_on:
            found[-1].append(word)
        else:
            found.append([word])
    faults = []
    for words in found:
        if len(words) > 1:
            key, _, value = "".join(words).partition("=")
            rule = "blanks separate the words of a command line, so this is not one override"
            mended = f"{key}={value}"
            faults.append(Fault(key, value, rule, f"write {mended}, without blanks", fix=(mended,)))
    return [words[0] for words in found if len(words) == 1], faults


def with_additions(loader: Loader, selections: Sequence[Override]) -> list[Override]:
    """The choices, with those added that are for a table or feature with another form of entry.

    `init@tables.C5.init=scaffold` needs a line of a defaults list to replace. A table that a pattern stands for, or
    one in the short form `tables: {C5: {dim: 16}}`, has none.
    """
    if not any(map(_is_for_one, selections)):
        return list(selections)
    chosen: dict[str, Any] = {
        selection.get_key_element().lstrip("+"): _first(selection.value())
        for selection in selections
        if not (selection.is_delete() or selection.is_hydra_override())
    }
    found = outline(loader.folders, loader.config_name, chosen)
    return [
        loader.parse(f"+{selection.input_line}")
        if _is_for_one(selection)
        and selection.get_key_element() not in found.choices
        and _is_there(found.values, selection)
        else selection
        for selection in selections
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
    return value.list[0] if isinstance(value, ChoiceSweep) and value.list else value


def _is_for_one(override: Override) -> bool:
    """Whether a choice is for a table or a feature, and neither adds nor removes."""
    if override.is_add() or override.is_force_add() or override.is_delete():
        return False
    group = override.key_or_group
    match (override.package or "").split("."):
        case ["tables", _, key]:
            return key == group and group in _OF_TABLES
        case ["tables" | "features" as place, _]:
            return place == f"{group}s"
        case _:
            return False


def _is_there(values: Mapping[str, Any], override: Override) -> bool:
    """Whether the config has the table or feature, by its name or by a pattern."""
    place, name, *_ = (override.package or "").split(".")
    entries = values.get(place)
    keys = entries if isinstance(entries, Mapping) else ()
    return any(key == name or patterns.matches(key, name) for key in map(str, keys))


def set_value(folders: Folders, override: Override, config: DictConfig) -> Fault | None:
    """Sets a value in a composed config as Hydra would; returns a fault if that is impossible.

    A plain `key=value` with a new key is set if it could be an option that no file mentions; the validation of the
    whole config then decides.
    """
    key, value = override.key_or_group, override.value()
    prefixed = override.is_add() or override.is_force_add()
    if override.package is not None:
        remedy = did_you_mean(key, folders.choices) or "`embexp run --help` lists the groups"
        return Fault(override.get_key_element(), format_value(value), f"there is no group {key!r}", remedy)
    try:
        if override.is_delete():
            return _remove(override, config)
        takes_choice = isinstance(value, str) and isinstance(_node(config, key), DictConfig | None)
        groups = choices(config) if takes_choice else ()
        if (group := next((each for each in groups if each.endswith(f"@{key}")), None)) is not None:
            chosen = f"{group}={value}"
            fix = (key, chosen)
            return Fault(key, format_value(value), "it is a mapping of keys", f"choose a file: {chosen}", fix=fix)
        present = is_present(config, key)
        taken = present or _node(config, key) is not None  # a list item is not a key, but can't be added either
        if override.is_add() and taken and not isinstance(value, dict | list):
            rule = "+ adds a key, and this one already exists"
            mended = f"{key}={as_override(value)}"
            return Fault(key, format_value(value), rule, f"write {key}=… without the +", fix=(mended,))
        _as_mappings(config, key, value)
        if not (prefixed or present or _may_be_an_option(config, key)):
            return _unknown_key(config, override)
        known = isinstance(value, dict) and _may_be_an_option(config, f"{key}.")
        OmegaConf.update(config, key, value, merge=True, force_add=prefixed or known or not present)
    except OmegaConfBaseException as error:
        if isinstance(value, list) and isinstance(_node(config, key), DictConfig):
            rule, remedy = "it is a mapping, and this is a list", f"write {key}.NAME=… for each key"
        else:
            rule = f"the override can't be applied: {first_line(error)}"
            addable = isinstance(value, dict) and value and not (prefixed or override.is_delete())
            remedy = f"add keys with +: +{override.input_line}" if addable else ""
        return Fault(key, format_value(value), rule, remedy)
    except ValueError:  # OmegaConf's, of a place in a list
        remedy = f"write {key.rpartition('.')[0]}=[…] for the whole list"
        return Fault(key, format_value(value), "places in a list are numbers", remedy)
    return None


def _as_mappings(config: DictConfig, key: str, value: object) -> None:
    """Writes numeric columns as mappings where an override is about one of them, or about one of its settings."""
    if not (key.startswith(f"{_NUMERIC}.") or (key == _NUMERIC and isinstance(value, dict))):
        return
    listed = _node(config, _NUMERIC)
    if isinstance(listed, ListConfig):
        named: dict[str, object] = {name: {} for name in listed if isinstance(name, str)}
        OmegaConf.update(config, _NUMERIC, None)
        OmegaConf.update(config, _NUMERIC, named)
    column = key.rpartition(".")[0]
    short = _node(config, column) if column.startswith(f"{_NUMERIC}.") else None
    if isinstance(short, str | ListConfig):
        OmegaConf.update(config, column, {"transform": short}, merge=False)


def is_present(config: DictConfig, path: str) -> bool:
    """Whether a config has a key, even if its value is missing (`???`)."""
    parent, _, last = path.rpartition(".")
    node = _node(config, parent)
    return isinstance(node, DictConfig) and last in node.keys()  # noqa: SIM118 — `in node` is False for `???`


def _remove(override: Override, config: DictConfig) -> Fault | None:
    """Removes a key; with `~key=value`, only if that is its value."""
    key, expected = override.key_or_group, override.value()
    if not is_present(config, key):
        return _unknown_key(config, override)
    value = OmegaConf.select(config, key)
    if value is None:  # Hydra's sweepers reject it, too
        return Fault(key, "a removal", "only a key with a value can be removed, and its value is null")
    if expected is not None and expected != value:
        rule = f"its value is {format_value(value)}, not {format_value(expected)}"
        return Fault(key, "a removal", rule, f"write ~{key}", fix=(f"~{key}",))
    parent, _, last = key.rpartition(".")
    with open_dict(config):
        node = OmegaConf.select(config, parent) if parent else config
        del node[last]
    return None


def _node(config: DictConfig, path: str) -> object:
    try:
        return OmegaConf.select(config, path) if path else config
    except OmegaConfBaseException:
        return None


def _may_be_an_option(config: DictConfig, key: str) -> bool:
    """Whether a key that no file mentions is in a mapping of options, so that validation can check it."""
    parent = key.rpartition(".")[0]
    free = parent in _KEYED_BY_NAME or parent == "model.args" or parent.startswith("model.args.")
    return not free and isinstance(_node(config, parent), DictConfig)


def _unknown_key(config: DictConfig, override: Override) -> Fault:
    key, made = override.key_or_group, choices(config)
    value = "a removal" if override.is_delete() else format_value(override.value())
    parent = key
    while parent := parent.rpartition(".")[0]:
        group = next((each for each in made if each.endswith(f"@{parent}")), None)
        if group is not None and made[group] is None:
            rule = f"{parent} is not set, so it has no keys"
            return Fault(key, value, rule, f"choose one first: {group}=…", code=Code.NOT_IN_CONFIG)
        if is_present(config, parent):
            break
    parent = key.rpartition(".")[0]
    if isinstance(_node(config, parent), ListConfig):
        near = f"a list is set as a whole: {parent}=[…]"
    elif key.startswith("model.args."):
        near = f"add arguments of the function with +: +{override.input_line}"
    else:
        known = paths(OmegaConf.to_container(config))
        names = nearest(key, [path for path in (*known, *made) if not key.startswith(f"{path}.")])
        rule, near = "there is no such key in this config", suggestion(names)
        if names and override.is_delete():
            return Fault(key, value, rule, near, code=Code.NOT_IN_CONFIG, fix=(key, f"~{names[0]}"))
        if names:
            fix = (key, f"{names[0]}={as_override(override.value())}")
            return Fault(key, value, rule, near, code=Code.NOT_IN_CONFIG, fix=fix)
    return Fault(key, value, "there is no such key in this config", near, code=Code.NOT_IN_CONFIG)
