"""Hydra's callbacks (`hydra.callbacks`): objects of the user's that are called when a sweep starts and ends."""

from __future__ import annotations

import warnings
from typing import Any

from hydra.experimental.callback import Callback
from hydra.utils import instantiate
from omegaconf import DictConfig


class ConfiguredCallbacks(Callback):
    """All callbacks of a config as one. Jobs run in processes of their own, so only the sweep as a whole calls them."""

    def __init__(self, config: DictConfig) -> None:
        self._callbacks: list[Callback] = [instantiate(each) for each in (config.hydra.callbacks or {}).values()]

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Calls every callback, in the order of the config."""
        for each in self._callbacks:
            _call(each, "on_multirun_start", config, kwargs)

    def on_multirun_end(self, config: DictConfig, **kwargs: Any) -> None:
        """Calls every callback, the last one first."""
        for each in reversed(self._callbacks):
            _call(each, "on_multirun_end", config, kwargs)


def _call(callback: Callback, event: str, config: DictConfig, arguments: dict[str, Any]) -> None:
    """Calls one callback. As in Hydra, an exception of its own becomes a warning: the sweep is worth more."""
    try:
        getattr(callback, event)(config=config, **arguments)
    except Exception as error:
        warnings.warn(f"callback {type(callback).__name__}.{event}: {type(error).__name__}: {error}", stacklevel=2)
