"""Checks the node `hydra` of a config: each of its settings has an effect, or is a fault."""

from __future__ import annotations

import dataclasses
import inspect
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
from embexp.config.named_code import Permission
from embexp.errors import Fault
from embexp.specs.running import Launching

_KNOWN = tuple(each.path for each in SETTINGS if each.use is not Use.NEVER)
_IN_RUNS = {
    "hydra.job.chdir": "leave it false: each job has a directory of its own, and relative paths keep their meaning",
    "hydra.job.env_set": "set the variables before the command, whose jobs have them, too",
    "hydra.job_logging": "hydra/job_logging=none; the output of a job is in its run.log",
}
"""Settings that the jobs of a sweep don't have, and what to do instead."""
DIRECTORIES = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")
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
    if override.package is not None and "/" not in key:
        remedy = f"write {key}=…, without the @"
        return Fault(override.get_key_element(), format_value(value), "only a choice of a file has an @", remedy)
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
    """The faults of the keys of the launcher or the sweeper: their class decides which ones there are."""
    node: Any = OmegaConf.to_container(config.hydra[kind], resolve=False)
    settings: dict[str, Any] = node if isinstance(node, dict) else {}
    target = str(settings.get("_target_"))
    if (plugin := named_code.plugins().get(target)) is None:
        rule = f"there is no such {kind}: no installed plugin of Hydra has this class"
        yield Fault(f"hydra.{kind}._target_", format_value(target), rule, f"choose one: hydra/{kind}=NAME")
        return
    parameters = inspect.signature(plugin).parameters
    takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    for key, value in settings.items():
        if not (takes_any or key in parameters or key.startswith("_")):
            near = did_you_mean(key, parameters) or f"its keys: {', '.join(parameters) or 'none'}"
            choice = config.hydra.runtime.choices.get(f"hydra/{kind}")
            yield Fault(f"hydra.{kind}.{key}", format_value(value), f"the {kind} {choice} has no key {key!r}", near)


def rejected(override: Override, error: Exception) -> Fault:
    """The fault of a setting, or a choice of one of Hydra's groups, that Hydra does not compose, in Hydra's words."""
    key, value = override.get_key_element().lstrip("+"), override.value()
    if isinstance(error, MissingConfigException) and error.options:
        rule = f"group {override.key_or_group} has {listing(error.options)}"
        return Fault(key, format_value(value), rule, did_you_mean(str(value), error.options))
    if key in DIRECTORIES:
        return Fault(key, format_value(value), "it must be a folder", f"{key}=DIR, or leave it out")
    cause = error.__cause__
    lines = [*(str(cause).splitlines()[:1] if cause is not None else []), *str(error).splitlines()]
    add = next((line for line in lines if " use +" in line), "")
    place = key.rpartition(".")[0]
    if place == "hydra.launcher":
        kind = getattr(cause, "object_type", None)  # of a launcher of others
        known = [each.name for each in dataclasses.fields(kind)] if dataclasses.is_dataclass(kind) else []
        add = did_you_mean(key, [f"{place}.{each}" for each in known or Launching.model_fields]) or add
    return Fault(key, format_value(value), f"Hydra rejects it: {lines[0].rstrip('.')}", add)


def rejected_in_file(error: Exception) -> tuple[str, str, str, str] | None:
    """Path, value, rule and remedy of a setting in a file that Hydra does not have; None: it rejects something else."""
    cause: BaseException | None = error
    while cause is not None and getattr(cause, "full_key", None) is None:
        cause = cause.__cause__ or cause.__context__
    key = str(getattr(cause, "full_key", None))
    if not key.startswith("hydra."):
        return None
    return key, "a setting", "there is no such setting of Hydra", did_you_mean(key, _KNOWN)


def _value_faults(config: DictConfig) -> Iterator[Fault]:
    """The faults of values that Hydra takes, and that would write where nothing of a run belongs, or mean nothing."""
    content: Any = OmegaConf.to_container(config.hydra, resolve=False)
    for path in (*DIRECTORIES, "hydra.output_subdir"):
        value = _inside(content, path)
        if not str(value).strip():
            yield Fault(path, "''", "it must be a folder", f"{path}=DIR, or leave it out")
        inside = path in ("hydra.sweep.subdir", "hydra.output_subdir") and isinstance(value, str)
        if inside and (PurePath(value).is_absolute() or ".." in PurePath(value).parts):
            rule = "it must be inside the directory above it"
            yield Fault(path, format_value(value), rule, "give a name, without / and ..")
    try:
        with hydra_globals.recorded(config):
            OmegaConf.select(config, "hydra.job.chdir")
    except OmegaConfBaseException as error:
        rule = f"it can't be resolved: {str(error).splitlines()[0][:80]}"
        yield Fault("hydra.job.chdir", format_value(content["job"]["chdir"]), rule, "set true or false")
    verbose = content["verbose"]
    if not isinstance(verbose, bool) and not all(isinstance(each, str) for each in _listed(verbose)):
        rule = "it must be true, false, the name of a logger, or a list of names"
        yield Fault("hydra.verbose", format_value(verbose), rule)
    callbacks = content["callbacks"]
    for name, callback in callbacks.items() if isinstance(callbacks, Mapping) else ():
        if not isinstance(callback, Mapping) or not isinstance(callback.get("_target_"), str):
            rule = "a callback is a mapping with _target_, the path of a class"
            yield Fault(f"hydra.callbacks.{name}", format_value(callback), rule, "_target_: package.module.Class")


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The keys below a path with their values; the keys of one setting as one."""
    if isinstance(value, Mapping) and value and setting_at(path) is None:
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}")
    elif path != "hydra" or value is not None:
        yield path, value


def _plain(config: DictConfig, path: str) -> Any:
    """A value as it is written, without what it refers to; None where there is none."""
    return _inside(OmegaConf.to_container(config.hydra, resolve=False), path)


def _inside(node: Any, path: str) -> Any:
    """The value at a path in the content of the node `hydra`; None where there is none."""
    for key in path.split(".")[1:]:
        node = node.get(key) if isinstance(node, Mapping) else None
    return node
