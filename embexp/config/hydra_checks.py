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

from embexp.config import named_code
from embexp.config.folders import at, checked
from embexp.config.hydra_globals import UnresolvedError, hydra_setting, outside_of_config
from embexp.config.hydra_settings import SETTINGS, Use, setting_at
from embexp.config.messages import (
    as_override,
    causes,
    did_you_mean,
    first_line,
    format_value,
    listing,
    nearest,
    suggestion,
)
from embexp.config.named_code import Permission
from embexp.errors import Fault
from embexp.specs.running import Launching
from embexp.system import printable
from embexp.system.printable import masked

_KNOWN = tuple(each.path for each in SETTINGS if each.use is not Use.NEVER)
_IN_RUNS = {
    "hydra.job.chdir": "leave it false: each job has a directory of its own, and relative paths keep their meaning",
    "hydra.job.env_set": "set the variables before the command, whose jobs have them, too",
    "hydra.job_logging": "hydra/job_logging=none; the output of a job is in its run.log",
}
"""Settings that the jobs of a sweep don't have, and what to do instead."""
_GROUPS = ("hydra.output", "hydra.env")
"""Groups of Hydra whose files set keys elsewhere in its node."""
_OWN = ("overrides", "runtime", "help", "hydra_help")
"""What embexp itself sets."""
DIRECTORIES = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")


def faults(config: DictConfig, in_files: Any, permission: Permission) -> Iterator[Fault]:
    """The faults of the node `hydra`; those of refused overrides are `refused`'s."""
    for path, value in _leaves(in_files, "hydra"):
        if (fault := _unusable(path, value)) is not None:
            yield fault
    yield from _value_faults(config)
    written: Any = OmegaConf.to_container(config.hydra, resolve=False)
    written["job"].pop("override_dirname")  # of overrides, which are checked where they set something
    yield from secret_faults({key: value for key, value in written.items() if key not in _OWN}, "hydra.")
    yield from named_code.faults(config, permission)


def secret_faults(content: Mapping[str, Any], prefix: str = "") -> Iterator[Fault]:
    """The faults of texts that hold a secret: a run records its config."""
    for place, key, value in named_code.texts(content):
        path = f"{prefix}{place}"
        named = path.startswith("hydra.job.env_set.") or printable.SURE.search(key)
        shown = masked(value, key if named and "${" not in value else "")
        if shown != value:
            rule = "it holds a password, a key or a token, and a run records its config"
            yield Fault(path, shown, rule, outside_of_config(path))


def searchpath_fault(file: Path | None) -> Fault | None:
    """The fault of a primary config that sets `hydra.searchpath`: composing would import the packages that it names."""
    try:
        if file is None or "searchpath" not in checked(file):
            return None
        value = OmegaConf.select(OmegaConf.load(file), "hydra.searchpath")  # as Hydra does
    except (OSError, ValueError, yaml.YAMLError, OmegaConfBaseException):  # which composing reports
        return None
    fault = None if value is None else _unusable("hydra.searchpath", value)
    return None if fault is None else replace(fault, source=str(file))


def refused(override: Override) -> Fault | None:
    """The fault of an override of a setting that does not exist, or that embexp refuses; None: Hydra may take it."""
    key, value = override.key_or_group, override.value()
    found = [(key.replace("/", "."), value)] if "/" in key else list(_leaves(value, key))
    if key in ("hydra.launcher._target_", "hydra.sweeper._target_"):
        group = key.removesuffix("._target_").replace(".", "/")
        return Fault(key, format_value(value), f"the group {group} sets it", f"choose one: {group}=NAME")
    if override.is_delete():
        return Fault(key, "a removal", "a setting of Hydra can't be removed", "leave it out", fix=(key,))
    if override.package is not None and "/" not in key:
        remedy = f"write {key}=…, without the @"
        return Fault(override.get_key_element(), format_value(value), "only a choice of a file has an @", remedy)
    return next(filter(None, (_unusable(path, each) for path, each in found)), None)


def _unusable(path: str, value: Any) -> Fault | None:
    setting = setting_at(path)
    if setting is None and path not in _GROUPS:  # which Hydra takes with a +, and which then means nothing
        near = nearest(path, _KNOWN)
        fix = (path, f"{near[0]}={as_override(value)}") if near else (path,)
        return Fault(path, format_value(value), "there is no such setting of Hydra", suggestion(near), fix=fix)
    if setting is None or setting.use is not Use.NEVER:
        return None
    return Fault(path, format_value(value), setting.text, setting.remedy, fix=(path,))


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
            yield Fault(key, format_value(override.value()), rule, remedy, fix=(key,))


def sweep_faults(config: DictConfig) -> Iterator[Fault]:
    """The faults of settings that only a single run has an effect from, whether an override or a file sets them."""
    content = {"hydra": OmegaConf.to_container(config.hydra, resolve=False)}
    for path, where in _IN_RUNS.items():
        value = at(content, path)
        if value.get("root") if path == "hydra.job_logging" and isinstance(value, Mapping) else value:
            yield Fault(path, format_value(value), "the jobs of a sweep are processes of embexp's own", where)
    yield from _sweeper_faults(config)


