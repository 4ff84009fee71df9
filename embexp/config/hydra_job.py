"""The node `hydra` of a config: each of its settings has an effect, or is a fault; and what they do in a run.

They set variables, the working directory, loggers, callbacks, the directory and the files of `.hydra`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import inspect
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePath
from typing import Any, TypeVar

import yaml
from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus, configure_log, env_override
from hydra.errors import MissingConfigException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from embexp.config import hydra_globals, named_code
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
from embexp.errors import ConfigError, Fault
from embexp.specs.running import Launching
from embexp.system import files, printable, user_code
from embexp.system.printable import masked

_KNOWN = tuple(each.path for each in SETTINGS if each.use is not Use.NEVER)
_IN_RUNS = {
    "hydra.job.chdir": "leave it false: each job has its own directory, and relative paths keep their meaning",
    "hydra.job.env_set": "set the variables before the command; its jobs inherit them",
    "hydra.job_logging": "hydra/job_logging=none; the output of a job is in its run.log",
}
"""Settings that the jobs of a sweep don't have, and what to do instead."""
_GROUPS = ("hydra.output", "hydra.env")
"""Groups of Hydra whose files set keys elsewhere in its node."""
_OWN = ("overrides", "runtime", "help", "hydra_help")
"""What embexp itself sets."""
DIRECTORIES = ("hydra.run.dir", "hydra.sweep.dir", "hydra.sweep.subdir")
_Result = TypeVar("_Result")
_NOW = re.compile(r"\$\{now:[^}]*\}")
_ENTRIES: dict[tuple[tuple[str, ...], str], str] = {}
_MOST_ENTRIES = 10_000


def node_faults(config: DictConfig, in_files: Any, permission: Permission) -> Iterator[Fault]:
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
            rule = "it holds a password, a key or a token, but a run records its config"
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
        return Fault(override.get_key_element(), format_value(value), "only a group choice may have an @", remedy)
    return next(filter(None, (_unusable(path, each) for path, each in found)), None)


def _unusable(path: str, value: Any) -> Fault | None:
    setting = setting_at(path)
    if setting is None and path not in _GROUPS:  # which Hydra takes with a +, and which then means nothing
        near = nearest(path, _KNOWN)
        fix = (path, f"{near[0]}={as_override(value)}") if near else (path,)
        return Fault(path, format_value(value), "Hydra has no such setting", suggestion(near), fix=fix)
    if setting is None or setting.use is not Use.NEVER:
        return None
    return Fault(path, format_value(value), setting.text, setting.remedy, fix=(path,))


def without_effect(overrides: Iterable[Override], *, multirun: bool) -> Iterator[Fault]:
    """The faults of overrides on the command line that have an effect only in a sweep, or only outside of one."""
    for override in overrides:
        setting = setting_at(override.key_or_group) if override.is_hydra_override() else None
        key = override.get_key_element().lstrip("+~")
        if override.is_hydra_override() and override.is_sweep_override():
            rule = "a Hydra setting has one value for all jobs"
            yield Fault(key, str(override.input_line).partition("=")[2], rule, "give one value")
        elif (
            setting is not None and setting.path not in _IN_RUNS and setting.use is (Use.RUN if multirun else Use.SWEEP)
        ):
            remedy = "remove it; the directory of a sweep is hydra.sweep.dir" if multirun else "add -m, or remove it"
            rule = f"it only has an effect in {setting.use}"
            yield Fault(key, format_value(override.value()), rule, remedy, fix=(key,))


def sweep_faults(config: DictConfig) -> Iterator[Fault]:
    """The faults of settings that only a single run has an effect from, whether an override or a file sets them."""
    content = {"hydra": OmegaConf.to_container(config.hydra, resolve=False)}
    for path, where in _IN_RUNS.items():
        value = at(content, path)
        if value.get("root") if path == "hydra.job_logging" and isinstance(value, Mapping) else value:
            yield Fault(path, format_value(value), "embexp starts the jobs of a sweep itself, as processes", where)
    yield from _sweeper_faults(config)


def not_in_python(overrides: Iterable[Override]) -> Iterator[Fault]:
    """The faults of settings of Hydra where a spec is composed, which has none."""
    for override in overrides:
        if override.is_hydra_override():
            key, rule = override.get_key_element().lstrip("+~"), "a spec has no Hydra settings"
            directory = "embexp.run(spec, directory)" if key == "hydra.run.dir" else ""
            yield Fault(
                key,
                format_value(override.value()),
                rule,
                directory or "remove it; `embexp run` accepts it",
                fix=(key,),
            )


