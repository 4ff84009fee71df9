"""Checks the node `hydra` of a config: each of its settings has an effect, or is a fault."""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePath
from typing import Any

import yaml
from hydra.core.override_parser.types import Override
from hydra.errors import MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from embexp.config import hydra_globals, named_code, yaml_files
from embexp.config.hydra_settings import SETTINGS, Use, setting_at
from embexp.config.messages import did_you_mean, format_value, listing
from embexp.config.permission import Permission
from embexp.errors import Fault
from embexp.system import user_code

_KNOWN = tuple(each.path for each in SETTINGS if each.use is not Use.NEVER)
_IN_RUNS = {
    "hydra.job.chdir": "leave it false: each job has a directory of its own, and relative paths keep their meaning",
    "hydra.job.env_set": "set the variables before the command, whose jobs have them, too",
    "hydra.job_logging": "hydra/job_logging=none; the output of a job is in its run.log",
}
"""Settings that the jobs of a sweep don't have, and what to do instead."""
DIRECTORIES = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")
_TYPES = {
    "not a valid bool": "it must be true or false",
    "to Integer": "it must be a whole number",
    "to string": "it must be text",
    "to Dict": "it must be a mapping of keys",
    "with ListConfig": "it must be a mapping of keys",
    "not Optional": "it must not be null",
}
"""What a value must be, by a part of what OmegaConf says."""
_GROUPS = ("hydra.output", "hydra.env")
"""Groups of Hydra whose files set keys elsewhere in its node."""


def faults(config: DictConfig, in_files: Any, permission: Permission) -> Iterator[Fault]:
    """The faults of the node `hydra`; those of refused overrides are `refused`'s.

    Args:
        permission: which code it may name.
        in_files: the content of the node in the files of the config, as nested mappings.
    """
    for path, value in _leaves(in_files, "hydra"):
        if (fault := _unusable(path, value)) is not None:
            yield fault
    yield from _value_faults(config)
    yield from named_code.faults(config, permission)


def searchpath_fault(file: Path | None) -> Fault | None:
    """The fault of a primary config that sets `hydra.searchpath`: composing it would import the packages that it names.

    Args:
        file: of the primary config; None: there is none.
    """
    try:
        if file is None or "searchpath" not in yaml_files.checked(file):
            return None
        value = OmegaConf.select(OmegaConf.load(file), "hydra.searchpath")  # as Hydra does
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException):  # which composing reports
        return None
    fault = None if value is None else _unusable("hydra.searchpath", value)
    return None if fault is None else replace(fault, source=str(file))


def refused(override: Override) -> Fault | None:
    """The fault of an override of a setting that does not exist, or that embexp refuses; None: it is neither."""
    key, value = override.key_or_group, override.value()
    found = [(key.replace("/", "."), value)] if "/" in key else list(_leaves(value, key))
    if key in ("hydra.launcher._target_", "hydra.sweeper._target_"):
        group = key.removesuffix("._target_").replace(".", "/")
        return Fault(key, format_value(value), f"the group {group} sets it", f"choose one: {group}=NAME")
    if override.is_delete():
        return Fault(key, "a removal", "a setting of Hydra can't be removed", "leave it out")
    return next(filter(None, (_unusable(path, each) for path, each in found)), None)


def _unusable(path: str, value: Any) -> Fault | None:
    setting = setting_at(path)
    if setting is None:
        if path in _GROUPS:
            return None
        return Fault(path, format_value(value), "there is no such setting of Hydra", did_you_mean(path, _KNOWN))
    return Fault(path, format_value(value), setting.text, setting.remedy) if setting.use is Use.NEVER else None


def without_effect(overrides: Iterable[Override], *, multirun: bool) -> Iterator[Fault]:
    """The faults of overrides on the command line that have an effect only in a sweep, or only outside of one."""
    for override in overrides:
        setting = setting_at(override.key_or_group) if override.is_hydra_override() else None
        key = override.get_key_element().lstrip("+~")
        if override.is_hydra_override() and override.is_sweep_override():
            rule = "a setting of Hydra has one value, the same for all jobs"
            yield Fault(key, str(override.input_line).partition("=")[2], rule, "give one value")
        elif (
            setting is not None and setting.path not in _IN_RUNS and setting.use is (Use.RUN if multirun else Use.SWEEP)
        ):
            remedy = (
                "leave it out; the directory of a sweep is hydra.sweep.dir" if multirun else "add -m, or leave it out"
            )
            rule = f"it has an effect in {setting.use} only"
            yield Fault(key, format_value(override.value()), rule, remedy)


