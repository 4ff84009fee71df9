"""Hydra's part of a run: variables, working directory, loggers, callbacks, its directory and the files of `.hydra`."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from hydra.core.override_parser.types import Override
from hydra.core.utils import JobReturn, JobStatus, configure_log, env_override
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from embexp.config import hydra_globals, named_code
from embexp.config.hydra_globals import hydra_setting
from embexp.config.messages import causes, first_line, format_value
from embexp.config.named_code import Permission
from embexp.errors import ConfigError, Fault
from embexp.system import files, user_code

_Result = TypeVar("_Result")
_NOW = re.compile(r"\$\{now:[^}]*\}")
_ENTRIES: dict[tuple[tuple[str, ...], str], str] = {}
_MOST_ENTRIES = 10_000


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
                faults.append(_fault(str(name), settings, f"it can't be made: {first_line([*causes(error)][-1])}"))
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
                "it has on_job_start or on_job_end, and the jobs of a sweep are processes without callbacks",
                "use on_multirun_start and on_multirun_end, or runs without -m",
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
    remedy = "name a class as package.module.Class, in a module that is installed or in PYTHONPATH"
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
