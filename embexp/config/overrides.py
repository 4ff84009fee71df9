"""Parses overrides, and sets the values of a composed config, so that each fault names its override.

The choices among them are composed first; if that fails, it is found which can't be made, and which file is broken.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import yaml
from hydra.core.override_parser.types import ChoiceSweep, Override, ValueType
from hydra.errors import ConfigCompositionException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import ConfigTypeError, OmegaConfBaseException
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError
from yaml.parser import ParserError
from yaml.scanner import ScannerError

from embexp.config import hydra_job, patterns
from embexp.config.folders import DEEPEST, MOST_DIGITS, Folders, Refused, checked, keys_of, outline, package_of, paths
from embexp.config.loader import COMPOSITION_ERRORS, ZIP, Loader, outline_of
from embexp.config.messages import (
    Caller,
    as_override,
    did_you_mean,
    first_line,
    format_value,
    in_quotes,
    lines,
    listing,
    nearest,
    suggestion,
)
from embexp.errors import Code, ConfigError, Fault
from embexp.specs.run import RunSpec

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
_GLOBAL = "_global_"
_BYTE_ORDER_MARK = "\ufeff".encode()


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
        rule = f"a number may have at most {MOST_DIGITS} digits, but this one has {len(number[0].replace('_', '')):,}"
        return Fault(key, format_value(value), rule, "quote it if it is a text")
    too_deep = Fault(key[:80], "nested", f"values may be nested at most {DEEPEST} levels deep")
    try:
        if key.startswith(ZIP):
            from embexp.config import zipped  # which few commands need

            override: Override | Fault = zipped.parsed(loader, text[: text.index(key)], key, value)
        else:
            override = loader.parse(text)
    except RecursionError:
        return too_deep
    except OverrideParseException:
        return _fault_of_value(loader, key, value)
    if isinstance(override, Fault):
        return override
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
        remedy += (
            "; write a number without commas and a list as [a,b]; for a text with a comma, use two pairs of quotes"
        )
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
        return Fault("", "''", _FORMS, "remove the empty argument", fix=("",))
    if not key:
        rule = "the key is missing" if value or "=" in text else _FORMS
        return Fault("", format_value(text), rule, f"write KEY={value or 'VALUE'}")
    if text[0] in "–—":
        return Fault(text, "an option", "it begins with a typographic dash", f"write -{text[1:]} with a hyphen")
    if "+" in prefix and prefix not in ("+", "++"):
        remedy = f"write ++{key}={value}, which sets a key or adds it"
        return Fault(key, format_value(value), _FORMS, remedy, fix=(f"++{key}={value}",))
    if "=" not in text and "~" not in prefix:
        name, _, rest = text.partition(":")
        meant = f"{name}={rest}" if rest else ""
        shown, fix = format_value(rest) if rest else "no value", (meant,) if rest else ()
        return Fault(name, shown, _FORMS, f"write {meant or f'{key}=VALUE'}", fix=fix)
    if re.search(r"[*?{]", key):
        rule = "an override sets a single name; patterns work only in files"
        remedy = "in the file, set the value for one name and let the pattern refer to it: ${tables.C1.dim}"
        return Fault(key, format_value(value), rule, remedy)
    if value.startswith("="):
        meant = f"{key}={value.lstrip('=')}"
        return Fault(key, format_value(value), _FORMS, f"write {meant} with one =", fix=(meant,))
    return None


def _fault_of_value(loader: Loader, key: str, value: str) -> Fault:
    """The fault of an override whose value Hydra can't read."""
    caller = loader.permission.caller
    if not (_NAMES.fullmatch(key) or key.startswith(ZIP)):
        rule = (
            "a key consists of names separated by single dots; a name has ASCII letters, digits and "
            "underscores, and begins with a letter"
        )
        return Fault(key, format_value(value), rule, "write the key like that; a list is always set as a whole")
    for end in ("'", '"', "]", "}", ")"):
        if _can_be(loader, mended := f"{key}={value}{end}"):
            return Fault(key, value, f"the closing {end} is missing", f"write {caller.typed([mended])}", fix=(mended,))
    rule, shell = "a text with such characters needs quotes", ", and quote the argument for the shell"
    shell = shell if caller is Caller.COMMAND_LINE else ""
    if value.startswith(("[", "{")):
        return Fault(key, value, rule, f"quote the texts in it{shell}")
    mended = f"{key}={in_quotes(value)}"
    return Fault(key, value, rule, f"quote the value{shell}: {caller.typed([mended])}", fix=(mended,))


