"""Hydra's process-wide settings: embexp's while it uses Hydra, then those of the caller again; and what it resolves.

A notebook or another Hydra application may use them. Not thread-safe, like Hydra.

Each of `b: ${a}${a}`, `c: ${b}${b}`, … doubles the last one, so thirty short lines stand for a text of a gigabyte: what
an interpolation stands for is counted before it is resolved.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from hydra import version
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobRuntime
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException, UnsupportedInterpolationType
from omegaconf.resolvers import oc

from embexp.config.folders import at, paths
from embexp.config.messages import causes, did_you_mean, first_line, format_value
from embexp.errors import ConfigError, Fault
from embexp.specs.tracking import MLFLOW
from embexp.system import user_code
from embexp.system.printable import SURE, masked

VERSION_BASE = "1.3"
JOB_NAME = "embexp"
_within: list[bool] = []
"""For each block that is entered, whether it may have secrets: the last one to be left restores what is OmegaConf's."""
APPROVED: set[tuple[str, str]] = set()
"""Name and function of each of the user's resolvers that the last config which names it may call."""
_registered: dict[str, list[Callable[..., Any]]] = {}
"""The user's resolvers that are registered, by name: for each block that is entered, the last one counts."""
_noted: list[dict[str, list[str]]] = []
"""For each block that notes them, the environment variables that values came from, with the keys of these values."""
_place = ""
"""The key of the value that is being resolved."""
MOST = 10_000
"""Values that an interpolation may stand for, with all that these refer to."""
_REFERENCE = re.compile(r"\$\{(\.*)([^${}:]*)\}")


@contextlib.contextmanager
def borrowed(config: DictConfig | None = None) -> Iterator[None]:
    """Within the block, Hydra has embexp's settings; afterwards its previous ones.

    Args:
        config: resolves interpolations such as `${hydra:job.num}`; None: unchanged.
    """
    hydra, current = GlobalHydra.instance(), HydraConfig.instance()
    base, job = version.VersionBase.instance(), JobRuntime.instance()
    before = hydra.hydra, current.cfg, base.version_base, job.get("name")
    hydra.clear()
    version.setbase(VERSION_BASE)
    job.set("name", JOB_NAME)
    try:
        if config is not None:
            current.set_config(config)
        with _own_sweepers():
            yield
    finally:
        hydra.hydra, current.cfg, base.version_base, name = before
        job.set("name", name)


class VariableError(ValueError):
    """An environment variable that a value refers to is not set, or is a secret, by its name or its value.

    Attributes:
        name: of the variable.
    """

    def __init__(self, name: str, *, secret: bool) -> None:
        super().__init__(name)
        self.name, self.secret = name, secret


class ResolverError(ValueError):
    """A resolver of the user's raised an exception, or returned what a config can't hold."""


@contextlib.contextmanager
def noting_variables() -> Iterator[dict[str, list[str]]]:
    """Within the block, `plain` notes the environment variables that values come from, with the keys of the values."""
    _noted.append({})
    try:
        yield _noted[-1]
    finally:
        _noted.pop()


@contextlib.contextmanager
def own_resolvers(config: Any) -> Iterator[None]:
    """Within the block, the resolvers that a config names are registered, as far as they are approved."""
    own = {name: function for name, function in named_resolvers(config).items() if (name, function) in APPROVED}
    try:
        for name, function in own.items():
            _registered.setdefault(name, []).append(_Resolver(name, function))
            OmegaConf.register_new_resolver(name, _registered[name][-1], replace=True)
        yield
    finally:
        for name in own:
            _registered[name].pop()
            OmegaConf.clear_resolver(name)
            for outer in _registered[name][-1:]:
                OmegaConf.register_new_resolver(name, outer)


def named_resolvers(config: Any) -> dict[Any, Any]:
    """The functions that a config names as resolvers, by their names."""
    node = None
    with contextlib.suppress(OmegaConfBaseException):  # which validation reports
        node = config.get("resolvers") if isinstance(config, DictConfig) else None
    named = OmegaConf.to_container(node, resolve=False) if isinstance(node, DictConfig) else {}
    return named if isinstance(named, dict) else {}


