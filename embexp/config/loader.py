"""Composes configs and runs sweeps with Hydra's config loader, plugins and callbacks; knows what set each value."""

from __future__ import annotations

import contextlib
import copy
import functools
import os
import pickle
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import yaml
from hydra import initialize_config_dir
from hydra.core.config_loader import ConfigLoader
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import HydraContext, RunMode, TaskFunction
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from embexp.config import hydra_globals, hydra_job, named_code
from embexp.config.folders import Folders, Outline, checked, find, of_text, outline
from embexp.config.hydra_job import Callbacks
from embexp.config.named_code import OWN_MODULES, Permission
from embexp.errors import ConfigError, Fault
from embexp.system.printable import masked_override

COMPOSITION_ERRORS = (
    HydraException,
    OmegaConfBaseException,
    yaml.YAMLError,
    OSError,  # a file that can't be read, or that holds a single value
    ValueError,  # a defaults list, or a choice, in a form that Hydra does not know; text that is not UTF-8
    AssertionError,  # a defaults list that names a group ""
    RecursionError,  # a file that leads back to itself
)
"""What Hydra and OmegaConf raise if files, or files and a choice, can't be composed."""

ZIP = "zip("
"""How an override of several keys begins, see `embexp.config.zipped`."""

_LOADED: dict[tuple[str, str, str], bytes] = {}
"""What Hydra loaded, pickled, by provider, file and text: it loads each file again for each set of choices."""
_MOST_LOADED = 1_000

_SHIPPED: dict[tuple[str, ...], bytes | Exception] = {}
"""What was composed of shipped files alone, which stay as they are while a process runs, by places, config and
overrides: programs in Python compose again and again."""
_MOST_COMPOSED = 200
_SHIPPED_FAULTS: dict[tuple[str, Permission], dict[tuple[str, ...], tuple[Fault, ...]]] = {}
"""`Loader.hydra_faults` of shipped files alone, by config and permission."""

_searched: ContextVar[Folders | None] = ContextVar("searched", default=None)


