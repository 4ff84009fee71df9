"""The user's callbacks (`hydra.callbacks`), as Hydra calls them."""

from __future__ import annotations

import sys
import warnings
from typing import Any

from hydra.errors import HydraException
from hydra.experimental.callback import Callback
from hydra.utils import instantiate
from omegaconf import DictConfig

from embexp.config import named_code
from embexp.config.permission import Permission
from embexp.config.shown import shown
from embexp.errors import ConfigError, Fault
from embexp.models import user_code


class Callbacks(Callback):
    """Calls every callback: at a start in the order of the config, at an end the last one first."""

    def __init__(self, config: DictConfig, permission: Permission) -> None:
        """Makes the callbacks.

        Args:
            config: composed.
            permission: which code it may name.

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
                faults.append(_fault(str(name), settings, f"it can't be made: {_reason(error)}"))
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
                type(each).__name__,
                "it has on_job_start or on_job_end, and the jobs of a sweep are processes without callbacks",
                "use on_multirun_start and on_multirun_end, or runs without -m",
            )
            for name, each in self._callbacks.items()
            if type(each).on_job_start is not Callback.on_job_start or type(each).on_job_end is not Callback.on_job_end
        ]

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Before a single run."""
        self._notify("on_run_start", config=config, **kwargs)

    def on_run_end(self, config: DictConfig, **kwargs: Any) -> None:
        """After a single run, also one that fails."""
        self._notify("on_run_end", config=config, **kwargs)

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Before the first job of a sweep."""
        self._notify("on_multirun_start", config=config, **kwargs)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """After the last job of a sweep."""
        self._notify("on_multirun_end", config=config, **kwargs)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Before a run, in its process."""
        self._notify("on_job_start", config=config, **kwargs)

    def on_job_end(self, config: DictConfig, job_return: Any, **kwargs: Any) -> None:
        """After a run, in its process."""
        self._notify("on_job_end", config=config, job_return=job_return, **kwargs)

    def _notify(self, event: str, **arguments: Any) -> None:
        """Calls every callback. As in Hydra, an exception becomes a warning, so that it can't end what it watches."""
        callbacks = list(self._callbacks.values())
        for each in reversed(callbacks) if event.endswith("_end") else callbacks:
            try:
                getattr(each, event)(**arguments)
            except Exception as error:
                warnings.warn(f"callback {type(each).__name__}.{event}: {type(error).__name__}: {error}", stacklevel=3)


def _reason(error: BaseException) -> str:
    """Why a callback can't be made: Hydra wraps what went wrong into errors of its own."""
    while error.__cause__ is not None:
        error = error.__cause__
    text = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".:")
    return text.partition(", set env var ")[0] if isinstance(error, HydraException) else text


def _fault(name: str, settings: Any, rule: str) -> Fault:
    remedy = "name a class as package.module.Class, in a module that is installed or in PYTHONPATH"
    return Fault(f"hydra.callbacks.{name}", shown(settings.get("_target_")), rule, remedy)