def _sweeper_faults(config: DictConfig) -> Iterator[Fault]:
    """The faults of the keys of the sweeper: its class decides which ones there are."""
    node: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=False)
    target = str(node.get("_target_")) if isinstance(node, dict) else ""
    if (plugin := named_code.plugins().get(target)) is None:
        rule = "there is no such sweeper: no installed Hydra plugin has this class"
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
            yield Fault(path, format_value(value), rule, "use a name without / and ..")
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
            rule = "a callback must be a mapping with _target_, the path of a class"
            yield Fault(f"hydra.callbacks.{name}", format_value(callback), rule, "_target_: package.module.Class")


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The keys below a path with their values; the keys of one setting as one."""
    if isinstance(value, Mapping) and value and setting_at(path) is None:
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}")
    elif path != "hydra" or value is not None:
        yield path, value


@dataclass(frozen=True)
class JobSettings:
    """Settings of Hydra for the process of a run.

    Attributes:
        chdir: whether the directory of the run becomes the working directory.
        logging: of Python's loggers, as `logging.config` takes it; None or without root: they are left alone.
        verbose: true: all loggers at level DEBUG; names: these.
    """

    variables: dict[str, str]
    chdir: bool
    logging: dict[str, Any] | None
    verbose: bool | Sequence[str]

    @property
    def is_default(self) -> bool:
        """Whether they change nothing."""
        return not (self.variables or self.chdir or self.verbose or (self.logging or {}).get("root"))


def settings(config: DictConfig, permission: Permission, *, kind: str = "job_logging") -> JobSettings:
    """The settings in a composed config, whose output directory is known.

    Args:
        kind: job_logging, or hydra_logging for the process of a sweep.

    Raises:
        ConfigError: they can't be resolved, or name code or set variables that they may not.
    """
    log = named_code.check(config, kind, permission) or None
    variables = named_code.check(config, named_code.VARIABLES, permission)
    written: Any = OmegaConf.to_container(config.hydra, resolve=False)
    verbose = written["verbose"]
    return JobSettings(
        {str(key): str(value) for key, value in variables.items()},
        bool(config.hydra.job.chdir),
        log,
        [verbose] if isinstance(verbose, str) else verbose,
    )


@contextlib.contextmanager
def applied(job: JobSettings, directory: Path) -> Iterator[None]:
    """Within the block, the process has these settings.

    Raises:
        ConfigError: the loggers can't be configured as the config says.
    """
    if job.is_default:
        yield
        return
    with contextlib.ExitStack() as stack:
        stack.enter_context(env_override(job.variables))
        stack.enter_context(_configured(job))
        if job.chdir:
            before = sys.path
            sys.path = [*before, os.getcwd()]  # modules of the user's model lie where the command was given
            stack.callback(setattr, sys, "path", before)
            stack.enter_context(contextlib.chdir(directory))
        yield


def call(
    config: DictConfig, callbacks: Callbacks, permission: Permission, directory: Path, task: Callable[[], _Result]
) -> _Result:
    """Calls a task with the settings and the callbacks of a single run.

    Raises:
        ConfigError: the loggers can't be configured as the config says.
    """
    job_settings = settings(config, permission)
    with applied(job_settings, directory), hydra_globals.borrowed(config):
        name = config.hydra.job.config_name
        overrides: Any = OmegaConf.to_container(config.hydra.overrides.task)
        task_config, hydra = _divided(config)
        ended = JobReturn(overrides, task_config, hydra, os.getcwd(), config.hydra.job.name)
        callbacks.on_run_start(config=config, config_name=name)
        callbacks.on_job_start(config=config, task_function=task)
        try:
            result = task()
            ended.status, ended.return_value = JobStatus.COMPLETED, result
        except Exception as error:
            ended.status, ended.return_value = JobStatus.FAILED, error
            raise
        finally:
            if ended.status is not JobStatus.UNKNOWN:
                callbacks.on_job_end(config=config, job_return=ended)
                callbacks.on_run_end(config=config, config_name=name, job_return=ended)
        return result


@contextlib.contextmanager
def _configured(job: JobSettings) -> Iterator[None]:
    """Within the block, Python's loggers are configured; afterwards the root logger is as before."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    log = job.logging if job.logging is not None and job.logging.get("root") else {"root": None}
    verbose: Any = job.verbose if isinstance(job.verbose, bool) else OmegaConf.create(list(job.verbose))
    try:
        if verbose and not root.handlers and log["root"] is None:
            terminal = logging.StreamHandler()
            terminal.setFormatter(logging.Formatter("[%(asctime)s][%(name)s][%(levelname)s] %(message)s"))
            root.addHandler(terminal)
        try:
            configure_log(OmegaConf.create(log), verbose)
        except Exception as error:  # of any class that the config names
            rule = f"Python's logging rejects it: {first_line(error.__cause__ or error)}"
            raise ConfigError([Fault("hydra.job_logging", "a configuration", rule)]) from error
        yield
    finally:
        for handler in [each for each in root.handlers if each not in handlers]:
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)


