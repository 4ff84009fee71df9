"""Classes and functions that the node `hydra` names: each has to be one that may be named. Imports none of them.

What else its files set of the process is checked by the lists of `allowlist`.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Container, Iterator, Mapping
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from omegaconf import DictConfig, OmegaConf, open_dict, read_write

from embexp.config import allowlist, hydra_globals
from embexp.config.allowlist import Given
from embexp.config.permission import Permission
from embexp.config.shown import shown
from embexp.errors import ConfigError, Fault
from embexp.models import user_code

LOGS = ("job_logging", "hydra_logging")
NODES = ("callbacks", "launcher", "sweeper", *LOGS)
"""Parts of the node `hydra` that name code."""
VARIABLES = "hydra.job.env_set"
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


def check(config: DictConfig, kind: str, permission: Permission) -> dict[str, Any]:
    """Checks a part of the node `hydra`.

    Args:
        config: composed.
        kind: one of `NODES`.
        permission: which code it may name.

    Returns:
        The part, with interpolations resolved.

    Raises:
        ConfigError: it names code that may not be run, or can't be resolved.
    """
    try:
        with (hydra_globals.recorded if kind in LOGS else hydra_globals.borrowed)(config):
            node = _resolved(config, kind)
    except Exception as error:  # also of a resolver
        text = str(error).split("\n")[0]
        raise ConfigError([Fault(f"hydra.{kind}", "a value", f"it can't be resolved: {text}")]) from error
    if found := list(_faults(config, node, kind, permission)):
        raise ConfigError(found)
    return node if isinstance(node, dict) else {}


def check_variables(config: DictConfig, permission: Permission) -> dict[str, str]:
    """Checks the environment variables of the node `hydra`, and returns them with interpolations resolved.

    Args:
        config: composed.
        permission: whose the config is.

    Raises:
        ConfigError: a file sets one that it may not, or they can't be resolved.
    """
    try:
        with hydra_globals.recorded(config):
            variables: Any = OmegaConf.to_container(config.hydra.job.env_set, resolve=True)
    except Exception as error:  # also of a resolver
        text = str(error).splitlines()[0]
        raise ConfigError([Fault(VARIABLES, "a value", f"it can't be resolved: {text}")]) from error
    if found := list(allowlist.variable_faults(variables, VARIABLES, Given(config, permission))):
        raise ConfigError(found)
    return {str(key): str(value) for key, value in variables.items()}


def faults(config: DictConfig, permission: Permission) -> list[Fault]:
    """The faults that `check` and `check_variables` would raise, but for what can't be resolved before the run."""
    variables = OmegaConf.to_container(config.hydra.job.env_set, resolve=False)
    found = list(allowlist.variable_faults(variables, VARIABLES, Given(config, permission)))
    if OmegaConf.is_missing(config.hydra.runtime, "output_dir"):
        config = copy.deepcopy(config)
        with read_write(config.hydra), open_dict(config.hydra):
            config.hydra.runtime.output_dir = _DIRECTORY
    with hydra_globals.borrowed(config):
        for kind in NODES:
            try:
                node = _resolved(config, kind)
            except Exception:  # also of a resolver
                continue
            found += _faults(config, node, kind, permission)
    return found


def is_known_launcher(config: DictConfig) -> bool:
    """Whether a config's launcher is a known one that is installed, and has no settings that run or write anything.

    Such settings are shell commands, as `setup` of submitit, environments for workers, as `runtime_env` of Ray, and
    folders outside of the sweep's.

    Args:
        config: with Hydra's node.
    """
    try:
        with hydra_globals.borrowed(config):
            node = _resolved(config, "launcher")
            found = list(_faults(config, node, "launcher", Permission(own=False)))
    except Exception:  # also of a resolver
        return False
    return isinstance(node, dict) and str(node.get("_target_")) in _LAUNCHERS and not found


def plugins() -> Mapping[str, type]:
    """The classes of installed plugins of Hydra, by their path."""
    return {f"{each.__module__}.{each.__name__}": each for each in Plugins.instance().discover()}


