"""What the files of a config may name: classes and functions, environment variables and Python's loggers.

A folder of configs may come from anybody. What its files set decides neither which code is run nor which files and
addresses the process uses; what the user gives on the command line may. Imports nothing that is named.
"""

from __future__ import annotations

import contextlib
import os
import re
import string
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.plugins import Plugins
from omegaconf import MISSING, DictConfig, OmegaConf, open_dict, read_write

from embexp.config.hydra_globals import APPROVED, UnresolvedError, hydra_setting, named_resolvers
from embexp.config.messages import Caller, format_value
from embexp.errors import ConfigError, Fault
from embexp.specs.base import FUNCTION
from embexp.system import environment, user_code

LOGS = ("job_logging", "hydra_logging")
VARIABLES = "job.env_set"
NODES = (VARIABLES, "callbacks", "launcher", "sweeper", *LOGS)
"""Parts of the node `hydra` that name code, or set what code the process runs."""
_FINE = (
    "hydra_plugins.embexp_",
    "hydra._internal.core_plugins.basic_",
    "hydra.experimental.callbacks.",
)
"""Starts of classes of embexp and Hydra that run nothing but jobs."""
_DIRECTORY = "/the/directory/of/the/run"
"""Stands for that of a run which does not have one yet."""
_LAUNCHERS = frozenset(
    (
        "hydra._internal.core_plugins.basic_launcher.BasicLauncher",
        "hydra_plugins.hydra_submitit_launcher.submitit_launcher.LocalLauncher",
        "hydra_plugins.hydra_submitit_launcher.submitit_launcher.SlurmLauncher",
        "hydra_plugins.hydra_ray_launcher.ray_launcher.RayLauncher",
        "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher",
    )
)
"""The launchers of others that the documentation lists."""
_PLAIN = re.compile(r"[^\x00-\x1f\x7f()`$]*")
"""Texts that are neither a second line of a script nor a call."""
_TARGET = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)+")
_OWN_VARIABLE = re.compile(r"EMBEXP_\w+")
"""Variables for the user's own model; those that embexp reads itself are not among them."""
_READ_BY_EMBEXP = frozenset(
    f"EMBEXP_{name}"
    for name in ["DATA", "PARENT", "ISOLATED_BY", "WORKER", "LEADER", "MEMORY", "RESTARTED", "PIECES", "PORTABLE"]
)
_STREAMS = ("ext://sys.stdout", "ext://sys.stderr")
_CLASSES = {
    "handlers": (
        "logging.StreamHandler",
        "logging.NullHandler",
        "logging.FileHandler",
        "logging.handlers.WatchedFileHandler",
        "logging.handlers.RotatingFileHandler",
        "logging.handlers.TimedRotatingFileHandler",
        "logging.handlers.MemoryHandler",
        "rich.logging.RichHandler",
    ),
    "formatters": ("logging.Formatter", "colorlog.ColoredFormatter", "colorlog.formatter.ColoredFormatter"),
    "filters": ("logging.Filter",),
}
"""Handlers that write to the terminal or to a file, formatters and filters."""
_KEYS = re.compile(
    r"class|\(\)|level|formatter|filters|name"
    r"|stream|filename|mode|encoding|delay|errors|maxBytes|backupCount|when|interval|utc"
    r"|capacity|flushLevel|target|flushOnClose"
    r"|show_(time|level|path)|omit_repeated_times|enable_link_path|markup|keywords|log_time_format"
    r"|rich_tracebacks|tracebacks_(width|extra_lines|max_frames)"
    r"|format|fmt|datefmt|style|validate|defaults|(secondary_)?log_colors|reset|(no|force)_color"
)
"""What files may set of these classes: no object, nothing that is imported, and no values of variables in traces."""
_OF_PYTHON = re.compile(r"logging(\.handlers)?\.\w*(Handler|Formatter|Filter)|rich\.logging\.RichHandler|colorlog\.\w+")
"""Classes for logs. Those that are not listed above send over a network, or are given code to call: see `QueueHandler`
in `logging.config` of Python 3.12."""
_CALLED = ("queue", "listener")
"""Keys of a `QueueHandler` and its subclasses whose value `logging.config` imports and calls, since Python 3.12."""
_EXTERNAL = re.compile(r"(ext|cfg)://(.*)", re.DOTALL)
"""Texts that `logging.config` replaces, at any place: by an object of a module, or by another part of the config."""