def sweep_faults(config: DictConfig) -> Iterator[Fault]:
    """The faults of settings that only a single run has an effect from, whether an override or a file sets them."""
    for path, where in _IN_RUNS.items():
        value = _plain(config, path)
        if value.get("root") if path == "hydra.job_logging" and isinstance(value, Mapping) else value:
            yield Fault(path, format_value(value), "the jobs of a sweep are processes of embexp's own", where)
    yield from _plugin_faults(config, "sweeper")


def not_in_python(overrides: Iterable[Override]) -> Iterator[Fault]:
    """The faults of settings of Hydra where a spec is composed, which has none."""
    for override in overrides:
        if override.is_hydra_override():
            key, rule = override.get_key_element().lstrip("+~"), "a spec has no settings of Hydra"
            directory = "embexp.run(spec, directory)" if key == "hydra.run.dir" else ""
            yield Fault(key, format_value(override.value()), rule, directory or "leave it out; `embexp run` takes it")


def _plugin_faults(config: DictConfig, kind: str) -> Iterator[Fault]:
    """The faults of the keys of the launcher or the sweeper: their class decides which ones there are.

    Args:
        kind: launcher or sweeper.
    """
    node: Any = OmegaConf.to_container(config.hydra[kind], resolve=False)
    settings: dict[str, Any] = node if isinstance(node, dict) else {}
    target = settings.get("_target_")
    try:
        plugin = named_code.plugins()[str(target)]
        parameters = inspect.signature(plugin).parameters
    except (KeyError, ValueError, TypeError) as error:
        why = "no installed plugin of Hydra has this class" if isinstance(error, KeyError) else _first_line(error)
        rule = f"there is no such {kind}: {why}"
        yield Fault(f"hydra.{kind}._target_", format_value(target), rule, f"choose one: hydra/{kind}=NAME")
        return
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values()):
        return
    for key, value in settings.items():
        if key not in parameters and not key.startswith("_"):
            known = ", ".join(parameters) or "none"
            near = did_you_mean(key, parameters) or f"its keys: {known}"
            choice = str(config.hydra.runtime.choices.get(f"hydra/{kind}"))
            yield Fault(f"hydra.{kind}.{key}", format_value(value), f"the {kind} {choice} has no key {key!r}", near)


def rejected(override: Override, error: Exception, in_files: Any) -> Fault:
    """The fault of a setting that Hydra does not compose.

    Args:
        override: the setting, or a choice of one of Hydra's groups.
        in_files: as for `faults`.
    """
    key, value, setting = override.get_key_element().lstrip("+"), override.value(), setting_at(override.key_or_group)
    if isinstance(error, MissingConfigException) and error.options:
        rule = f"group {override.key_or_group} has {listing(error.options)}"
        near = did_you_mean(value, error.options) if isinstance(value, str) else ""
        return Fault(key, format_value(value), rule, near)
    if setting is not None and setting.path in DIRECTORIES:
        return Fault(key, format_value(value), "it must be a folder", f"{key}=DIR, or leave it out")
    unknown = error.__cause__ is not None and "not in" in str(error.__cause__)
    free = key.count(".") > 2  # a mapping that the launcher hands on, such as hydra.launcher.ray.init
    if unknown and setting is not None and setting.path in ("hydra.launcher", "hydra.sweeper") and not free:
        near = did_you_mean(key, [*_keys_of_type(error.__cause__, setting.path)] or _own_keys(in_files))
        return Fault(key, format_value(value), f"the {setting.path.rpartition('.')[2]} has no such key", near)
    if unknown and setting is not None and setting.is_node and not override.is_add():
        return Fault(key, format_value(value), "no file sets it", f"add it with +: +{override.input_line}")
    first = _first_line(error.__cause__ or error)
    rule = next((rule for part, rule in _TYPES.items() if part in first), f"Hydra rejects this: {first}")
    if found := re.search(r"expected one of \[(.*)\]", first):
        rule = f"it must be {listing(found[1].split(', '))}"
    return Fault(key, format_value(value), rule)


