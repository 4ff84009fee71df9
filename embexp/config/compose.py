"""Composes files and overrides to one plain container, with interpolations resolved.

Each of `b: ${a}${a}`, `c: ${b}${b}`, … doubles the last one, so thirty short lines stand for a text of a gigabyte: what
an interpolation stands for is counted before it is resolved.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, ListConfig, OmegaConf, open_dict
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException, UnsupportedInterpolationType

from embexp.config import hydra_checks, hydra_globals, named_code, patterns, record, resources, validate, values
from embexp.config.loader import Loader
from embexp.config.messages import did_you_mean, format_value
from embexp.config.overrides import is_selection, parse, with_additions
from embexp.config.patterns import Expansion
from embexp.config.permission import OWN_MODULES, Permission
from embexp.config.resources import data_columns
from embexp.config.selections import hydra_in_files, lift, select
from embexp.config.sources import Sources
from embexp.errors import ConfigError, Fault

_PATHS_OF_TABLES = (
    "pretrained.path",
    "pretrained.tokens_file",
    *(f"{rule}.{file}" for rule in ("freeze", "freeze.phases.*.rules.*") for file in ("tokens_file", "mask_file")),
)
_PATHS = (
    "data.path",
    "output.cache",
    "restore.path",
    *_PATHS_OF_TABLES,
    *(f"tables.*.{path}" for path in _PATHS_OF_TABLES),
)
"""Values that are paths, * for any key or place in a list. They are made absolute, so that a finished run can be loaded
from any directory."""
_OF_THE_APP = re.compile(r"\$\{(?!hydra[.:]|now:)")
"""An interpolation whose value may differ from job to job."""
MOST = 10_000
"""Values that an interpolation may stand for, with all that these refer to."""
_REFERENCE = re.compile(r"\$\{(\.*)([^${}:]*)\}")


@dataclass(frozen=True)
class Composition:
    """A composed config.

    Attributes:
        config: Hydra's config, with its own settings under `hydra`; interpolations are not resolved.
        container: plain dicts, lists and scalars with interpolations resolved; without `hydra` and without values that
            can't be resolved.
        sources: the source of each value.
        added: keys that plain overrides added to those of the files.
        permission: which code it may name.
    """

    config: DictConfig
    container: dict[str, Any]
    faults: tuple[Fault, ...]
    sources: Sources
    added: frozenset[str] = frozenset()
    permission: Permission = OWN_MODULES
    expansion: Expansion = field(default_factory=Expansion)


def compose(loader: Loader, overrides: Sequence[str]) -> Composition:
    """Composes a config with all overrides that can be applied; the others become faults.

    Raises:
        ConfigError: the files can't be composed at all.
    """
    parsed, faults = parse(loader, overrides)
    choices = with_additions(loader, [each for each in parsed if is_selection(loader.folders, each)])
    config, selections, rejected = select(loader, choices)
    lifted = lift(loader, selections, config)
    faults += [*rejected, *lifted.values()]
    applied, added, expansion = [], set(), None
    rest = [each for each in parsed if not is_selection(loader.folders, each)]
    for override in sorted(rest, key=lambda each: not _of_data(each)):  # whose columns patterns match
        if expansion is None and not _of_data(override):
            expansion = _expand(config)
        plain = not (override.is_add() or override.is_force_add() or override.is_delete())
        key = override.key_or_group
        new = plain and not (values.is_present(config, key) and (expansion is None or not expansion.made(key)))
        fault = values.apply(loader.folders, override, config)
        if fault is not None:
            faults.append(fault)
            continue
        applied.append(override)
        if new:
            added.add(key)
    expansion = _expand(config) if expansion is None else expansion
    applied = [each for each in rest if each in applied]
    record.note_overrides([each for each in parsed if each in selections or each in applied], config)

    sources = Sources(loader, selections, applied, lifted, expansion.origins)
    check_interpolations(config)
    of_hydra = _hydra_faults(loader, selections, config)
    faults += validate.with_sources([*of_hydra, *expansion.faults], sources.describe)
    with hydra_globals.recorded(config):
        container, unresolved = resolved(config, Path.cwd())
    faults += [Fault(f.path, f.value, f.rule, f.remedy, sources.describe(f.path)) for f in unresolved]
    return Composition(config, container, tuple(faults), sources, frozenset(added), loader.permission, expansion)


def _hydra_faults(loader: Loader, selections: Sequence[Override], config: DictConfig) -> Sequence[Fault]:
    """The faults of the node `hydra`, which most jobs of a sweep have in common."""
    key = tuple(str(each.input_line) for each in selections)
    if key in loader.hydra_faults:
        return loader.hydra_faults[key]
    found = list(hydra_checks.faults(config, hydra_in_files(loader, selections), loader.permission))
    with hydra_globals.recorded(config):
        found += _directories(config)
    written: Any = OmegaConf.to_container(config.hydra, resolve=False)
    if not any(_OF_THE_APP.search(str(written.get(kind))) for kind in (*named_code.NODES, "run", "sweep")):
        loader.hydra_faults[key] = tuple(found)
    return found


def _of_data(override: Override) -> bool:
    """Whether an override is about the data, but not about a column by its name."""
    key = override.key_or_group
    return key.partition(".")[0] == "data" and not key.startswith(f"data.{patterns.DENSE}.")


def _expand(config: DictConfig) -> Expansion:
    """Replaces the patterns of a composed config by what they stand for, in place."""
    places = ("data", *patterns.PLACES)
    written = {key: OmegaConf.to_container(config[key]) for key in places if OmegaConf.is_dict(config.get(key))}
    if not patterns.present(written):
        return Expansion()

    def columns() -> Sequence[str]:
        check_interpolations(config)
        with hydra_globals.recorded(config):
            container, _ = resolved(config, Path.cwd())
        return data_columns(container.get("data"))

    done = patterns.expand(written, columns)
    with open_dict(config):
        for place in patterns.PLACES:
            if place in written:
                config[place] = written[place]
        if "data" in written:
            config.data = written["data"]
    return done


def resolved(config: DictConfig, folder: Path, without: Sequence[str] = ()) -> tuple[dict[str, Any], list[Fault]]:
    """A config as plain dicts, lists and scalars, and the faults of values that can't be resolved.

    Args:
        folder: from which relative paths start.
        without: keys at its top to leave out, beside `hydra`.
    """
    faults: list[Fault] = []
    found = _resolved(config, config, "", faults)
    container = {str(key): value for key, value in found.items() if key != "hydra" and key not in without}
    twice = resources.fill_path(container)
    if resources.name_of(container.get("data")) is not None:
        faults = [*twice, *(each for each in faults if each.path != "data.path")]
    absolute_paths(container, folder)
    return container, [each for each in faults if each.path.partition(".")[0] not in without]


def absolute_paths(container: dict[str, Any], folder: Path) -> None:
    """Makes all paths of a plain config absolute, in place.

    Args:
        folder: from which relative paths start.
    """
    for path in _PATHS:
        _make_absolute(container, path.split("."), folder)


def _resolved(root: DictConfig, node: DictConfig, prefix: str, faults: list[Fault]) -> dict[Any, Any]:
    """A mapping as a plain dict, without values that can't be resolved; each of those becomes a fault."""
    found: dict[Any, Any] = {}
    for key in node.keys():  # noqa: SIM118 — items() would resolve, and stop at the first fault
        path = f"{prefix}{key!s}"
        if path == "hydra":
            continue
        if OmegaConf.is_missing(node, key):
            faults.append(Fault(path, "nothing", "it must be given", f"set {path}=…"))
            continue
        try:
            value = node[key]
            if isinstance(value, DictConfig):
                found[key] = _resolved(root, value, f"{path}.", faults)
            elif isinstance(value, ListConfig):
                found[key] = OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
            else:
                found[key] = value
        except OmegaConfBaseException as error:
            written = OmegaConf.to_container(node, resolve=False)
            text = str(written[key]) if isinstance(written, dict) else ""
            faults.append(_unresolved(path, text, error, root))
    return found


