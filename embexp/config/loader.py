"""The one place that talks to Hydra's config loader.

`hydra.compose` would do, but it works through a process-wide object that a notebook may have in use
for itself, and it does not tell which file set which value.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import yaml
from hydra import version
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra._internal.utils import create_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.core.utils import JobRuntime, setup_globals
from hydra.errors import HydraException
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from embexp.config.folders import Folders

COMPLAINTS = (
    HydraException,
    OmegaConfBaseException,
    yaml.YAMLError,
    OSError,  # a file that can't be read, or holds a single value
    ValueError,  # a defaults list, or a choice, of a form that there is not; text that is not UTF-8
    AssertionError,  # a defaults list that names a group ""
    RecursionError,  # a file that leads back to itself
)
"""What Hydra and OmegaConf raise where files can't be put together, or not with some choice."""


class Loader:
    """Composes configs out of a set of folders."""

    def __init__(self, folders: Folders, config_name: str = "config") -> None:
        """Prepares Hydra.

        Args:
            folders: where configs lie.
            config_name: the config that everything starts from.
        """
        self.folders = folders
        self.config_name = config_name
        version.setbase("1.3")
        path = create_config_search_path(None)
        schema = SearchPathQuery(provider="schema", path=None)
        if folders.user is not None:
            path.prepend("command-line", os.fspath(folders.user), anchor=schema)
        path.prepend("main", os.fspath(folders.shipped), anchor=schema)
        self._loader = ConfigLoaderImpl(config_search_path=path)
        setup_globals()
        JobRuntime.instance().set("name", "embexp")
        self._parser = OverridesParser.create(config_loader=self._loader)

    def compose(self, overrides: Sequence[str]) -> DictConfig:
        """The config of one job, with Hydra's own under `hydra`.

        Raises:
            Exception: one of `COMPLAINTS`.
        """
        return self._loader.load_configuration(self.config_name, list(overrides), RunMode.RUN, from_shell=True)

    def parse(self, override: str) -> Override:
        """An override in its parts.

        Raises:
            OverrideParseException: it is not one.
            RecursionError: it is nested too deeply.
        """
        return self._parser.parse_overrides([override])[0]

    def is_group(self, name: str) -> bool:
        """Whether a folder of that name holds choices."""
        try:
            return bool(self._loader.repository.group_exists(name))
        except OSError:  # no folder can have such a name
            return False

    def apply(self, override: Override, config: DictConfig) -> None:
        """Applies the override of a value to a composed config.

        Raises:
            HydraException: it can't be.
        """
        self._loader._apply_overrides_to_config([override], config)

    def record(self, overrides: Sequence[Override], config: DictConfig) -> None:
        """Notes in a config's `hydra` node which overrides made it, as Hydra does when it applies them itself."""
        task = [each for each in overrides if not each.is_hydra_override()]
        settings = config.hydra.job.config.override_dirname
        config.hydra.overrides.task = [each.input_line for each in task]
        config.hydra.overrides.hydra = [each.input_line for each in overrides if each.is_hydra_override()]
        config.hydra.job.override_dirname = get_overrides_dirname(
            overrides=task,
            kv_sep=settings.kv_sep,
            item_sep=settings.item_sep,
            exclude_keys=settings.exclude_keys,
        )

    def multirun(self, config: DictConfig, task_function: Any, overrides: Sequence[str]) -> None:
        """Hands a sweep over to the sweeper that `config` names, which hands its jobs to the launcher.

        Hydra's own multirun first composes a config without what is swept over, and gives up on values that
        belong to a choice which is; every job has been checked by then, so this one takes `config` as it is.

        Args:
            config: with Hydra's settings for the sweep.
            task_function: passed on to the launcher.
            overrides: of the sweep, without Hydra's.
        """
        callbacks = Callbacks(config)
        callbacks.on_multirun_start(config=config, config_name=self.config_name)
        context = HydraContext(config_loader=self._loader, callbacks=callbacks)
        plugins = Plugins.instance()
        sweeper = plugins.instantiate_sweeper(config=config, hydra_context=context, task_function=task_function)
        sweeper.sweep(arguments=list(overrides))
        callbacks.on_multirun_end(config=config, config_name=self.config_name)

    def files(self, overrides: Sequence[str]) -> Sequence[ResultDefault]:
        """The configs that `overrides` put together, in the order in which they are merged."""
        defaults = self._loader.compute_defaults_list(self.config_name, list(overrides), RunMode.RUN)
        return tuple(defaults.defaults)