def rejected_in_file(error: Exception) -> tuple[str, str, str, str] | None:
    """Path, value, rule and remedy of a setting in a file that Hydra does not have; None: it rejects something else."""
    cause: BaseException | None = error
    while cause is not None and getattr(cause, "full_key", None) is None:
        cause = cause.__cause__ or cause.__context__
    key = getattr(cause, "full_key", None)
    if key is None or not str(key).startswith("hydra."):
        return None
    return str(key), "a setting", "there is no such setting of Hydra", did_you_mean(str(key), _KNOWN)


def _value_faults(config: DictConfig) -> Iterator[Fault]:
    content: Any = OmegaConf.to_container(config.hydra, resolve=False)

    def text(path: str) -> Any:
        return _inside(content, path)

    for path in DIRECTORIES:
        if not str(text(path)).strip():
            yield Fault(path, "''", "it must be a folder", f"{path}=DIR, or leave it out")
    for path in ("hydra.sweep.subdir", "hydra.output_subdir"):
        if isinstance(value := text(path), str) and (PurePath(value).is_absolute() or ".." in PurePath(value).parts):
            yield Fault(
                path, format_value(value), "it must be inside the directory above it", "give a name, without / and .."
            )
    if text("hydra.output_subdir") == "":
        yield Fault("hydra.output_subdir", "''", "it must be the name of a folder", "null: nothing is written")
    try:
        with hydra_globals.recorded(config):
            OmegaConf.select(config, "hydra.job.chdir")
    except OmegaConfBaseException as error:
        rule = f"it can't be resolved: {str(error).splitlines()[0][:80]}"
        yield Fault("hydra.job.chdir", format_value(text("hydra.job.chdir")), rule, "set true or false")
    verbose = text("hydra.verbose")
    if not isinstance(verbose, bool | str) and not (
        isinstance(verbose, list) and all(isinstance(each, str) for each in verbose)
    ):
        yield Fault(
            "hydra.verbose", format_value(verbose), "it must be true, false, the name of a logger, or a list of names"
        )
    callbacks = text("hydra.callbacks") or {}
    for name, callback in callbacks.items() if isinstance(callbacks, Mapping) else ():
        if not isinstance(callback, Mapping) or not isinstance(callback.get("_target_"), str):
            rule = "a callback is a mapping with _target_, the path of a class"
            yield Fault(f"hydra.callbacks.{name}", format_value(callback), rule, "_target_: package.module.Class")
        elif user_code.find_module(module := callback["_target_"].partition(".")[0]) is None:
            rule = f"there is no module {module!r} in the working directory ({Path.cwd()}) or the environment"
            yield Fault(
                f"hydra.callbacks.{name}._target_", format_value(callback["_target_"]), rule, "name an installed class"
            )


def _leaves(value: Any, path: str, *, whole: bool = True) -> Iterator[tuple[str, Any]]:
    """The keys below a path with their values; the keys of one setting as one, if `whole`."""
    if isinstance(value, Mapping) and value and not (whole and setting_at(path) is not None):
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}", whole=whole)
    elif path != "hydra" or value is not None:
        yield path, value


def _own_keys(in_files: Any) -> Iterator[str]:
    return (path for path, _ in _leaves(in_files, "hydra", whole=False) if not path.endswith("_"))


def _keys_of_type(error: BaseException | None, node: str) -> Iterator[str]:
    """The keys of a node whose type, such as that of a launcher of others, lacks a key."""
    kind = getattr(error, "object_type", None)
    for each in dataclasses.fields(kind) if dataclasses.is_dataclass(kind) else ():
        if not each.name.startswith("_"):
            yield f"{node}.{each.name}"


def _plain(config: DictConfig, path: str) -> Any:
    """A value as it is written, without what it refers to; None where there is none."""
    return _inside(OmegaConf.to_container(config.hydra, resolve=False), path)


def _inside(node: Any, path: str) -> Any:
    """The value at a path in the content of the node `hydra`; None where there is none."""
    for key in path.split(".")[1:]:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node


def _first_line(error: BaseException) -> str:
    text = str(error).strip().split("\n")[0].rstrip(".")
    return text or type(error).__name__