class _Resolver:
    """A function of the user's; imported when it is first needed, and called once for the same arguments."""

    def __init__(self, name: str, function: str) -> None:
        self._name, self._function = name, function
        self._called: dict[str, Any] = {}
        self._loaded: Callable[..., Any] | None = None

    def __call__(self, *args: Any) -> Any:
        key = repr(args)
        if key not in self._called:
            self._called[key] = self._value(args)
        return self._called[key]

    def _value(self, args: Sequence[Any]) -> Any:
        who = f"the resolver {self._name} ({self._function})"
        try:
            if self._loaded is None:
                self._loaded = user_code.NamedFunction(f"resolvers.{self._name}", self._function, {}, "…").load()
            value = self._loaded(*args)
        except ConfigError as error:
            raise ResolverError(f"{who}: {error.faults[0].rule}") from error
        except Exception as error:
            raise ResolverError(f"{who} raised {user_code.described(error)}") from error
        if not _is_plain(value):
            found = user_code.kind_of(value)
            raise ResolverError(
                f"{who} returned {found}: a value must be a number, text, true, false, null, a list or a mapping"
            )
        return value


def _is_plain(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(key, str) and _is_plain(each) for key, each in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | int | float | bool)


@contextlib.contextmanager
def resolving(config: DictConfig | None = None, *, secrets: bool = False) -> Iterator[None]:
    """As `borrowed`, while values are resolved: `${oc.env:NAME}` raises a `VariableError`.

    Args:
        config: resolves interpolations, and has the overrides of the command line, which may name a secret.
        secrets: whether all others may, too. What a run records has none of a file, which may be anybody's.
    """
    _within.append(secrets)
    OmegaConf.register_new_resolver("oc.env", _variable, replace=True)
    try:
        with borrowed(), own_resolvers(config):
            if config is not None:
                HydraConfig.instance().cfg = cast(Any, config)  # not set_config, which copies it
            yield
    finally:
        _within.pop()
        if not _within:
            OmegaConf.register_new_resolver("oc.env", oc.env, replace=True)


def _variable(name: str, *default: Any) -> Any:
    """The value of an environment variable, as OmegaConf's own resolver has it.

    Raises:
        VariableError: it is not set; or it is a secret, and neither the block nor the command line lets it be used.
    """
    if not default and name not in os.environ:
        raise VariableError(name, secret=False)
    config: Any = HydraConfig.instance().cfg
    given: Any = {} if config is None else OmegaConf.to_container(config.hydra.overrides, resolve=False)
    words = [word for each in given.values() for word in each]
    text = os.environ.get(name) or "?"
    is_named = any(re.search(rf"oc\.env:{re.escape(name)}\b", word) for word in words)
    if not _within[-1] and not is_named and masked(text, name) != text:
        raise VariableError(name, secret=True)
    for noted in _noted[-1:]:
        noted.setdefault(name, []).append(_place)
    return oc.env(name, *default)


@contextlib.contextmanager
def _own_sweepers() -> Iterator[None]:
    """Within the block, `hydra/sweeper=optuna` is embexp's, even if hydra-optuna-sweeper is installed.

    That package stores a config of this name, which Hydra would take for the schema of embexp's file.
    """
    sweepers = ConfigStore.instance().repo.get("hydra", {}).get("sweeper", {})
    stored = sweepers.pop("optuna.yaml", None)
    try:
        yield
    finally:
        if stored is not None:
            sweepers["optuna.yaml"] = stored


def output_directory() -> Path | None:
    """The output directory of the job of a Hydra app that runs now; None: there is none."""
    config = _hydra_config()
    path = None if config is None else config.runtime.get("output_dir")
    return None if path is None else Path(path)


def started_in() -> Path:
    """The working directory in which the Hydra app that runs now was started; that of the process, if there is none."""
    config = _hydra_config()
    return Path.cwd() if config is None else Path(config.runtime.cwd)


def _hydra_config() -> Any:
    """The node `hydra` of the app that runs now; None: there is none."""
    if not HydraConfig.initialized():
        return None
    config: Any = HydraConfig.get()
    return None if "runtime" not in config or config.runtime.get("output_dir", None) is None else config


class UnresolvedError(ConfigError):
    """A setting of Hydra can't be resolved."""


def hydra_setting(config: DictConfig, path: str, *, secrets: bool = True) -> Any:
    """A setting of Hydra as plain values, with interpolations resolved.

    Args:
        secrets: whether it may have the value of a variable that is a secret by its name, see `resolving`.

    Raises:
        UnresolvedError: it can't be resolved, or is missing.
    """
    try:
        with resolving(config, secrets=secrets):
            value = OmegaConf.select(config, path, throw_on_missing=True)
            return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value
    except Exception as error:  # also of a resolver
        written = at(OmegaConf.to_container(config, resolve=False), path)
        text = written if isinstance(written, str) else format_value(written)
        raise UnresolvedError([_unresolved(path, text, error, config)]) from error


