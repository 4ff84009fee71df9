"""The launcher of `embexp run -m`, in the package where Hydra finds plugins; `embexp.sweeps` does the work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class EmbexpLauncher(Launcher):
    """Passes the jobs of a batch to the sweep, which runs each in its own process."""

    def __init__(self) -> None:
        self._sweep: Any = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Receives the sweep, which `embexp run -m` passes to Hydra as the task function."""
        self._sweep = task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Runs a batch of jobs. A failed job is an outcome, not an exception: the other jobs still run."""
        from embexp.sweeps.sweep import Sweep

        if not isinstance(self._sweep, Sweep):
            raise TypeError("the launcher `embexp` runs the jobs of `embexp run -m` only")
        outcomes = self._sweep.run_batch([list(each) for each in job_overrides], first=initial_job_idx)
        returns = []
        for overrides, outcome in zip(job_overrides, outcomes, strict=True):
            returned = JobReturn(overrides=list(overrides), status=JobStatus.COMPLETED)
            returned.return_value = outcome
            returns.append(returned)
        return returns