def _directories(config: DictConfig) -> list[Fault]:
    """The faults of directories of runs that can't be resolved; that of a job is, once its number is known."""
    faults = []
    for path in hydra_checks.DIRECTORIES[:2]:
        try:
            OmegaConf.select(config, path)
        except OmegaConfBaseException as error:
            written: Any = OmegaConf.to_container(config.hydra, resolve=False)
            text = str(written[path.split(".")[1]]["dir"])
            faults.append(_unresolved(path, text, error, config))
    return faults


def _unresolved(path: str, text: str, error: OmegaConfBaseException, root: DictConfig) -> Fault:
    """The fault of a value with an interpolation that can't be resolved."""
    first = str(error).splitlines()[0].rstrip(".")
    rule, remedy = f"it can't be resolved: {first}", ""
    if found := re.search(r"Environment variable '([^']+)' not found", first):
        rule = f"the environment has no variable {found[1]}"
        remedy = f"set it before the command, or give a default: ${{oc.env:{found[1]},VALUE}}"
    elif found := re.search(f"{hydra_globals.SECRET}'([^']+)'", first):
        rule = f"by its name, the environment variable {found[1]} is a secret, and a run records its config"
        remedy = f"if you want that, give it on the command line: '{path}=${{oc.env:{found[1]}}}'"
    elif isinstance(error, InterpolationKeyError) and (found := re.search(r"key '([^']+)' not found", first)):
        known = set(values.paths(OmegaConf.to_container(root))) - {path}
        remedy = did_you_mean(found[1], known) or "write \\${…} for a text with ${…}"
    elif isinstance(error, UnsupportedInterpolationType):
        remedy = "interpolations are ${KEY}, ${oc.env:VARIABLE} and ${now:FORMAT}"
    return Fault(path, text, rule, remedy)