def _can_be(loader: Loader, text: str) -> bool:
    """Whether Hydra can read a text as an override."""
    key, _, value = text.partition("=")
    try:
        loader.parse(f"zip={value}" if key.startswith(ZIP) else text)
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
            rule = "spaces separate the words of a command line, so this is not a single override"
            mended = f"{key}={value}"
            faults.append(Fault(key, value, rule, f"write {mended} without spaces", fix=(mended,)))
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


def sweep_lines(loader: Loader, texts: Sequence[str]) -> list[str]:
    """The overrides of a sweep, with a `+` before choices that are to be added: Hydra's sweepers compose jobs, too."""
    from embexp.config import zipped

    parsed, _ = parse(loader, texts, sweeping=True)
    zips = [each for each in parsed if isinstance(each, zipped.Zipped)]
    firsts = [f"{each.key_or_group}={next(each.sweep_string_iterator())}" for each in zips]
    inside = zipped.written_out(loader, firsts)
    whole = [*(each for each in parsed if each not in zips), *map(loader.parse, inside)]
    choices = [each for each in whole if is_selection(loader.folders, each)]
    added = {
        str(before.input_line): str(after.input_line)
        for before, after in zip(choices, with_additions(loader, choices), strict=True)
    }
    keys = {before.partition("=")[0]: after.partition("=")[0] for before, after in added.items()}
    added |= {str(each.input_line): zipped.with_keys(each, keys) for each in zips}
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
            rule = "+ adds a key, but this one already exists"
            mended = f"{key}={as_override(value)}"
            return Fault(key, format_value(value), rule, f"write {key}=… without the +", fix=(mended,))
        _as_mappings(config, key, value)
        if not (prefixed or present or _may_be_an_option(config, key)):
            return _unknown_key(config, override)
        known = isinstance(value, dict) and _may_be_an_option(config, f"{key}.")
        OmegaConf.update(config, key, value, merge=True, force_add=prefixed or known or not present)
    except OmegaConfBaseException as error:
        if isinstance(value, list) and isinstance(_node(config, key), DictConfig):
            rule, remedy = "it is a mapping, but this is a list", f"write {key}.NAME=… for each key"
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
        return Fault(key, "a removal", "only a key with a value can be removed, but its value is null")
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
        near = f"add arguments for the function with +: +{override.input_line}"
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


def select(loader: Loader, selections: Sequence[Override]) -> tuple[DictConfig, list[Override], list[Fault]]:
    """Composes the config of all choices that can be made.

    Raises:
        ConfigError: the files can't be composed with any choice.
    """
    known, faults = [], []
    for override in selections:
        fault = _unknown_choice(loader, override)
        if fault is None:
            known.append(override)
        else:
            faults.append(fault)
    made, errors = _possible(loader, known)
    try:
        config = loader.compose([str(known[number].input_line) for number in made])
    except COMPOSITION_ERRORS as error:  # with none of them
        raise ConfigError([*faults, broken(loader.folders, error, [loader.config_name])]) from None
    faults += [_why(loader, known[number], errors[number], choices(config)) for number in sorted(errors)]
    return config, [known[number] for number in made], faults