class FurtherFolders(SearchPathPlugin):
    """Searches the user's folder before the shipped one, and those of fields after it, while a `Loader` is created."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        """Adds the folders; changes no other search path."""
        if (folders := _searched.get()) is None:
            return
        if folders.user is not None:
            search_path.prepend("command-line", os.fspath(folders.user), anchor="main")
        for folder in folders.brought:
            search_path.append("field", os.fspath(folder))


class Loader:
    """Composes configs from a set of folders.

    Attributes:
        hydra_faults: those of the node `hydra`, by the choices that it was composed of; kept here for `compose`.
        failed: overrides that could not be composed, in another job of a sweep: those of others are tried without them.
    """

    def __init__(
        self,
        folders: Folders,
        config_name: str = "config",
        permission: Permission = OWN_MODULES,
    ) -> None:
        """Prepares Hydra.

        Raises:
            ConfigError: the primary config names packages to search for configs, which composing would import.
        """
        self.folders = folders
        self.config_name = config_name
        self.permission = replace(permission, folders=tuple(folders.in_order))
        if fault := hydra_job.searchpath_fault(folders.file(config_name)):
            raise ConfigError([fault])
        with hydra_globals.borrowed(), _searching(folders):
            initialize_config_dir(
                os.fspath(folders.shipped), job_name=hydra_globals.JOB_NAME, version_base=hydra_globals.VERSION_BASE
            )
            self._loader = GlobalHydra.instance().config_loader()
        for source in self._loader.get_sources():
            if source.scheme() in ("file", "pkg"):
                _keep_loaded(source)
        self._parser = OverridesParser.create(config_loader=self._loader)
        self._places = [f"{source.provider} {source.path}" for source in self._loader.get_sources()]
        shipped = folders == find() and not folders.brought
        self._composed = _SHIPPED if shipped else {}
        self._parsed: dict[str, Override] = {}
        kept = _SHIPPED_FAULTS if shipped else {}
        self.hydra_faults = kept.setdefault((config_name, self.permission), {})
        self.failed: set[str] = set()

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """The config of one job, with Hydra's own under `hydra`; the caller may change it.

        The same overrides are composed once, for the jobs of a sweep often make the same choices: composing takes 100
        ms, and reading a pickled copy 3. The files are taken not to change during the life of a loader.

        Raises:
            Exception: one of `COMPOSITION_ERRORS`.
        """
        found = self._found(overrides)
        if isinstance(found, Exception):
            raise found
        config = pickle.loads(found)
        config.hydra.runtime.cwd = os.getcwd()  # the only trace of it in what Hydra has composed
        return cast(DictConfig, config)

    def error(self, overrides: Sequence[str]) -> Exception | None:
        """One of `COMPOSITION_ERRORS` that `compose` raises, or None."""
        found = self._found(overrides)
        return found if isinstance(found, Exception) else None

    def _found(self, overrides: Sequence[str]) -> bytes | Exception:
        """What `compose` returns, pickled, or raises."""
        key = (*self._places, self.config_name, *overrides)
        if key not in self._composed:
            if len(self._composed) == _MOST_COMPOSED:
                self._composed.clear()
            try:
                with hydra_globals.borrowed():
                    config = self._loader.load_configuration(
                        self.config_name, [*overrides], RunMode.RUN, from_shell=True
                    )
                self._composed[key] = pickle.dumps(config)
            except AttributeError as error:
                if error.obj is not None:
                    raise
                # Hydra takes its own node for a mapping.
                self._composed[key] = HydraException("hydra must be a mapping of settings, but a file sets it to null")
            except COMPOSITION_ERRORS as error:
                self._composed[key] = error.with_traceback(None)
        return self._composed[key]

    def parse(self, override: str) -> Override:
        """Parses an override.

        Raises:
            OverrideParseException: the text is not an override.
            RecursionError: it is nested too deeply.
        """
        if override not in self._parsed:
            self._parsed[override] = self._parser.parse_overrides([override])[0]
        return self._parsed[override]

    def multirun(
        self, config: DictConfig, task_function: TaskFunction, overrides: Sequence[str], callbacks: Callbacks
    ) -> None:
        """Runs a sweep with the sweeper that `config` names, which passes its jobs to the launcher.

        Hydra's own multirun first composes a config without the swept overrides, and fails on values that belong to
        a swept choice. Every job has been checked by then, so this one uses `config` unchanged.

        Raises:
            ConfigError: the sweeper's settings name code that may not be run.
        """
        named_code.check(config, "sweeper", self.permission)
        logging = hydra_job.settings(config, self.permission, kind="hydra_logging")
        with hydra_globals.borrowed(config), hydra_job.applied(logging, Path(config.hydra.sweep.dir)):
            callbacks.on_multirun_start(config=config, config_name=self.config_name)
            context = HydraContext(config_loader=cast(Any, _Checked(self._loader)), callbacks=cast(Any, callbacks))
            sweeper = Plugins.instance().instantiate_sweeper(
                config=config, hydra_context=context, task_function=task_function
            )
            sweeper.sweep(arguments=list(overrides))
            callbacks.on_multirun_end(config=config, config_name=self.config_name)


class _Checked:
    """Hydra's config loader, for sweeps whose jobs have been checked.

    Hydra's sweepers compose each job as a check of their own, which takes 100 ms a job, and don't know the tables that
    patterns stand for. embexp's launcher composes its jobs itself: nobody uses what the basic sweeper composes. Others
    use what is composed here: for them, an error stays one.
    """

    def __init__(self, loader: ConfigLoader) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: list[str]) -> DictConfig:
        if master_config.hydra.runtime.choices.get("hydra/sweeper") == "basic":
            return master_config
        try:
            return self._loader.load_sweep_config(master_config, sweep_overrides)
        except COMPOSITION_ERRORS:
            if master_config.hydra.runtime.choices.get("hydra/launcher") != "embexp":
                raise
            return master_config


def _keep_loaded(source: ConfigSource) -> None:
    """Has a source of Hydra's load each file once, and refuse files that take too long to read before it reads them.

    The shipped files mean the same to libyaml, which reads them in a third of the time.
    """
    own, shipped = source.load_config, find().shipped

    def loaded(config_path: str, file: Path, text: str) -> ConfigResult:
        if not text or not file.is_relative_to(shipped):
            return own(config_path)
        content, package = of_text(text)
        return ConfigResult(
            source.provider, f"{source.scheme()}://{source.path}", OmegaConf.create(content), {"package": package}
        )

    def load_config(config_path: str) -> ConfigResult:
        file = Path(source.path, config_path if config_path.endswith(".yaml") else f"{config_path}.yaml")
        text = checked(file) if source.scheme() == "file" and file.is_file() else ""  # of Hydra's own: never changes
        key = source.provider, str(file), text
        if key not in _LOADED:
            if len(_LOADED) == _MOST_LOADED:
                _LOADED.clear()
            _LOADED[key] = pickle.dumps(loaded(config_path, file, text))
        # Hydra takes the defaults list out of it.
        return cast(ConfigResult, pickle.loads(_LOADED[key]))

    setattr(source, "load_config", load_config)  # noqa: B010 — of this object; Hydra's sources can't be replaced


@contextlib.contextmanager
def _searching(folders: Folders) -> Iterator[None]:
    """Within the block, Hydra's search paths have all folders."""
    Plugins.instance().register(FurtherFolders)
    token = _searched.set(folders)
    try:
        yield
    finally:
        _searched.reset(token)