def function_of(target: str) -> str:
    """A dotted path as `package.module:name`; the longest part that is a module counts as such. Imports nothing."""
    parts = target.split(".")
    for length in range(len(parts) - 1, 0, -1):
        if user_code.find_module(".".join(parts[:length])) is not None:
            return f"{'.'.join(parts[:length])}:{'.'.join(parts[length:])}"
    return f"{'.'.join(parts[:-1])}:{parts[-1]}"


def _resolved(config: DictConfig, kind: str) -> Any:
    return OmegaConf.to_container(config.hydra[kind], resolve=True) if config.hydra[kind] else {}


def _faults(config: DictConfig, node: Any, kind: str, permission: Permission) -> Iterator[Fault]:
    path = f"hydra.{kind}"
    logs = kind in LOGS
    if logs and isinstance(node, Mapping):
        with hydra_globals.borrowed(config):
            key = "hydra.runtime.output_dir" if kind == "job_logging" else "hydra.sweep.dir"
            folder = str(OmegaConf.select(config, key) or _DIRECTORY)
        loggers = allowlist.Loggers(
            path, Given(config, permission), folder, lambda place, target: _fault(place, target, permission)
        )
        yield from loggers.faults(node)
    if kind == "launcher":
        yield from _launcher_faults(config, node, permission)
    for place, key, value in _texts(node, path):
        fine = logs or key != "_target_" or value.startswith(_FINE) or value in _known(kind, permission)
        if not fine:
            yield from _fault(place, value, permission)
        elif "${" in value and (logs or kind == "callbacks"):  # which would be resolved once more
            yield Fault(place, shown(value), "it is an interpolation behind another one", "write out what it names")


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
    own = {} if stored is None else dict(_places(OmegaConf.to_container(stored.node, resolve=False)))
    written = dict(_places(OmegaConf.to_container(config.hydra.launcher, resolve=False)))
    given = Given(config, permission)
    listed, sweep = target in _LAUNCHERS, f"{config.hydra.sweep.get('dir')}/"
    for path, key, value in _texts(node, "hydra.launcher"):
        same = path in own and written.get(path) == own[path] and value.isprintable()
        inside = "folder" not in key or (value.startswith(sweep) and ".." not in value)
        plain = listed and path.count(".") == 2 and inside and _PLAIN.fullmatch(value) is not None
        if key != "_target_" and path not in given and not same and not plain:
            rule = f"the launcher {choice} may run a text as a command, and a file sets this one"
            remedy = f"give it on the command line: {path}=VALUE, or allow the launcher: --allow-code {function}"
            yield Fault(path, shown(value), rule, remedy)


def _places(node: Any) -> Iterator[tuple[str, str]]:
    return ((path, value) for path, _, value in _texts(node, "hydra.launcher"))


def _fault(path: str, target: str, permission: Permission) -> Iterator[Fault]:
    if not _TARGET.fullmatch(target):
        yield Fault(
            path, shown(target), "it must be the path of a class", f"{path.rpartition('.')[2]}: package.module.Class"
        )
        return
    function = function_of(target)
    module, _, name = function.partition(":")
    if refusal := permission.refusal(function):
        yield Fault(path, shown(target), refusal, permission.remedy(function))
    elif function not in permission.allowed and user_code.find_module(module) is None:
        yield Fault(
            path, shown(target), f"there is no module {module!r}", "start from the folder that holds it, or install it"
        )
    elif function not in permission.allowed and "." in name:
        yield Fault(path, shown(target), "it must be a class of a module", permission.remedy(function))


def _texts(node: Any, path: str) -> Iterator[tuple[str, str, str]]:
    """The texts of nested mappings and lists: path, key, text."""
    for key, value in node.items() if isinstance(node, Mapping) else enumerate(node) if isinstance(node, list) else ():
        if isinstance(value, str):
            yield f"{path}.{key}", str(key), value
        else:
            yield from _texts(value, f"{path}.{key}")


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
            yield from (text for _, key, text in _texts(content, "") if key == "_target_")