def check(config: DictConfig, kind: str, permission: Permission) -> dict[str, Any]:
    """Checks a part of the node `hydra`, and returns it with interpolations resolved.

    Args:
        kind: one of `NODES`.

    Raises:
        ConfigError: it names code that may not be run, sets what it may not, or can't be resolved.
    """
    node = hydra_setting(config, f"hydra.{kind}", secrets=kind == "callbacks")
    if found := list(_faults(config, node, kind, permission)):
        raise ConfigError(found)
    return node if isinstance(node, dict) else {}


def faults(config: DictConfig, permission: Permission) -> list[Fault]:
    """The faults that `check` would raise, but for what can't be resolved before the run."""
    variables = OmegaConf.to_container(config.hydra.job.env_set, resolve=False)
    found = list(_faults(config, variables, VARIABLES, permission))
    with _directory(config):
        for kind in NODES[1:]:
            with contextlib.suppress(UnresolvedError):
                found += _faults(config, hydra_setting(config, f"hydra.{kind}"), kind, permission)
    return found


@contextlib.contextmanager
def _directory(config: DictConfig) -> Iterator[None]:
    """Within the block, a run that has no directory yet has one."""
    runtime = config.hydra.runtime
    missing = OmegaConf.is_missing(runtime, "output_dir")
    try:
        if missing:
            with read_write(config.hydra), open_dict(config.hydra):
                runtime.output_dir = _DIRECTORY
        yield
    finally:
        if missing:
            with read_write(config.hydra), open_dict(config.hydra):
                runtime.output_dir = MISSING


def is_known_launcher(config: DictConfig) -> bool:
    """Whether a config's launcher is a known one that is installed, and has no settings that run or write anything.

    Such settings are shell commands, as `setup` of submitit, environments for workers, as `runtime_env` of Ray, and
    folders outside of the sweep's.
    """
    try:
        node = check(config, "launcher", Permission(own=False))
    except ConfigError:
        return False
    return str(node.get("_target_")) in _LAUNCHERS


def plugins() -> Mapping[str, type]:
    """The classes of installed plugins of Hydra, by their path."""
    return {f"{each.__module__}.{each.__name__}": each for each in Plugins.instance().discover()}


def resolver_faults(config: DictConfig, permission: Permission) -> Iterator[Fault]:
    """The faults of resolvers that a config names; approves those that have none, for `hydra_globals.resolving`.

    A name or a function of another form is left to the validation of the spec.
    """
    for name, function in named_resolvers(config).items():
        path = f"resolvers.{name}"
        APPROVED.discard((name, function))
        if not isinstance(function, str) or not re.fullmatch(FUNCTION, function):
            continue
        if OmegaConf.has_resolver(str(name)) or name in ("oc", "hydra", "now", "embexp"):
            rule = "OmegaConf, Hydra or your own program already has a resolver of that name"
            yield Fault(path, format_value(function), rule, f"choose another name, such as resolvers.my_{name}")
        elif refusal := permission.refusal(function):
            yield Fault(path, format_value(function), refusal, permission.remedy(function))
        elif faults := user_code.faults_of_function(function, path):
            yield from faults
        else:
            APPROVED.add((str(name), function))


def function_of(target: str) -> str:
    """A dotted path as `package.module:name`; the longest part that is a module counts as such. Imports nothing."""
    parts = target.split(".")
    for length in range(len(parts) - 1, 0, -1):
        if user_code.find_module(".".join(parts[:length])) is not None:
            return f"{'.'.join(parts[:length])}:{'.'.join(parts[length:])}"
    return f"{'.'.join(parts[:-1])}:{parts[-1]}"