def _possible(loader: Loader, selections: Sequence[Override]) -> tuple[list[int], dict[int, Exception]]:
    """The numbers of the choices that can be made together, and the error of each other one, found by composing."""

    def error_of(numbers: Iterable[int]) -> Exception | None:
        return loader.error([str(selections[number].input_line) for number in sorted(numbers)])

    texts = [str(each.input_line) for each in selections]
    every = sorted(range(len(selections)), key=lambda number: _rank(selections[number]))
    if loader.failed.isdisjoint(texts) and error_of(every) is None:
        return sorted(every), {}
    suspects = _suspects(loader, selections)
    made = [number for number in every if number not in suspects]
    if error_of(made) is not None:
        made = []
    errors: dict[int, Exception] = {}
    more = True
    while more:  # some can only be made after others on which they depend
        more = False
        for number in (each for each in every if each not in made):
            if (error := _unplaced(loader, selections[number], [texts[each] for each in sorted(made)])) is None:
                error = error_of([*made, number])
            if error is None:
                made, more = [*made, number], True
                errors.pop(number, None)
            else:
                errors[number] = error
    loader.failed.update(texts[number] for number in errors)
    return sorted(made), errors


def _unplaced(loader: Loader, override: Override, made: Sequence[str]) -> Exception | None:
    """The error of a choice that the config of others has no place for; None: it has one, or composing will tell."""
    if override.is_add() or override.is_delete() or override.is_hydra_override() or loader.error(made) is not None:
        return None
    key = override.get_key_element()
    return None if key in loader.compose(made).hydra.runtime.choices else ConfigCompositionException(key)


def _suspects(loader: Loader, selections: Sequence[Override]) -> set[int]:
    """The numbers of choices to try last: they have no place as far as the outline shows, or Hydra has to judge."""
    known = outline_of(loader.folders, loader.config_name, selections).choices
    return {
        number
        for number, each in enumerate(selections)
        if each.is_hydra_override()
        or each.is_delete()
        or isinstance(each.value(), list)
        or each.is_add() == (each.get_key_element().lstrip("+") in known)
    }


def _rank(override: Override) -> int:
    """How a choice depends on others: 0 not at all, 1 its group must not be chosen yet, 2 its group must be chosen."""
    if override.is_add():
        return 1
    return 0 if override.package is None and not override.is_delete() else 2


def choices(config: DictConfig) -> Mapping[str, str | None]:
    """The choices of a composed config by `group` or `group@package`, without Hydra's own groups."""
    made = config.hydra.runtime.choices
    return {key: made[key] for key in made if not key.startswith("hydra/")}


def hydra_in_files(loader: Loader, selections: Sequence[Override]) -> tuple[Any, list[Fault]]:
    """The node `hydra` as the files of some choices have it, without what Hydra itself puts there.

    And the faults of choices of Hydra's groups in these files that Hydra ignores.
    """
    found = outline_of(loader.folders, loader.config_name, selections)
    given = {each.get_key_element() for each in selections}
    caller, faults = loader.permission.caller.value, []
    for group, choice, file in found.ignored:
        if group.startswith("hydra/") and group not in given and not file.is_relative_to(loader.folders.shipped):
            rule, remedy = (
                "Hydra ignores it there because a file that includes this one chooses as well",
                f"choose it in {caller}",
            )
            faults.append(Fault(group, format_value(choice), rule, f"{remedy}: {group}={choice}", str(file)))
    return found.values.get("hydra"), faults


