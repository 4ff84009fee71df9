"""`embexp run -m`: checks every job, runs each in its own process, and prints one table."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.config import additions, composition, record
from embexp.config.callbacks import Callbacks
from embexp.config.loader import Loader
from embexp.config.permission import OWN_MODULES, Permission
from embexp.errors import CommandLineError, ConfigError
from embexp.reports.record import Status
from embexp.sweeps import ledger as ledgers
from embexp.sweeps import objective, planned, shares, unchanged
from embexp.sweeps.enrolling import Enrolment
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.outcomes import Outcome
from embexp.sweeps.planned import Plan
from embexp.sweeps.processes import Command
from embexp.system import files, locks, terminal
from embexp.training.metric_names import objectives

if TYPE_CHECKING:
    from embexp.sweeps.running import Runner

PATIENCE = 10.0
"""Seconds to wait for an earlier process of the sweep, which was killed, to be gone."""


def sweep(
    overrides: Sequence[str],
    *,
    config_dir: str | None = None,
    config_name: str = "config",
    config_path: str | None = None,
    fresh: bool = False,
    directory: Path | None = None,
    command: Command | None = None,
    permission: Permission = OWN_MODULES,
) -> bool:
    """Runs a sweep and prints its results. One that was begun in the same directory is continued there.

    Args:
        overrides: as on the command line, those for Hydra included.
        config_dir: the user's folder of configs.
        config_name: the config to start from.
        config_path: the folder that replaces the shipped one.
        fresh: start anew, in a new directory, even if the sweep was begun.
        directory: of the sweep; None: `hydra.sweep.dir`.
        command: runs a job; None: jobs are forked where their devices allow that.
        permission: which code the configs may name.

    Returns:
        Whether every job that was not skipped ended with results.

    Raises:
        ConfigError: any job's config is invalid; nothing has been started or written.
        CommandLineError: the directory has another sweep.
        RunError: another process works there.
    """
    loader = composition.loader(config_dir, config_name, config_path, permission=permission)
    overrides = additions.lines(loader, overrides)
    with terminal.shown_if_long() as progress:
        plan = planned.plan(loader, overrides, progress)
    callbacks = Callbacks(plan.base, permission)
    if faults := callbacks.faults_of_jobs():
        raise ConfigError(faults)
    from embexp.sweeps.running import Runner  # not above: it needs NumPy, and wrong settings are reported without it

    place = (directory or record.sweep_directory(plan.base)).absolute()
    if fresh or not ledgers.exists(place):
        place = files.new_directory(place)
    command_line = {
        "overrides": list(overrides),
        "config_dir": None if config_dir is None else str(Path(config_dir).absolute()),
        "config_name": config_name,
        "config_path": config_path,
        "folder": os.getcwd(),
        "search": plan.jobs is None,
    }
    with (
        locks.of_folder(place, f"the sweep in {place}").exclusive(patience=PATIENCE),
        Ledger(place, create=True) as ledger,
        Runner(ledger, plan.launching, terminal.console(), command=command, engine=plan.engine) as runner,
    ):
        running = Sweep(loader, plan, runner)
        engine = None if plan.engine is None else plan.engine.as_json()
        launching = plan.launching.model_dump(mode="json")
        running.begin({"command": command_line, "launching": launching, "engine": engine})
        record.note_sweep(plan.base, place)
        loader.multirun(plan.base, running, plan.overrides, callbacks)
        return runner.finish()


class Sweep:
    """A running sweep. Hydra passes it to embexp's launcher as the task function."""

    def __init__(self, loader: Loader, plan: Plan, runner: Runner) -> None:
        """Prepares the sweep.

        Args:
            loader: composes configs.
            plan: the jobs.
            runner: runs jobs of the ledger.
        """
        self._loader = loader
        self._plan = plan
        self._runner = runner
        specs = [job.spec for job in plan.jobs or ()]
        at_once = shares.jobs_at_once(plan.launching, specs, shares.visible_gpus())
        self._enrolment = Enrolment(runner.ledger, at_once=at_once)
        self._failed_before = {job.number for job in runner.ledger.jobs() if job.state is Status.FAILED}
        self._settings: dict[int, list[int]] = {}
        """Numbers of the jobs of each setting."""

    def __call__(self, config: object) -> None:
        """Never called: each job gets its own process.

        Raises:
            TypeError: always.
        """
        raise TypeError("the jobs of a sweep are run by hydra/launcher=embexp alone")

    def begin(self, notes: dict[str, object]) -> None:
        """Enters the jobs into the ledger, if they are known in advance, and prints those that are skipped.

        Args:
            notes: about the sweep, for the ledger.

        Raises:
            CommandLineError: the ledger has jobs that are not planned now, or jobs that would give other results now.
        """
        ledger, shown = self._runner.ledger, self._runner.shown
        before = {job.number for job in ledger.jobs()}
        if self._plan.jobs is None:
            command = ledger.noted("command")
            if command is not None and not command.get("search"):
                remedy = "choose another hydra.sweep.dir, or start anew beside it with --fresh"
                raise CommandLineError(f"{ledger.directory} has another sweep\n    {remedy}")
            ledger.add([], notes)
            return
        found, new = self._enrolment.find(self._plan.jobs)
        if before:
            self._check([job for job in found if job.number in before])
        ledger.add(new, notes)
        for job, planned_job in zip(found, self._plan.jobs, strict=True):
            self._settings.setdefault(planned_job.setting, []).append(job.number)
        shown.expect(len(self._missing([job.number for job in found])), len(found))
        if before:
            self._say_continued(found)
        for job in found:
            if job.state is Status.SKIPPED:
                shown.say(f"job {job.number} of {len(found)} is skipped: {job.reason}")
            elif job.same_as is not None:
                shown.say(f"job {job.number} of {len(found)} is the same as job {job.same_as}, and not run again")

    def run_batch(self, batch: Sequence[Sequence[str]], *, first: int) -> list[list[Outcome]]:
        """Runs the jobs of a batch, as many at once as the launcher is to.

        Args:
            batch: overrides of each setting.
            first: number of the first setting.

        Returns:
            For each setting, the outcomes of its jobs: one, or as many as `seeds` says.

        Raises:
            ConfigError: the config of any of them is invalid; none has been started.
        """
        if self._plan.jobs is None:
            hydra = [str(each) for each in self._plan.base.hydra.overrides.hydra]
            jobs = planned.checked(self._loader, batch, hydra, first=first)
            found, new = self._enrolment.find(jobs)
            self._runner.ledger.add(new)
            for job, planned_job in zip(found, jobs, strict=True):
                self._settings.setdefault(planned_job.setting, []).append(job.number)
        settings = [self._settings[first + number] for number in range(len(batch))]
        missing = self._missing([number for numbers in settings for number in numbers])
        if self._plan.jobs is None:
            search = self._plan.search
            self._runner.shown.expect(len(missing), None if search is None else search.trials * search.seeds)
        if missing:
            self._runner.run(missing)
        return [[self._runner.outcome(number) for number in numbers] for numbers in settings]

    def run_search(self) -> None:
        """Runs the search of the sweeper `optuna` to its end, and prints the best trial.

        Raises:
            RunError: the storage of the study can't be used.
            CommandLineError: the directory has another search.
        """
        search, runner = self._plan.search, self._runner
        if search is None:
            raise TypeError("the sweep is no search")

        def told(trials: Sequence[int]) -> None:
            for trial in trials:
                numbers = [trial * search.seeds + seed for seed in range(search.seeds)]
                self._settings[trial] = self._enrolment.meet(numbers)
            if trials:
                runner.shown.say(f"continuing the search in {runner.ledger.directory}: {len(trials)} trials are done")

        best = search.run(runner.ledger.directory, lambda batch, first: self.run_batch(batch, first=first), told)
        for each in best:
            runner.shown.say(f"best trial: {search.described(each)}")

    def objective(self, outcomes: Sequence[Outcome]) -> float | list[float]:
        """What `sweep.objective` names, of a setting: the mean over its seeds, NaN if it failed."""
        spec = self._runner.ledger.job(outcomes[0].number).checked_spec
        wanted = spec.sweep.objective
        values = objective.values(objectives(spec.task, wanted, spec.recommendation.cutoffs), outcomes)
        return values[0] if wanted is None or isinstance(wanted, str) else values

    def _missing(self, numbers: Sequence[int]) -> list[int]:
        """The jobs that are to run now: those that failed before are tried again by `embexp resume` alone."""
        found = []
        for job in map(self._runner.ledger.job, numbers):
            if job.same_as is None and not job.state.is_settled and job.number not in self._failed_before:
                found.append(job.number)
        return found

    def _check(self, known: Sequence[LedgerJob]) -> None:
        place = self._runner.ledger.directory
        remedy = f"choose another hydra.sweep.dir, or start anew beside it with --fresh\n    embexp resume {place}"
        if others := self._enrolment.unasked():
            words = f"job {others[0].number} ({' '.join(others[0].overrides)})"
            count = f"{len(others)} of its {len(known) + len(others)} jobs are not in this one"
            raise CommandLineError(
                f"{place} has another sweep: {count}, the first is {words}\n    {remedy} finishes that one"
            )
        if changed := unchanged.changed([job for job in known if job.state.has_results]):
            lines = "\n".join(f"    {each}" for each in changed)
            raise CommandLineError(
                f"{place} has results that would be others now, as data, files or code have changed:\n{lines}\n"
                f"    {remedy} finishes the sweep all the same"
            )

    def _say_continued(self, found: Sequence[LedgerJob]) -> None:
        done = sum(job.state.is_settled for job in found)
        text = f"continuing the sweep in {self._runner.ledger.directory}: {done} of {len(found)} jobs are done"
        if failed := [job for job in found if job.number in self._failed_before and job.same_as is None]:
            text += f", {len(failed)} failed (`embexp resume` tries them again)"
        self._runner.shown.say(text)