def _faults(config: DictConfig, node: Any, kind: str, permission: Permission) -> Iterator[Fault]:
    path, logs = f"hydra.{kind}", kind in LOGS
    if kind == VARIABLES:
        yield from _variable_faults(node, path, Given(config, permission))
        return
    if logs and isinstance(node, Mapping):
        key = "hydra.runtime.output_dir" if kind == "job_logging" else "hydra.sweep.dir"
        folder = _DIRECTORY
        with contextlib.suppress(UnresolvedError):  # a fault of its own
            folder = str(hydra_setting(config, key) or _DIRECTORY)
        yield from _Loggers(path, key, folder, Given(config, permission), permission).faults(node)
    if kind == "launcher":
        yield from _launcher_faults(config, node, permission)
    for place, key, value in texts(node, path):
        fine = logs or key != "_target_" or value.startswith(_FINE) or value in _known(kind, permission)
        if not fine:
            yield from _fault(place, value, permission)
        elif "${" in value and (logs or kind == "callbacks"):  # which would be resolved once more
            rule = "it is an interpolation that names another interpolation"
            yield Fault(place, format_value(value), rule, "write out the name")


def _launcher_faults(config: DictConfig, node: Any, permission: Permission) -> Iterator[Fault]:
    """The faults of texts that files set of a launcher of others, which may run them: `setup` of Slurm is a script.

    A listed launcher does not run plain ones, and may write into folders of the sweep.
    """
    target = str(node.get("_target_")) if isinstance(node, Mapping) else ""
    function = function_of(target)
    if target.startswith(_FINE) or function in permission.allowed:
        return
    choice = config.hydra.runtime.choices.get("hydra/launcher")
    stored = ConfigStore.instance().repo.get("hydra", {}).get("launcher", {}).get(f"{choice}.yaml")
    stored_node = {} if stored is None else OmegaConf.to_container(stored.node, resolve=False)
    own, written = (
        {path: value for path, _, value in texts(each, "hydra.launcher")}
        for each in (stored_node, OmegaConf.to_container(config.hydra.launcher, resolve=False))
    )
    given = Given(config, permission)
    listed, sweep = target in _LAUNCHERS, f"{config.hydra.sweep.get('dir')}/"
    for path, key, value in texts(node, "hydra.launcher"):
        same = path in own and written.get(path) == own[path] and value.isprintable()
        inside = "folder" not in key or (value.startswith(sweep) and ".." not in value)
        plain = listed and path.count(".") == 2 and inside and _PLAIN.fullmatch(value) is not None
        if key != "_target_" and path not in given and not same and not plain:
            rule = f"the launcher {choice} may run text as a command, and a config file sets this text"
            remedy = f"set it on the command line ({path}=VALUE), or allow the launcher: --allow-code {function}"
            yield Fault(path, format_value(value), rule, remedy)


def _fault(path: str, target: str, permission: Permission) -> Iterator[Fault]:
    if not _TARGET.fullmatch(target):
        remedy = f"{path.rpartition('.')[2]}: package.module.Class"
        yield Fault(path, format_value(target), "it must be the path of a class", remedy)
        return
    function = function_of(target)
    module, _, name = function.partition(":")
    if refusal := permission.refusal(function):
        yield Fault(path, format_value(target), refusal, permission.remedy(function))
    elif function not in permission.allowed and user_code.find_module(module) is None:
        remedy = "start embexp from the folder that holds it, or install it"
        yield Fault(path, format_value(target), f"there is no module {module!r}", remedy)
    elif function not in permission.allowed and "." in name:
        yield Fault(path, format_value(target), "it must be a class of a module", permission.remedy(function))


def texts(node: Any, path: str = "") -> Iterator[tuple[str, str, str]]:
    """The texts of nested mappings and lists: path, key, text."""
    for key, value in node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ():
        place = f"{path}.{key}" if path else str(key)
        if isinstance(value, str):
            yield place, str(key), value
        else:
            yield from texts(value, place)