def _make_absolute(section: Any, path: Sequence[str], folder: Path) -> None:
    key, *rest = path
    if key == "*" and isinstance(section, dict | list):
        for inner in section.values() if isinstance(section, dict) else section:
            _make_absolute(inner, rest, folder)
    elif not isinstance(section, dict) or key not in section:
        return
    elif rest:
        _make_absolute(section[key], rest, folder)
    elif isinstance(section[key], str) and section[key]:
        section[key] = _absolute(section[key], folder)
    elif isinstance(section[key], list):
        section[key] = [_absolute(each, folder) if isinstance(each, str) and each else each for each in section[key]]


def _absolute(path: str, folder: Path) -> str:
    return os.path.abspath(folder / os.path.expanduser(path))


def check_interpolations(config: DictConfig) -> None:
    """Checks the number of values that each interpolation stands for.

    Raises:
        ConfigError: it is too large; with a fault for the first such value.
    """
    content: Any = OmegaConf.to_container(config, resolve=False)
    counted: dict[str, int] = {}

    def count(path: str, value: Any) -> int:
        if path in counted:
            return counted[path]
        counted[path] = 1  # of a value that leads back to itself, which resolving reports
        found = 1
        if isinstance(value, Mapping | list):
            items = value.items() if isinstance(value, Mapping) else enumerate(value)
            found += sum(count(f"{path}.{key}" if path else str(key), each) for key, each in items)
        elif isinstance(value, str) and "${" in value:
            for dots, key in _REFERENCE.findall(value):
                target = ".".join(filter(None, [*path.split(".")[: -len(dots)], key])) if dots else key
                found += count(target, _at(content, target))
            if found > MOST:
                rule = f"its interpolations stand for more than {MOST:,} values"
                raise ConfigError(
                    [Fault(path, format_value(value), rule, "refer to fewer values that refer to others")]
                )
        counted[path] = found
        return found

    if isinstance(content, dict):
        for key, value in content.items():
            count(str(key), value)


def _at(node: Any, path: str) -> Any:
    for key in filter(None, path.replace("[", ".").replace("]", "").split(".")):
        if isinstance(node, list) and key.isdecimal() and int(key) < len(node):
            node = node[int(key)]
        else:
            node = node.get(key) if isinstance(node, Mapping) else None
    return node
