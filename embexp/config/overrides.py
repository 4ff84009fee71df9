"""Applying overrides one by one, so that each bad one is named and the good ones still count."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from hydra.core.override_parser.types import Override, ValueType
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from embexp.config.loader import COMPLAINTS, Loader
from embexp.config.nearest import did_you_mean, listing
from embexp.config.shown import shown
from embexp.errors import ConfigError, Fault

_DEEPEST = 32
"""Hydra and OmegaConf would run out of stack at about a hundred."""
_OF_NAMES = ("tables", "features")
"""Mappings whose keys are names: a new one must be meant (`+`), or a typo would make a new table."""


def parse(loader: Loader, texts: Iterable[str], *, sweeping: bool = False) -> tuple[list[Override], list[Fault]]:
    """Overrides in their parts, and a fault for each that is none, or has several values without `sweeping`."""
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
            faults.append(Fault(text, "unreadable", rule, _of_syntax(text, detail)))
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


def is_selection(loader: Loader, override: Override) -> bool:
    """Whether an override chooses a file (or speaks to Hydra itself) rather than setting a value."""
    if override.is_hydra_override():
        return True
    return loader.is_group(override.key_or_group) and not isinstance(override.value(), dict)


def select(loader: Loader, selections: Sequence[Override]) -> tuple[DictConfig, list[Override], list[Fault]]:
    """Composes the config of some choices, leaving out those that can't be.

    Returns:
        The config, the choices that are in it, and a fault for each one left out.

    Raises:
        ConfigError: the files can't be put together whatever is chosen.
    """
    kept, faults = [], []
    for override in selections:
        fault = _unknown_choice(loader, override)
        if fault is None:
            kept.append(override)
        else:
            faults.append(fault)
    while True:
        try:
            return loader.compose([str(each.input_line) for each in kept]), kept, faults
        except COMPLAINTS as error:
            if not kept:
                raise ConfigError([*faults, _in_files(loader, error)]) from error
            culprit = _culprit(loader, kept, error)
            kept = [each for each in kept if each is not culprit]
            faults.append(_not_selected(loader, culprit, kept, error))


def apply(loader: Loader, override: Override, config: DictConfig) -> Fault | None:
    """Sets a value in a composed config, or says why that can't be.

    A plain `key=value` whose key is not there is set all the same where it could be an option that the files
    only don't mention; the check of the whole config then tells whether it is one.
    """
    key = override.key_or_group
    if override.package is not None:
        remedy = did_you_mean(key, loader.folders.choices()) or "`embexp run --help` lists the groups"
        return Fault(override.get_key_element(), shown(override.value()), f"there is no group {key!r}", remedy)
    try:
        present = is_present(config, key)
        if override.is_delete() or override.is_force_add():
            if override.is_delete() and not present:
                return _unknown_key(config, override)
            loader.apply(override, config)
        elif override.is_add():
            if present and not isinstance(override.value(), dict | list):
                rule = "+ adds a key, and this one is there already"
                return Fault(key, shown(override.value()), rule, f"write {key}=… without the +")
            loader.apply(override, config)
        elif present:
            loader.apply(override, config)
        elif _may_be_an_option(config, key):
            OmegaConf.update(config, key, override.value(), merge=True, force_add=True)
        else:
            return _unknown_key(config, override)
    except (HydraException, OmegaConfBaseException) as error:
        return Fault(key, shown(override.value()), f"the override can't be applied: {_first_line(error)}")
    return None


def _of_syntax(text: str, detail: str) -> str:
    if "=" not in text and not text.startswith("~"):
        return "the = is missing"
    return f"quote the value, and once more for the shell: key=\"'value'\" ({detail})"


def _unknown_choice(loader: Loader, override: Override) -> Fault | None:
    """A fault if an override chooses a file that is not there, or what can't be one."""
    group, choice = override.key_or_group, override.value()
    if loader.is_group(group) and not all(isinstance(each, str | None) for each in _each(choice)):
        return Fault(override.get_key_element(), shown(choice), "a choice is the name of a file, or a list of names")
    if override.is_hydra_override() or override.is_delete():
        return None
    choices = loader.folders.choices().get(group, {})
    if choice is None or isinstance(choice, list) or choice in choices:
        return None
    rule = f"group {group} has {listing(choices)}"
    return Fault(override.get_key_element(), shown(choice), rule, did_you_mean(str(choice), choices))


def _each(choice: object) -> Sequence[object]:
    return choice if isinstance(choice, list) else [choice]


def _culprit(loader: Loader, selections: Sequence[Override], error: Exception) -> Override:
    """The choice that keeps the others from being put together."""
    named = re.search(r"Could not override '([^']*)'", str(error))
    for override in selections:
        if named and override.get_key_element().lstrip("+~") == named[1]:
            return override
    for count in range(1, len(selections)):
        try:
            loader.compose([str(each.input_line) for each in selections[:count]])
        except COMPLAINTS:
            return selections[count - 1]
    return selections[-1]