def _known(kind: str, permission: Permission) -> Container[str]:
    """The classes of installed plugins: launchers and sweepers, and what the configs that plugins bring name.

    What a sweep has recorded names the listed launchers only.
    """
    if not permission.own:
        return _LAUNCHERS & plugins().keys() if kind == "launcher" else ()
    own = plugins() if kind in ("launcher", "sweeper") else ()
    return {*_targets(ConfigStore.instance().repo), *own}


def _targets(node: Any) -> Iterator[str]:
    for value in node.values():
        if isinstance(value, dict):
            yield from _targets(value)
        elif isinstance(value.node, DictConfig):
            content = OmegaConf.to_container(value.node, resolve=False)
            yield from (text for _, key, text in texts(content) if key == "_target_")


class Given:
    """The settings of the node `hydra` that the user gave on the command line; all others come from files."""

    def __init__(self, config: DictConfig, permission: Permission) -> None:
        """Reads nothing yet.

        Args:
            permission: whether these are the user's: those of a recorded config are anybody's.
        """
        self._texts = OmegaConf.to_container(config.hydra.overrides.hydra) if permission.own else []
        self._paths: list[str] | None = None

    def __contains__(self, path: str) -> bool:
        if self._paths is None:
            self._paths = []
            for override in OverridesParser.create().parse_overrides([str(text) for text in self._texts or ()]):
                if "/" not in override.key_or_group:  # a choice: its values are those of a file
                    self._paths += _leaves(override.value(), override.key_or_group)
        return any(path == each or path.startswith(f"{each}.") for each in self._paths)


def _leaves(value: Any, path: str) -> Iterator[str]:
    """The paths of what an override sets: a mapping is merged with that of the files, all else replaces it."""
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield from _leaves(each, f"{path}.{key}")
    else:
        yield path


def is_harmless(variable: str) -> bool:
    """Whether a file may set an environment variable: it can't load code, nor name a path or an address."""
    own = _OWN_VARIABLE.fullmatch(variable) is not None and variable not in _READ_BY_EMBEXP
    return own or environment.HARMLESS.fullmatch(variable) is not None


def _variable_faults(variables: Any, path: str, given: Given) -> Iterator[Fault]:
    for name, value in variables.items() if isinstance(variables, Mapping) else ():
        place = f"{path}.{name}"
        if not is_harmless(str(name)) and place not in given:
            rule = (
                "a config file may set only thread counts, visible devices, log levels and EMBEXP_…, because "
                "other variables may load code or redirect files and connections"
            )
            yield _refused(place, value, rule)