class Callbacks:
    """Calls every callback: at a start in the order of the config, at an end the last one first."""

    def __init__(self, config: DictConfig, permission: Permission) -> None:
        """Makes the callbacks.

        Raises:
            ConfigError: with those that can't be made, or that may not be run.
        """
        found = named_code.check(config, "callbacks", permission)
        if found:
            sys.path[:] = user_code.search_path()
        self._callbacks: dict[str, Callback] = {}
        faults = []
        for name, settings in found.items():
            try:
                made = instantiate(settings)
            except Exception as error:  # code of the user
                faults.append(_fault(str(name), settings, f"it can't be created: {first_line([*causes(error)][-1])}"))
                continue
            if not isinstance(made, Callback):
                rule = f"{type(made).__name__} does not extend hydra.experimental.callback.Callback"
                faults.append(_fault(str(name), settings, rule))
            self._callbacks[str(name)] = made
        if faults:
            raise ConfigError(faults)

    def faults_of_jobs(self) -> list[Fault]:
        """The faults of callbacks that expect events of jobs, where each job is a process without callbacks."""
        return [
            Fault(
                f"hydra.callbacks.{name}",
                type(callback).__name__,
                "it has on_job_start or on_job_end, but the jobs of a sweep run in processes without callbacks",
                "use on_multirun_start and on_multirun_end, or run without -m",
            )
            for name, callback in self._callbacks.items()
            if type(callback).on_job_start is not Callback.on_job_start
            or type(callback).on_job_end is not Callback.on_job_end
        ]

    def __getattr__(self, event: str) -> Callable[..., None]:
        """What notifies every callback of an event such as `on_run_start`."""
        if not event.startswith("on_"):
            raise AttributeError(event)
        return partial(self._notify, event)

    def _notify(self, event: str, **arguments: Any) -> None:
        """Calls every callback. As in Hydra, an exception becomes a warning, so that it can't end what it watches."""
        callbacks = list(self._callbacks.values())
        for callback in reversed(callbacks) if event.endswith("_end") else callbacks:
            try:
                getattr(callback, event)(**arguments)
            except Exception as error:
                warnings.warn(
                    f"callback {type(callback).__name__}.{event}: {type(error).__name__}: {error}", stacklevel=3
                )


def _fault(name: str, settings: Any, rule: str) -> Fault:
    remedy = "name a class as package.module.Class, from a module that is installed or in PYTHONPATH"
    return Fault(f"hydra.callbacks.{name}", format_value(settings.get("_target_")), rule, remedy)


def note_overrides(overrides: Sequence[Override], hydra: Any) -> None:
    """Records the overrides of a config in its node `hydra`, as Hydra does.

    Args:
        hydra: composed, or as plain values.
    """
    task = {
        str(override.input_line): override.key_or_group for override in overrides if not override.is_hydra_override()
    }
    settings = hydra["job"]["config"]["override_dirname"]
    named = [text for text, key in task.items() if key not in settings["exclude_keys"]]
    hydra["overrides"]["task"] = list(task)
    hydra["overrides"]["hydra"] = [str(override.input_line) for override in overrides if override.is_hydra_override()]
    hydra["job"]["override_dirname"] = settings["item_sep"].join(sorted(named)).replace("=", settings["kv_sep"])


def run_directory(config: DictConfig) -> Path:
    """The directory of a single run; `~` is the home, as in other paths."""
    return Path(os.path.expanduser(str(hydra_setting(config, "hydra.run.dir", secrets=False))))


def is_dated(config: DictConfig) -> bool:
    """Whether the directory of a single run is named by the time, and so is a new one each time."""
    return "${now:" in str(OmegaConf.to_container(config.hydra.run, resolve=False))


def sweep_directory(config: DictConfig) -> Path:
    """The directory of a sweep; `~` is the home, as in other paths."""
    return Path(os.path.expanduser(str(hydra_setting(config, "hydra.sweep.dir", secrets=False))))


def _sweep_directory(config: DictConfig) -> str:
    """The directory of a sweep as it is written."""
    content: Any = OmegaConf.to_container(config.hydra.sweep, resolve=False)
    return str(content["dir"])


def undated_sweep_directory(config: DictConfig) -> str:
    """The directory of a sweep with `${now:…}` as it is written: the time is no setting, and goes on meanwhile."""
    written = _sweep_directory(config)
    if "${" not in _NOW.sub("", written):
        return written
    times = iter(_NOW.findall(written))
    with read_write(config.hydra):
        config.hydra.sweep.dir = _NOW.sub("\0", written)
        try:
            found = str(hydra_setting(config, "hydra.sweep.dir"))
        finally:
            config.hydra.sweep.dir = written
    return re.sub("\0", lambda _: next(times), found)