def _not_selected(loader: Loader, override: Override, others: Sequence[Override], error: Exception) -> Fault:
    """Why a choice that is there can't be made."""
    key = override.get_key_element().lstrip("+~")
    value = shown(override.value())
    if override.is_hydra_override():
        return Fault(key, value, f"Hydra does not take this: {_first_line(error)}")
    if "Could not override" in str(error) or "Could not delete" in str(error):
        try:
            config = loader.compose([str(each.input_line) for each in others])
            known = [each for each in config.hydra.runtime.choices if not each.startswith("hydra/")]
        except COMPLAINTS:
            known = []
        same = [each for each in known if each.startswith(f"{override.key_or_group}@")] or known
        near = did_you_mean(key, known)
        remedy = near or (f"what can be chosen: {', '.join(same[:6])}" if same else "")
        return Fault(key, value, "nothing in this config is chosen there", remedy)
    if "Multiple values for" in str(error) or "more than once" in str(error) or "appears more" in str(error):
        return Fault(key, value, "it is chosen already", f"write {key}=… without the +")
    fault = _in_files(loader, error)
    return Fault(key, value, fault.rule, fault.remedy, fault.source)


def _in_files(loader: Loader, error: Exception) -> Fault:
    """A fault of the config files themselves."""
    if isinstance(error, MissingConfigException):
        missing = error.missing_cfg_file or loader.config_name
        group, _, choice = missing.rpartition("/")
        by = re.search(r"In '([^']*)'", str(error))
        file = loader.folders.file(by[1]) if by else None
        known = error.options or loader.folders.choices().get(group, {})
        return Fault(
            group,
            shown(choice),
            f"there is no file {missing}.yaml in {listing(map(str, loader.folders.in_order))}",
            did_you_mean(choice, known),
            str(file or ""),
        )
    if isinstance(error, RecursionError):
        return Fault("", "its files", "one of them leads back to itself")
    if isinstance(error, AssertionError):
        return Fault("", "its files", "the defaults of one of them name no group")
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        problem = getattr(error, "problem", None) or "it can't be read"
        return Fault("", "a file", f"it is no valid YAML: {problem}", source=f"{mark.name}:{mark.line + 1}")
    return Fault("", "its files", f"they can't be put together: {_first_line(error)}")


def is_present(config: DictConfig, path: str) -> bool:
    """Whether a config has a key, be its value missing."""
    parent, _, last = path.rpartition(".")
    node = _node(config, parent)
    return isinstance(node, DictConfig) and last in node.keys()  # noqa: SIM118 — `in node` is False for `???`


def _node(config: DictConfig, path: str) -> object:
    try:
        return OmegaConf.select(config, path) if path else config
    except OmegaConfBaseException:
        return None


def _may_be_an_option(config: DictConfig, key: str) -> bool:
    """Whether a key that the files don't mention lies where only options can be, so that the grammar can judge it."""
    parent = key.rpartition(".")[0]
    free = parent in _OF_NAMES or parent == "model.args" or parent.startswith("model.args.")
    return not free and isinstance(_node(config, parent), DictConfig)


def _unknown_key(config: DictConfig, override: Override) -> Fault:
    key = override.key_or_group
    choices = [each for each in config.hydra.runtime.choices if not each.startswith("hydra/")]
    value = "a removal" if override.is_delete() else shown(override.value())
    parent = key
    while parent := parent.rpartition(".")[0]:
        group = next((each for each in choices if each.endswith(f"@{parent}")), None)
        if group is not None and config.hydra.runtime.choices[group] is None:
            return Fault(key, value, f"{parent} is not set here, so it has no keys", f"choose one first: {group}=…")
        if is_present(config, parent):
            break
    if key.startswith("model.args."):
        near = f"the function's own arguments are added with +, as +{override.input_line}"
    else:
        known = [path for path in (*_paths(config), *choices) if not key.startswith(f"{path}.")]
        near = did_you_mean(key, known)
    return Fault(key, value, "there is no such key in this config", near)


def _paths(node: DictConfig, prefix: str = "") -> list[str]:
    """Every dotted path of a config, without Hydra's own."""
    found = []
    for key in node:
        path = f"{prefix}{key!s}"
        if path == "hydra":
            continue
        found.append(path)
        child = node._get_node(key)
        if isinstance(child, DictConfig) and not child._is_none() and not child._is_missing():
            found += _paths(child, f"{path}.")
    return found


def _first_line(error: BaseException) -> str:
    """The first line of a complaint, or of what caused it where it says nothing itself."""
    text = str(error).strip()
    if not text and error.__cause__ is not None:
        return _first_line(error.__cause__)
    return text.split("\n")[0].rstrip(".") or type(error).__name__