@dataclass(frozen=True)
class _Loggers:
    """A check of a configuration of Python's loggers, as `logging.config.dictConfig` takes it.

    Attributes:
        path: of the configuration, such as `hydra.job_logging`.
        folder_key, folder: in which the files of logs may be.
    """

    path: str
    folder_key: str
    folder: str
    given: Given
    permission: Permission

    def faults(self, node: Mapping[Any, Any]) -> Iterator[Fault]:
        """The faults of a configuration, with interpolations resolved."""
        for section, classes in _CLASSES.items():
            entries = node.get(section)
            for name, entry in entries.items() if isinstance(entries, Mapping) else ():
                if isinstance(entry, Mapping):
                    place = f"{self.path}.{section}.{name}"
                    named = {key: str(entry[key]) for key in ("class", "()") if entry.get(key) is not None}
                    for key, target in named.items():
                        yield from self._class(f"{place}.{key}", target, classes)
                    own = named and not any(map(_OF_PYTHON.fullmatch, named.values()))  # its keys are its own
                    yield from self._keys(entry, place, any_key=bool(own))
        yield from self._external(node, self.path)

    def _class(self, path: str, target: str, classes: Iterable[str]) -> Iterator[Fault]:
        """The faults of a class that files can't name just so."""
        if target not in classes:
            if not _OF_PYTHON.fullmatch(target):
                yield from _fault(path, target, self.permission)
            elif path not in self.given:
                yield _refused(
                    path, target, f"config files may name only {', '.join(classes)}, or a class from your own modules"
                )

    def _keys(self, entry: Mapping[Any, Any], path: str, *, any_key: bool) -> Iterator[Fault]:
        for key, value in entry.items():
            place = f"{path}.{key}"
            if key in _CALLED:
                if isinstance(value, str) and not _EXTERNAL.match(value):
                    yield from _fault(place, value, self.permission)
                elif isinstance(value, Mapping):
                    yield from _fault(f"{place}.()", str(value.get("()")), self.permission)
            elif place in self.given:
                continue
            elif key == "." or not (any_key or _KEYS.fullmatch(str(key))):
                yield _refused(place, value, "it could name an object or code, or show values of variables")
            elif key == "filename" and not self._is_inside(value):
                rule = f"a log file must be in the directory of the run, ${{{self.folder_key}}}"
                yield _refused(place, value, rule)
            elif key == "filename" and not str(value).endswith(".log"):
                yield _refused(
                    place, value, "the name of a log file must end in .log, because other files may be executed"
                )
            elif key in ("format", "fmt") and value is not None and "message" not in str(value):
                yield _refused(place, value, "it must contain the message, because a log file holds nothing else")
            elif key in ("format", "fmt") and entry.get("style") == "{" and _looks_inside(str(value)):
                yield _refused(
                    place, value, "it may not name attributes or items of a value, because they may hold secrets"
                )

    def _external(self, node: Any, path: str) -> Iterator[Fault]:
        for place, _, value in texts(node, path):
            found = _EXTERNAL.match(value)
            if found is None or value in _STREAMS:
                continue
            if place not in self.given:
                yield _refused(place, value, f"config files may refer only to {' and '.join(_STREAMS)}")
            elif found[1] == "ext":
                yield from _fault(place, found[2], self.permission)

    def _is_inside(self, value: Any) -> bool:
        return os.path.realpath(str(value)).startswith(f"{os.path.realpath(self.folder)}{os.sep}")


def _refused(path: str, value: Any, rule: str) -> Fault:
    return Fault(path, format_value(value), rule, f"if you want it, set it on the command line: {path}=VALUE")


def _looks_inside(text: str) -> bool:
    """Whether a format such as `{levelname:8}` takes an attribute or an item of a value."""
    try:
        fields = [(name or "", form or "") for _, name, form, _ in string.Formatter().parse(text)]
    except ValueError:  # logging reports it
        return False
    return any("." in name or "[" in name or _looks_inside(form) for name, form in fields)


@dataclass(frozen=True)
class Permission:
    """What a config may name.

    Attributes:
        allowed: functions and classes that the user allows, as `package.module:name`.
        own: whether the user's own modules may be named without that; a config that a sweep has recorded may not.
        caller: who allows them.
        folders: of configs, which may be from elsewhere, and so may the code in them.
    """

    allowed: frozenset[str] = frozenset()
    own: bool = True
    caller: Caller = Caller.COMMAND_LINE
    folders: tuple[Path, ...] = ()

    def refusal(self, function: str) -> str:
        """Why a config may not name a function or a class, without a full stop; "" if it may."""
        if function in self.allowed:
            return ""
        if not self.own:
            return "the record in a sweep's folder is not trusted to name code"
        why = user_code.foreign(function) or user_code.within(function, self.folders)
        return f"{why}, but a config may name code only from your own modules" if why else ""

    def remedy(self, function: str) -> str:
        """What to do about a refusal."""
        module = function.partition(":")[0].partition(".")[0]
        foreign = self.own and user_code.foreign(function)
        hidden = [each for each in (Path(f"{module}.py"), Path(module)) if foreign and each.exists()]
        hint = f"rename your {hidden[0]}, which it hides; or " if hidden else ""
        return f"{hint}if you want it to run, allow it: {self.caller.option('allow-code', function)}"


OWN_MODULES = Permission()
"""The user's own modules, and nothing else."""