def _unknown_choice(loader: Loader, override: Override) -> Fault | None:
    """A fault if an override chooses a file that does not exist, or something other than a file."""
    folders, group, choice = loader.folders, override.key_or_group, override.value()
    each = choice if isinstance(choice, list) else [choice]
    is_group = group.startswith("hydra/") or folders.is_group(group)
    if is_group and not all(isinstance(name, str | None) for name in each):
        return Fault(
            override.get_key_element(), format_value(choice), "a choice must be the name of a file, or a list of names"
        )
    if override.is_hydra_override():
        return hydra_job.refused(override)
    if override.is_delete():
        return None
    known, key = folders.choices.get(group, {}), override.get_key_element().lstrip("+")
    rule = f"group {group} has {listing(known)}"
    if choice is None:
        if "none" in known:
            return Fault(key, "null", rule, f"choose {key}=none", fix=(f"{key}=none",))
        return Fault(key, "null", rule, "choose one of them")
    for name in map(str, each):
        if name not in known:
            remedy, meant = _instead(loader, group, name, known)
            fix = (f"{key}={meant}",) if meant and choice == name else ()
            return Fault(key, format_value(choice), rule, remedy, fix=fix)
        if known[name].is_relative_to(folders.user or os.devnull) and (fault := unreadable(known[name])):
            return Fault(key, format_value(choice), fault.rule, fault.remedy, fault.source)
    return None


def _instead(loader: Loader, group: str, choice: str, known: Collection[str]) -> tuple[str, str]:
    """What to do about a choice that is not there, and which one was meant, if any.

    A file of that name may be at another place.
    """
    folders, caller = loader.folders, loader.permission.caller
    stem = PurePath(choice).stem
    if choice != stem and stem in known:
        return f"choose {group}={stem}", stem
    if not choice:
        return "choose one of them", ""
    for folder in (*folders.in_order[:-1], Path.cwd(), Path.cwd() / "conf"):
        if os.path.isfile(folder / group / f"{choice}.yml"):
            return f"rename {folder / group / choice}.yml to {choice}.yaml", ""
        if folder not in folders.in_order and os.path.isfile(folder / group / f"{choice}.yaml"):
            return f"add your config folder: {caller.option('config-dir', os.path.relpath(folder))}", ""
        if folder in folders.in_order and os.path.isfile(folder / f"{choice}.yaml"):
            return f"move {folder / choice}.yaml into the folder {group}", ""
    near = nearest(choice, known)
    return suggestion(near), near[0] if near else ""


def _why(loader: Loader, override: Override, error: Exception, made: Mapping[str, str | None] | None) -> Fault:
    """The fault of a choice that exists, but can't be made.

    Args:
        made: the choices of the config without this one; None if it can't be composed.
    """
    key, value = override.get_key_element().lstrip("+~"), format_value(override.value())
    if override.is_hydra_override():
        return hydra_job.rejected(key, override.value(), error)
    if made is not None:
        if override.is_add() and key in made:
            again = f"{key}={override.value()}"
            return Fault(key, value, "it is already chosen", f"write {key}=… without the +", fix=(again,))
        if not override.is_add() and key not in made:
            same = [each for each in made if each.startswith(f"{override.key_or_group}@")] or list(made)
            near = nearest(key, made)
            remedy = suggestion(near) or (f"possible choices: {', '.join(same[:6])}" if same else "")
            fix = (key, f"{near[0]}={override.value()}") if near else ()
            return Fault(key, value, "nothing in this config is chosen there", remedy, code=Code.NOT_IN_CONFIG, fix=fix)
        if override.is_delete() and override.value() not in (None, made[key]):
            remedy = f"remove it, or choose another: {key}=…"
            return Fault(key, value, f"the choice there is {made[key]}", remedy, fix=(key,))
    if isinstance(several := override.value(), list):
        of_sweep = "with -m" if loader.permission.caller is Caller.COMMAND_LINE else "with embexp.sweep"
        remedy = f"choose one, or {of_sweep} once for each: {key}={','.join(map(str, several))}"
        return Fault(key, value, "only one of these can be chosen", remedy)
    file = f"{override.key_or_group}/{override.value()}"
    if (fault := hydra_job.rejected_in_file(error)) is not None:
        return replace(fault, source=str(loader.folders.file(file) or ""))
    fault = broken(loader.folders, error, [file, loader.config_name])
    return Fault(key, value, fault.rule, fault.remedy, fault.source)


