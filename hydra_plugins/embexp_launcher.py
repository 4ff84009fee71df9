"""The launcher of `embexp run -m`, in the package where Hydra finds plugins; `embexp.sweeps` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import CompactHydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class EmbexpLauncher(Launcher):
    """Passes the jobs of a batch to the sweep, which runs each in its own process."""

    def __init__(self, **settings: Any) -> None:
        """Takes the settings of `hydra.launcher`, which the sweep has read and checked (`specs.running.Launching`)."""
        self._sweep: Any = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Receives the sweep, which `embexp run -m` passes to Hydra as the task function."""
        self._sweep = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Runs a batch of jobs, and returns the objective of each: see `Sweep.objective`.

        A failed job is an outcome, not an exception: the other jobs still run, and its objective is NaN.
        """
        from embexp.sweeps.sweep import Sweep

        if not isinstance(self._sweep, Sweep):
            raise CompactHydraException(
                "the launcher `embexp` runs the jobs of `embexp run -m` only: for those of your own app,"
                " choose another, such as hydra/launcher=basic"
            )
        settings = self._sweep.run_batch([list(each) for each in job_overrides], first=initial_job_idx)
        returns = []
        for overrides, outcomes in zip(job_overrides, settings, strict=True):
            returned = JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED)
            returned.return_value = self._sweep.objective(outcomes)
            returns.append(returned)
        return returns