def plain(root: DictConfig, node: DictConfig, prefix: str, faults: list[Fault]) -> dict[Any, Any]:
    """A mapping as a plain dict, without `hydra` and values that can't be resolved; each of those becomes a fault."""
    found: dict[Any, Any] = {}
    for key in node.keys():  # noqa: SIM118 — items() would resolve, and stop at the first fault
        path = f"{prefix}{key!s}"
        if path == "hydra":
            continue
        if OmegaConf.is_missing(node, key):
            faults.append(Fault(path, "nothing", "it must be given", f"set {path}=…"))
            continue
        try:
            global _place
            _place = path
            value = node[key]
            if isinstance(value, DictConfig):
                found[key] = plain(root, value, f"{path}.", faults)
            elif isinstance(value, ListConfig):
                found[key] = OmegaConf.to_container(value, resolve=True, throw_on_missing=True)
            else:
                found[key] = value
        except OmegaConfBaseException as error:
            written = OmegaConf.to_container(node, resolve=False)
            text = str(written[key]) if isinstance(written, dict) else ""
            faults.append(_unresolved(path, text, error, root))
    return found


def _unresolved(path: str, text: str, error: Exception, root: DictConfig) -> Fault:
    """The fault of a value with an interpolation that can't be resolved."""
    rule, remedy = f"it can't be resolved: {first_line(error)}", ""
    variable = next((each for each in causes(error) if isinstance(each, VariableError)), None)
    if variable is not None and not variable.secret:
        rule = f"the environment has no variable {variable.name}"
        remedy = f"set it before the command, or give a default: ${{oc.env:{variable.name},VALUE}}"
    elif variable is not None:
        name, value = variable.name, os.environ.get(variable.name, "")
        rule = (
            f"the environment variable {name} looks like a secret by its name or its value, but a run "
            f"records its config"
        )
        remedy = f"if you want that, set it on the command line: '{path}=${{oc.env:{name}}}'"
        secret = masked(value) != value or SURE.search(path.rpartition(".")[2])
        if secret and not path.startswith("hydra."):  # whose interpolations are recorded as written
            remedy = outside_of_config(path)
    elif isinstance(error, InterpolationKeyError):
        content = OmegaConf.to_container(root, resolve=False)
        missing = [target for target in references(path, text) if at(content, target) is None]
        known = set(paths(content)) - {path}
        suggestions = (did_you_mean(target, known) for target in missing)
        remedy = next(filter(None, suggestions), "write \\${…} for a text with ${…}")
    elif (of_user := next((each for each in causes(error) if isinstance(each, ResolverError)), None)) is not None:
        rule = str(of_user)
    elif isinstance(error, UnsupportedInterpolationType):
        remedy = "interpolations must be ${KEY}, ${oc.env:VARIABLE}, ${now:FORMAT}, or one that resolvers adds"
    return Fault(path, text, rule, remedy)


def outside_of_config(path: str) -> str:
    """What to do about a secret that is in a config."""
    if path == "tracking.uri":
        return f"remove it, and set the environment variable {MLFLOW} to the address"
    if path == "hydra.sweeper.storage":
        remedy = "set the environment variable OPTUNA_STORAGE to the address, and set this on the command line"
        return f"{remedy}: '{path}=${{oc.env:OPTUNA_STORAGE}}'"
    if path.startswith("hydra.job.env_set."):
        return "remove it, and set the variable before the command"
    return "remove it, and let your code read it from the environment"


def references(path: str, text: str) -> Iterator[str]:
    """The keys that the interpolations of a text refer to.

    Args:
        path: of the text.
    """
    for dots, key in _REFERENCE.findall(text):
        target = ".".join(filter(None, [*path.split(".")[: -len(dots)], key])) if dots else key
        yield target.replace("[", ".").replace("]", "")


def without_references(text: str) -> str:
    """A text without the interpolations that are `references`."""
    return _REFERENCE.sub("", text)


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
            for target in references(path, value):
                found += count(target, at(content, target))
            if found > MOST:
                rule = f"its interpolations expand to more than {MOST:,} values"
                raise ConfigError([Fault(path, format_value(value), rule, "use fewer nested interpolations")])
        counted[path] = found
        return found

    if isinstance(content, dict):
        for key, value in content.items():
            count(str(key), value)