def has_one_sweep_directory(config: DictConfig) -> bool:
    """Whether no setting decides the directory of a sweep."""
    return "${" not in _NOW.sub("", _sweep_directory(config))


def divided_sweep_directory(config: DictConfig) -> tuple[str, str]:
    """The directory of a sweep as it is written: the part above the first folder that a setting names, and the rest."""
    written = _sweep_directory(config)
    times = iter(_NOW.findall(written))
    above, setting, below = _NOW.sub("\0", written).partition("${")
    place = above.rpartition("/")[0]
    parts = (place, above.removeprefix(place).lstrip("/") + setting + below)
    divided = [re.sub("\0", lambda _: next(times), part) for part in parts]
    return divided[0], divided[1]


def job_directory(config: DictConfig, number: int) -> Path:
    """The directory of a job, relative to its sweep's."""
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.job.num = number
        config.hydra.job.id = str(number)
    return Path(str(hydra_setting(config, "hydra.sweep.subdir", secrets=False)))


def is_numbered(content: Mapping[str, Any]) -> bool:
    """Whether the directory of a job has its number as its name."""
    return bool(content["hydra"]["sweep"]["subdir"] == "${hydra.job.num}")


def note_sweep(config: DictConfig, directory: Path) -> None:
    """Records in a config that it belongs to a sweep, and the sweep's directory."""
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.mode = RunMode.MULTIRUN
        config.hydra.sweep.dir = str(directory.absolute())


def write(config: DictConfig, directory: Path) -> None:
    """Writes config.yaml, hydra.yaml and overrides.yaml as Hydra does, into `.hydra`."""
    with read_write(config.hydra), open_dict(config.hydra):
        config.hydra.runtime.output_dir = str(directory.absolute())
        config.hydra.mode = RunMode.RUN
    for name, text in texts(written(config)).items():
        files.write_text(directory / name, text)


def written(config: DictConfig) -> dict[str, Any]:
    """A composed config as plain values, with interpolations as they are written."""
    content: Any = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    return content  # type: ignore[no-any-return]


def texts_of_job(content: dict[str, Any], number: int, sweep: Path, name: str) -> dict[str, str]:
    """The content of the files that Hydra writes for a job, by their path in the job's directory.

    Args:
        content: `written` of the job, which is changed.
        name: of the job's directory in the sweep's.
    """
    hydra = content["hydra"]
    hydra["mode"] = RunMode.MULTIRUN.name
    hydra["sweep"]["dir"] = str(sweep.absolute())
    hydra["job"] |= {"num": number, "id": str(number)}
    hydra["runtime"]["output_dir"] = str((sweep / name).absolute())
    return texts(content)


def texts(content: Mapping[str, Any]) -> dict[str, str]:
    """The content of the files that Hydra writes for a run, by their path in the run's directory."""
    hydra = content["hydra"]
    if (folder := hydra["output_subdir"]) is None:
        return {}
    overrides = hydra["overrides"]["task"]
    return {
        f"{folder}/config.yaml": _yaml({key: each for key, each in content.items() if key != "hydra"}) or "{}\n",
        f"{folder}/hydra.yaml": _yaml({"hydra": hydra}, 3),
        f"{folder}/overrides.yaml": OmegaConf.to_yaml(overrides),
    }


def _yaml(content: Mapping[str, Any], depth: int = 1, above: tuple[str, ...] = ()) -> str:
    """A mapping as YAML. The jobs of a sweep have most entries in common, and each takes a millisecond.

    Args:
        depth: how many levels of entries are kept for the next jobs.
        above: keys of the mappings that it is in.
    """
    found = ""
    for key, value in content.items():
        if depth > 1 and value and isinstance(value, dict):
            written = OmegaConf.to_yaml({key: None}).removesuffix(" null\n")
            found += f"{'  ' * len(above)}{written}\n{_yaml(value, depth - 1, (*above, key))}"
            continue
        known = (*above, key), repr(value)
        if known not in _ENTRIES:
            if len(_ENTRIES) == _MOST_ENTRIES:
                _ENTRIES.clear()
            inside = functools.reduce(lambda inner, name: {name: inner}, reversed(above), {key: value})
            _ENTRIES[known] = "".join(OmegaConf.to_yaml(inside).splitlines(keepends=True)[len(above) :])
        found += _ENTRIES[known]
    return found


def _divided(config: DictConfig) -> tuple[DictConfig, DictConfig]:
    return OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"]), OmegaConf.masked_copy(
        config, ["hydra"]
    )