def lift(loader: Loader, selections: Sequence[Override], config: DictConfig) -> dict[str, Fault]:
    """Moves misplaced keys to the top of the config, or below its group, so that they can be checked.

    Returns:
        A fault for each file, by the place where its keys were.
    """
    strange = [str(key) for key in config if key != "hydra" and key not in RunSpec.model_fields]
    faults: dict[str, Fault] = {}
    merged = outline_of(loader.folders, loader.config_name, selections).merged if strange else ()
    for config_path, package, file in merged:
        group, _, choice = config_path.rpartition("/")
        others = [other for other in loader.folders.choices.get(group, {}).values() if other != file]
        global_group = any(package_of(other) == _GLOBAL for other in others)
        if package in ("", _GLOBAL) and group in RunSpec.model_fields and package_of(file) == _GLOBAL:
            keys = [key for key in strange if key in keys_of(file)]
            if keys and not global_group:
                place, rule = _GLOBAL, f"its keys belong to {group}, but it puts them at the top of the config"
                remedy = f"remove the line # @package {_GLOBAL}"
                with open_dict(config):
                    config[group] = {**(config.get(group) or {}), **{key: config.pop(key) for key in keys}}
                faults[place] = Fault(group, format_value(choice), rule, remedy, os.fspath(file))
        elif package in strange and (global_group or nearest(package, [_GLOBAL]) or package_of(file) == _GLOBAL):
            rule = f"its keys belong at the top of a config, but it puts them at {package!r}"
            remedy = f"begin the file with the line: # @package {_GLOBAL}"
            if file.read_bytes().startswith(_BYTE_ORDER_MARK):
                remedy = "save the file without a byte order mark, which hides its @package line"
            with open_dict(config), suppress(ConfigTypeError):  # a list where the config has a mapping: see the fault
                misplaced = config.pop(package, None)
                if OmegaConf.is_dict(misplaced):
                    config.merge_with(misplaced)
            faults[package] = Fault(group, format_value(choice), rule, remedy, os.fspath(file))
    return faults


_YAML_REMEDIES = (
    (ScannerError, "\t", "indent with spaces: YAML does not allow tabs"),
    (ScannerError, ":", "quote a text that contains a colon"),
    (ScannerError, "'\"", "close the quote"),
    (ScannerError, "", "write KEY: VALUE, with a space after the colon"),
    (ParserError, "[", "close the list with ]"),
    (ParserError, "{", "close the mapping with }"),
    (ParserError, "", "indent all keys of a mapping equally"),
    (ComposerError, "*", "quote a text that begins with *"),
    (ComposerError, "", "a file may hold only one document: remove the line ---"),
    (ConstructorError, "!", "a config may hold only plain values: remove the tag"),
    (ConstructorError, "[{", "quote the key"),
    (ConstructorError, "", "remove one of the two"),
)
"""What to do, by the kind of PyYAML's error and the character where what it can't read begins."""
_OVERRIDE = "in a defaults list, write - override /GROUP: CHOICE after the files that it includes"


def broken(folders: Folders, error: Exception, composed: Iterable[str]) -> Fault:
    """The fault of config files that can't be composed.

    Args:
        composed: the requested configs, such as `config` and `optimizer/adam`, the likely culprit first.
    """
    composed = list(composed)
    if isinstance(error, MissingConfigException):
        return _missing(folders, error, composed)
    if isinstance(error, RecursionError):
        file = folders.file(composed[0])
        if composed[0] not in outline(folders, composed[0]).named_by:
            rule, remedy = "one of its values contains itself", "remove the alias"
        else:
            rule, remedy = "its defaults include the file itself", "remove it from its own defaults"
        return Fault("", "its files", rule, remedy, str(file or ""))
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return _invalid(error.problem_mark.name, error)
    files = [file for each in composed for file in outline(folders, each).files]
    for file in files:
        if (found := unreadable(file)) is not None:
            return found
    if isinstance(error, AssertionError):
        return Fault(
            "", "its files", "the defaults list of one of them has an entry without a group", "write - GROUP: CHOICE"
        )
    rule, more = f"they can't be composed: {first_line(error)}", " ".join(lines(error)[1:])
    if isinstance(error, ConfigCompositionException) and error.__cause__ is None:
        more = more or _OVERRIDE
    return Fault("", "its files", rule, more, str(folders.file(composed[0]) or ""))