def outline_of(folders: Folders, config_name: str, selections: Sequence[Override]) -> Outline:
    """The outline of the config that choices compose. Hydra would compose once more to say what it merges."""
    made = [
        each
        for each in selections
        if not each.is_delete() and ("/" in each.key_or_group or not each.is_hydra_override())
    ]
    by_key: dict[str, Any] = {each.get_key_element().lstrip("+"): each.value() for each in made if not each.is_add()}
    added: dict[str, Any] = {each.get_key_element().lstrip("+"): each.value() for each in made if each.is_add()}
    return outline(folders, config_name, by_key, added=added)


class Sources:
    """The sources of the values of a composed config."""

    def __init__(
        self,
        loader: Loader,
        selections: Sequence[Override],
        values: Sequence[Override],
        lifted: Collection[str] = (),
        origins: Mapping[str, str] | None = None,
    ) -> None:
        """Stores what the config was composed from.

        Args:
            lifted: packages of files whose keys were moved to the top of the config.
        """
        self._loader = loader
        self.selections = selections
        self.values = values
        self.caller = loader.permission.caller
        self._lifted = lifted
        self._origins = origins or {}

    def with_values(self, values: Sequence[Override]) -> Sources:
        """The sources of a config that was composed of the same files with other values."""
        copied = copy.copy(self)
        copied.values = values
        return copied

    def describe(self, path: str) -> str:
        """The source of a value, such as `conf/config.yaml:31` or `the command line (seed=1)`; "" if it has none."""
        below = ""
        for override in reversed(self.values):
            key = override.key_or_group
            if key == path or path.startswith(f"{key}."):
                return self._given(override)
            if key.startswith(f"{path}."):
                below = below or self._given(override)
        for override in self.selections:
            if override.get_key_element().lstrip("+~").rpartition("@")[2] == path:
                return self._given(override)
        if below:
            return below
        for written in (path, self._in_pattern(path)):
            for package, file in reversed(self._files):
                inner = _inside(written, package)
                if inner is not None and (found := _nodes(file).get(inner)) is not None:
                    return f"{_short(file)}:{found[0]}"
        return ""

    def _given(self, override: Override) -> str:
        return f"{self.caller.value} ({masked_override(str(override.input_line))})"

    def override(self, path: str) -> Override | None:
        """The override of a value that set a value, or the list or mapping that it is in; None: none did."""
        return next((each for each in reversed(self.values) if _inside(path, each.key_or_group) is not None), None)

    def written(self, path: str) -> str:
        """The text of a single value in an override, or in a file if it has no quotes there; "" if it is not known."""
        if (override := self.override(path)) is not None:
            return text_of(override) if override.key_or_group == path else ""
        for each in (path, self._in_pattern(path)):
            for package, file in reversed(self._files):
                if (found := _nodes(file).get(_inside(each, package) or "")) is not None:
                    node = found[1]
                    plain = isinstance(node, yaml.ScalarNode) and (not node.style or "${" in node.value)
                    return str(node.value) if plain else ""
        return ""

    def _in_pattern(self, path: str) -> str:
        """The path of a value in the pattern that it is from; the path itself if it is from none."""
        for name, pattern in self._origins.items():
            if path == name or path.startswith(f"{name}."):
                return f"{pattern}{path.removeprefix(name)}"
        return path

    @functools.cached_property
    def _files(self) -> Sequence[tuple[str, Path]]:
        """Packages and files, in merge order."""
        found = outline_of(self._loader.folders, self._loader.config_name, self.selections)
        merged = sorted(found.merged, key=lambda each: not each[0].startswith("hydra/"))  # as Hydra does
        return [("" if package in self._lifted else package, file) for _, package, file in merged]


def text_of(override: Override) -> str:
    """The value of an override as it is written."""
    return str(override.input_line).partition("=")[2]


def _inside(path: str, package: str) -> str | None:
    """`path` relative to `package`, "" if it is that, or None if it is not inside it."""
    if not package:
        return path
    if path == package:
        return ""
    return path.removeprefix(f"{package}.") if path.startswith(f"{package}.") else None


@functools.cache
def _nodes(file: Path) -> dict[str, tuple[int, yaml.Node]]:
    """The line of each key and item of a YAML file, and what it holds, by its dotted path."""
    try:
        node = yaml.compose(checked(file), Loader=yaml.CSafeLoader)
    except (OSError, ValueError, yaml.YAMLError):
        return {}
    return {path: (line, value) for path, line, value in _walk(node, "")}


def _walk(node: yaml.Node | None, prefix: str) -> Iterator[tuple[str, int, yaml.Node]]:
    inside: list[tuple[Any, Any, Any]] = []
    if isinstance(node, yaml.MappingNode):
        inside = [(key.value, key, value) for key, value in node.value]
    elif isinstance(node, yaml.SequenceNode):
        inside = [(place, value, value) for place, value in enumerate(node.value)]
    for key, start, value in inside:
        path = f"{prefix}{key}"
        yield path, start.start_mark.line + 1, value
        yield from _walk(value, f"{path}.")


def _short(path: Path) -> str:
    here = Path(os.getcwd())
    return str(path.relative_to(here)) if path.is_relative_to(here) else str(path)
