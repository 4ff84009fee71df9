"""The sweeper `hydra/sweeper=optuna`, in the package where Hydra finds plugins; `embexp.sweeps` does the work."""

from __future__ import annotations

from typing import Any

from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class OptunaSweeper(Sweeper):
    """Passes a search in batches to the launcher."""

    def __init__(self, **settings: Any) -> None:
        """Takes the settings as Hydra passes them; the sweep has checked them."""
        self._sweep: Any = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Receives the sweep, which `embexp run -m` passes to Hydra as the task function."""
        self._sweep = task_function
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> None:
        """Runs the search to its end."""
        raise NotImplementedError