def _missing(folders: Folders, error: MissingConfigException, composed: list[str]) -> Fault:
    missing = error.missing_cfg_file or ""
    group, _, choice = missing.rpartition("/")
    where = listing(map(str, folders.in_order))
    if not group:
        configs = sorted({path.stem for folder in folders.in_order for path in folder.glob("*.yaml")})
        near = did_you_mean(choice, configs) or f"there {'are' if len(configs) > 1 else 'is'} {listing(configs)}"
        groups = [each for each, choices in folders.choices.items() if choice in choices]
        remedy = f"choose it with {groups[0]}={choice}" if groups else near
        return Fault("--config-name", format_value(choice), f"there is no file {missing}.yaml in {where}", remedy)
    named_by = next((file for each in composed if (file := outline(folders, each).named_by.get(missing))), "")
    return Fault(
        group,
        format_value(choice),
        f"there is no file {missing}.yaml in {where}",
        did_you_mean(choice, error.options or folders.choices.get(group, {})),
        str(named_by),
    )


def _line(file: Path, entry: str) -> int | None:
    """The first line of a file that begins as a pattern does."""
    lines = file.read_text(encoding="utf-8").splitlines()
    return next((number for number, text in enumerate(lines, 1) if re.match(entry, text)), None)


def _invalid(file: str | Path, error: yaml.MarkedYAMLError) -> Fault:
    if isinstance(error, Refused):
        return error.fault
    rule, mark = f"it is not valid YAML: {error.problem}", error.problem_mark
    if mark is None:
        return Fault("", "a file", rule, "", str(file))
    begin = mark if error.context_mark is None or isinstance(error, ConstructorError) else error.context_mark
    line = "".join(Path(file).read_text(encoding="utf-8").splitlines()[begin.line : begin.line + 1])
    character = line[begin.column : begin.column + 1]
    remedies = (
        remedy
        for kind, characters, remedy in _YAML_REMEDIES
        if isinstance(error, kind) and (not characters or (character and character in characters))
    )
    return Fault("", "a file", rule, next(remedies, ""), f"{file}:{mark.line + 1}")


def unreadable(file: Path) -> Fault | None:
    """The fault of a file that holds no text, or no mapping; None: it does."""
    try:
        checked(file)
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)  # with the messages of Hydra's
    except UnicodeDecodeError as error:
        line = file.read_bytes()[: error.start].count(b"\n") + 1
        return Fault("", "a file", "it is not UTF-8", "save it as UTF-8", f"{file}:{line}")
    except FileNotFoundError:
        return Fault("", "a file", "it is a link to a file that does not exist", "", str(file))
    except OSError as error:
        what = "it is a folder" if file.is_dir() else f"it can't be read: {error.strerror}"
        return Fault("", "a file", what, "", str(file))
    except yaml.MarkedYAMLError as error:
        return _invalid(file, error)
    except (ValueError, yaml.YAMLError) as error:
        return Fault("", "a file", f"it is not valid YAML: {first_line(error)}", "", str(file))
    if content is None:
        return None
    if isinstance(content, dict):
        defaults = content.get("defaults", [])
        entries = defaults if isinstance(defaults, list) else [0]
        if any(not isinstance(entry, str | dict) for entry in entries):
            rule = f"its defaults must be a list of choices, but they are {format_value(defaults)}"
            return Fault("", "a file", rule, "write - GROUP: CHOICE", f"{file}:{_line(file, 'defaults:') or 1}")
        return None
    what = "a list" if isinstance(content, list) else format_value(content)
    return Fault("", "a file", f"a config must be a mapping of keys, but this is {what}", "write KEY: VALUE", str(file))
