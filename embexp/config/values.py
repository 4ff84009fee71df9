"""Sets the values of a composed config, one override at a time, so that each fault names its override."""

from __future__ import annotations

from collections.abc import Iterator

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from embexp.config.folders import Folders
from embexp.config.messages import did_you_mean, format_value
from embexp.config.selections import choices
from embexp.errors import Fault

_KEYED_BY_NAME = ("tables", "features")
"""Mappings with names as keys: a new key needs `+`, as a typo would otherwise create a new table."""


_NUMERIC = "data.dense_features"
"""A list of names, or a mapping of names to a transform, or to settings."""


def apply(folders: Folders, override: Override, config: DictConfig) -> Fault | None:
    """Sets a value in a composed config as Hydra would; returns a fault if that is impossible.

    A plain `key=value` with a new key is set if it could be an option that no file mentions; the validation of the
    whole config then decides.
    """
    key, value = override.key_or_group, override.value()
    if override.package is not None:
        remedy = did_you_mean(key, folders.choices) or "`embexp run --help` lists the groups"
        return Fault(override.get_key_element(), format_value(value), f"there is no group {key!r}", remedy)
    try:
        if override.is_delete():
            return _remove(override, config)
        groups = choices(config) if isinstance(value, str) and isinstance(_node(config, key), DictConfig) else ()
        if (group := next((each for each in groups if each.endswith(f"@{key}")), None)) is not None:
            return Fault(key, format_value(value), "it is a mapping of keys", f"choose a file: {group}={value}")
        present = is_present(config, key)
        taken = present or _node(config, key) is not None  # a list item is not a key, but can't be added either
        if override.is_add() and taken and not isinstance(value, dict | list):
            rule = "+ adds a key, and this one already exists"
            return Fault(key, format_value(value), rule, f"write {key}=… without the +")
        _as_mappings(config, key, value)
        prefixed = override.is_add() or override.is_force_add()
        if not (prefixed or present or _may_be_an_option(config, key)):
            return _unknown_key(config, override)
        known = isinstance(value, dict) and _may_be_an_option(config, f"{key}.")
        OmegaConf.update(config, key, value, merge=True, force_add=prefixed or known or not present)
    except OmegaConfBaseException as error:
        if isinstance(value, list) and isinstance(_node(config, key), DictConfig):
            return Fault(
                key, format_value(value), "it is a mapping, and this is a list", f"write {key}.NAME=… for each key"
            )
        remedy = f"add keys with +: +{override.input_line}" if isinstance(value, dict) and value else ""
        rule = f"the override can't be applied: {str(error).splitlines()[0].rstrip('.')}"
        return Fault(key, format_value(value), rule, remedy)
    except ValueError:  # OmegaConf's, of a place in a list
        return Fault(
            key,
            format_value(value),
            "places in a list are numbers",
            f"write {key.rpartition('.')[0]}=[…] for the whole list",
        )
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
        return Fault(
            key, "a removal", f"its value is {format_value(value)}, not {format_value(expected)}", f"write ~{key}"
        )
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
            return Fault(key, value, f"{parent} is not set, so it has no keys", f"choose one first: {group}=…")
        if is_present(config, parent):
            break
    parent = key.rpartition(".")[0]
    if isinstance(_node(config, parent), ListConfig):
        near = f"a list is set as a whole: {parent}=[…]"
    elif key.startswith("model.args."):
        near = f"add arguments of the function with +: +{override.input_line}"
    else:
        known = paths(OmegaConf.to_container(config))
        near = did_you_mean(key, [path for path in (*known, *made) if not key.startswith(f"{path}.")])
    return Fault(key, value, "there is no such key in this config", near)


def paths(node: object, prefix: str = "") -> Iterator[str]:
    """Every dotted path of a config, without Hydra's own."""
    for key, child in node.items() if isinstance(node, dict) else ():
        path = f"{prefix}{key!s}"
        if path != "hydra":
            yield path
            yield from paths(child, f"{path}.")