def not_in_python(overrides: Iterable[Override]) -> Iterator[Fault]:
    """The faults of settings of Hydra where a spec is composed, which has none."""
    for override in overrides:
        if override.is_hydra_override():
            key, rule = override.get_key_element().lstrip("+~"), "a spec has no settings of Hydra"
            directory = "embexp.run(spec, directory)" if key == "hydra.run.dir" else ""
            yield Fault(
                key,
                format_value(override.value()),
                rule,
                directory or "leave it out; `embexp run` takes it",
                fix=(key,),
            )


def _sweeper_faults(config: DictConfig) -> Iterator[Fault]:
    """The faults of the keys of the sweeper: its class decides which ones there are."""
    node: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=False)
    target = str(node.get("_target_")) if isinstance(node, dict) else ""
    if (plugin := named_code.plugins().get(target)) is None:
        rule = "there is no such sweeper: no installed plugin of Hydra has this class"
        yield Fault("hydra.sweeper._target_", format_value(target), rule, "choose one: hydra/sweeper=NAME")
        return
    parameters = inspect.signature(plugin).parameters
    takes_any = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    for key, value in node.items():
        if not (takes_any or key in parameters or key.startswith("_")):
            near = did_you_mean(key, parameters) or f"its keys: {', '.join(parameters) or 'none'}"
            choice = config.hydra.runtime.choices.get("hydra/sweeper")
            yield Fault(f"hydra.sweeper.{key}", format_value(value), f"the sweeper {choice} has no key {key!r}", near)


def rejected(key: str, value: object, error: BaseException) -> Fault:
    """The fault of a setting, or a choice of one of Hydra's groups, that Hydra does not compose, in Hydra's words."""
    if isinstance(error, MissingConfigException) and error.options:
        rule = f"group {key} has {listing(error.options)}"
        names = nearest(str(value), error.options)
        return Fault(
            key, format_value(value), rule, suggestion(names), fix=tuple(f"{key}={each}" for each in names[:1])
        )
    cause, place = error.__cause__, key.rpartition(".")[0]
    kind = getattr(cause, "object_type", None)  # of a launcher of others
    fields = kind.__dataclass_fields__ if dataclasses.is_dataclass(kind) else Launching.model_fields
    known = [f"{place}.{field}" for field in fields] if place == "hydra.launcher" else _KNOWN
    add = f"to add it, use +{key}={as_override(value)}" if kind is dict else ""
    near = nearest(key, known) if place == "hydra.launcher" or setting_at(key) is None else []
    rule, fix = f"Hydra rejects it: {first_line(cause or error)}", (key,)
    if key in DIRECTORIES:
        return Fault(key, format_value(value), rule, f"{key}=DIR, or leave it out", fix=fix)
    renamed = (*fix, f"{near[0]}={as_override(value)}") if near else ()
    return Fault(key, format_value(value), rule, suggestion(near) or add, fix=renamed)


def rejected_in_file(error: Exception) -> Fault | None:
    """The fault of a setting in a file that Hydra does not have; None: it rejects something else."""
    cause = next((each for each in causes(error) if getattr(each, "full_key", None) is not None), error)
    key = str(getattr(cause, "full_key", ""))
    return replace(rejected(key, "", cause), value="a setting", fix=()) if key.startswith("hydra.") else None


def _value_faults(config: DictConfig) -> Iterator[Fault]:
    """The faults of values that Hydra takes, and that would write where nothing of a run belongs, or mean nothing."""
    content: Any = OmegaConf.to_container(config.hydra, resolve=False)
    for path in (*DIRECTORIES, "hydra.output_subdir"):
        value = at({"hydra": content}, path)
        if not str(value).strip():
            yield Fault(path, "''", "it must be a folder", f"{path}=DIR, or leave it out", fix=(path,))
        inside = path in ("hydra.sweep.subdir", "hydra.output_subdir") and isinstance(value, str)
        if inside and (PurePath(value).is_absolute() or ".." in PurePath(value).parts):
            rule = "it must be inside the directory above it"
            yield Fault(path, format_value(value), rule, "give a name, without / and ..")
    try:
        hydra_setting(config, "hydra.job.chdir", secrets=False)
    except UnresolvedError as error:
        [fault] = error.faults
        yield replace(fault, value=format_value(fault.value), remedy="set true or false")
    verbose, callbacks = content["verbose"], content["callbacks"]
    names = verbose if isinstance(verbose, list) else [verbose]
    if not isinstance(verbose, bool) and not all(isinstance(each, str) for each in names):
        rule = "it must be true, false, the name of a logger, or a list of names"
        yield Fault("hydra.verbose", format_value(verbose), rule)
    for name, callback in callbacks.items() if isinstance(callbacks, Mapping) else ():
        if not isinstance(callback, Mapping) or not isinstance(callback.get("_target_"), str):
            rule = "a callback is a mapping with _target_, the path of a class"
            yield Fault(f"hydra.callbacks.{name}", format_value(callback), rule, "_target_: package.module.Class")


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The keys below a path with their values; the keys of one setting as one."""
    if isinstance(value, Mapping) and value and setting_at(path) is None:
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}")
    elif path != "hydra" or value is not None:
        yield path, value
