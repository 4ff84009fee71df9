"""`embexp run -m`: checks every job, runs each in its own process, and prints one table."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from embexp.config import composition, record
from embexp.config.loader import Loader
from embexp.sweeps import outcomes, planned, process, results
from embexp.sweeps.outcomes import Outcome, Status
from embexp.sweeps.planned import Plan, PlannedJob
from embexp.system import files, terminal

Command = Callable[[Path], Sequence[str]]
"""The command that runs a job in a directory; it gets the spec as JSON on standard input."""


def sweep(
    overrides: Sequence[str],
    *,
    config_dir: str | None = None,
    config_name: str = "config",
    config_path: str | None = None,
    command: Command | None = None,
) -> bool:
    """Runs a sweep and prints its results.

    Args:
        overrides: as on the command line, those for Hydra included.
        config_dir: the user's folder of configs.
        config_name: the config to start from.
        config_path: the folder that replaces the shipped one.
        command: runs a job; None: `python -m embexp.cli.job`.

    Returns:
        Whether every job that was not skipped ended with results.

    Raises:
        ConfigError: any job's config is invalid; nothing has been started or written.
    """
    loader = composition.loader(config_dir, config_name, config_path)
    plan = planned.plan(loader, overrides)
    directory = files.new_directory(record.sweep_directory(plan.base)).absolute()
    running = Sweep(loader, plan, directory, terminal.console(), command or _job_command)
    record.note_sweep(plan.base, directory)
    running.print_skipped()
    loader.multirun(plan.base, running, plan.overrides)
    results.show(running.outcomes, directory, running.console)
    return all(each.status.has_results or each.status is Status.SKIPPED for each in running.outcomes)


class Sweep:
    """A running sweep. Hydra passes it to embexp's launcher as the task function."""

    def __init__(self, loader: Loader, plan: Plan, directory: Path, console: Console, command: Command) -> None:
        """Prepares the sweep.

        Args:
            loader: composes configs.
            plan: the jobs.
            directory: of the sweep; it exists.
            console: shows progress.
            command: runs a job.
        """
        self.console = console
        self.outcomes: list[Outcome] = []
        self._loader = loader
        self._plan = plan
        self._directory = directory
        self._command = command
        self._interrupted = False

    def __call__(self, config: object) -> None:
        """Never called: each job gets its own process.

        Raises:
            TypeError: always.
        """
        raise TypeError("the jobs of a sweep are run by hydra/launcher=embexp alone")

    def print_skipped(self) -> None:
        """Prints the jobs that will be skipped, if the jobs are known in advance."""
        for job in self._plan.jobs or ():
            if job.skip:
                self._print(f"job {job.number} of {len(self._plan.jobs or ())} is skipped: {job.skip}")

    def run_batch(self, batch: Sequence[Sequence[str]], *, first: int) -> list[Outcome]:
        """Runs the jobs of a batch, one after the other.

        Args:
            batch: overrides of each job.
            first: number of the first job.

        Raises:
            ConfigError: the config of any of them is invalid; none has been started.
        """
        jobs = self._jobs(batch, first)
        ended = []
        for job in jobs:
            outcome = self._run(job, len(jobs) + first if self._plan.jobs is None else len(self._plan.jobs))
            ended.append(outcome)
            self.outcomes.append(outcome)
            results.write(self.outcomes, self._directory)
        return ended

    def _jobs(self, batch: Sequence[Sequence[str]], first: int) -> Sequence[PlannedJob]:
        if self._plan.jobs is not None:
            return self._plan.jobs[first : first + len(batch)]
        hydra = [str(each) for each in self._plan.base.hydra.overrides.hydra]
        return planned.checked(self._loader, batch, hydra, first=first)

    def _run(self, job: PlannedJob, total: int) -> Outcome:
        name = f"job {job.number} of {total}"
        if self._interrupted:
            return Outcome(job.number, job.settings, Status.NOT_RUN, "the sweep was interrupted")
        if job.skip:
            if self._plan.jobs is None:
                self._print(f"{name} is skipped: {job.skip}")
            return Outcome(job.number, job.settings, Status.SKIPPED, job.skip)
        directory = files.new_directory(self._directory / record.job_directory(job.config, job.number))
        record.note_sweep(job.config, self._directory)
        record.write(job.config, directory)
        self._print(f"{name} started   {' '.join(self._own(job))}")
        began = time.monotonic()
        try:
            status = process.run(
                self._command(directory), standard_input=job.spec.model_dump_json(), log=directory / "run.log"
            )
        except process.InterruptedSweepError as interrupted:
            status, self._interrupted = interrupted.exit_status, True
        outcome = outcomes.read(
            directory,
            number=job.number,
            overrides=job.settings,
            exit_status=status,
            seconds=time.monotonic() - began,
            compare=job.spec.output.compare,
        )
        self._print(f"{name} {_ended(outcome)}")
        return outcome

    def _own(self, job: PlannedJob) -> list[str]:
        """The overrides that distinguish a job from the others."""
        if self._plan.jobs is None:
            return list(job.overrides)
        keys = outcomes.varying([each.settings for each in self._plan.jobs])
        return [f"{key}={job.settings[key]}" for key in keys if key in job.settings]

    def _print(self, text: str) -> None:
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)


def _ended(outcome: Outcome) -> str:
    text = f"{outcome.status.value.replace('_', ' ')} after {outcome.seconds or 0:.1f} s"
    if outcome.reason:
        return f"{text}: {outcome.reason}"
    shown = [f"{name} {value:.4f}" for name, value in outcome.metrics.items() if name.startswith("test ")]
    return "   ".join([text, *shown[:2]])


def _job_command(directory: Path) -> Sequence[str]:
    return (sys.executable, "-m", "embexp.cli.job", str(directory))
