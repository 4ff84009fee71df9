"""The sweeper `hydra/sweeper=optuna`, in the package where Hydra finds plugins; `embexp.sweeps` does the work."""

from __future__ import annotations

from typing import Any

from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class OptunaSweeper(Sweeper):
    """Passes the trials of a search in batches to the sweep, which runs them with its launcher."""

    def __init__(self, **settings: Any) -> None:
        """Takes the settings of `hydra.sweeper`, which the sweep has read and checked."""
        self._sweep: Any = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Receives the sweep, which `embexp run -m` passes to Hydra as the task function."""
        self._sweep = task_function

    def sweep(self, arguments: list[str]) -> None:
        """Runs the search to its end."""
        from embexp.sweeps.sweep import Sweep

        if not isinstance(self._sweep, Sweep):
            raise TypeError("the sweeper `optuna` searches over the jobs of `embexp run -m` only")
        self._sweep.run_search()
