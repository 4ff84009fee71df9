"""`embexp run -m` and `embexp.sweep`: every job is checked, entered into the ledger and run in its own process."""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from rich.console import Console

from embexp.config import composition, hydra_job
from embexp.config import overrides as additions
from embexp.config.hydra_job import Callbacks
from embexp.config.loader import Loader
from embexp.config.messages import format_value
from embexp.config.named_code import OWN_MODULES, Permission
from embexp.errors import CommandLineError, ConfigError, EmbexpError
from embexp.records import allowed_code
from embexp.reports.collected import settings_of
from embexp.reports.record import Status
from embexp.specs import studies
from embexp.specs.run import RunSpec, combination_faults
from embexp.specs.studies import Launching, NoStudy
from embexp.sweeps import ledger as ledgers
from embexp.sweeps import planning, processes, search
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.outcomes import Outcome
from embexp.sweeps.planning import Plan, PlannedJob
from embexp.sweeps.processes import Command
from embexp.system import files, locks, terminal

if TYPE_CHECKING:
    from embexp.sweeps.running import Runner

PATIENCE = 10.0
"""Seconds to wait for an earlier process of the sweep, which was killed, to be gone."""
_NOT_SETTINGS = {"output", "sweep", "seeds"}
"""Parts of a spec that do not describe its run."""


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
        plan = planning.plan(loader, overrides, progress)
    callbacks = Callbacks(plan.base, permission)
    if faults := callbacks.faults_of_jobs():
        raise ConfigError(faults)
    from embexp.sweeps.running import Runner  # not above: it needs NumPy, and wrong settings are reported without it

    place = (directory or hydra_job.sweep_directory(plan.base)).absolute()
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
        hydra_job.note_sweep(plan.base, place)
        loader.multirun(plan.base, running, plan.overrides, callbacks)
        return runner.finish()


class Sweep:
    """A running sweep. Hydra passes it to embexp's launcher as the task function."""

    def __init__(self, loader: Loader, plan: Plan, runner: Runner) -> None:
        """Prepares the sweep."""
        self._loader = loader
        self._plan = plan
        self._runner = runner
        specs = [job.spec for job in plan.jobs or ()]
        at_once = processes.jobs_at_once(plan.launching, specs, processes.visible_gpus())
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
            jobs = planning.checked(self._loader, batch, hydra, first=first)
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
        values = search.objective_values(search.objectives_of(spec), outcomes)
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
        if changed := _changed_results([job for job in known if job.state.has_results]):
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


class Enrolment:
    """Finds the places of planned jobs in the ledger.

    Jobs are found by what they ask for, not by their number: the n-th job that asks for a run is the n-th of the ledger
    that does. So a sweep can be extended, and a search that is started again meets the jobs that it has tried.
    """

    def __init__(self, ledger: Ledger, *, at_once: int) -> None:
        """Prepares it.

        Args:
            at_once: number of jobs that will share this machine's cores.
        """
        self._ledger = ledger
        self._at_once = at_once
        self._jobs = {job.number: job for job in ledger.jobs()}
        self._numbers: dict[str, list[int]] = defaultdict(list)
        for job in self._jobs.values():
            self._numbers[job.identity].append(job.number)
        self._asked: Counter[str] = Counter()

    def find(self, planned: Iterable[PlannedJob]) -> tuple[list[LedgerJob], list[LedgerJob]]:
        """The ledger's jobs for planned ones, and those of them that it lacks; writes nothing.

        Raises:
            CommandLineError: a job of the ledger names other code than the planned one.
        """
        self._jobs |= {job.number: job for job in self._ledger.jobs()}  # an earlier batch has ended meanwhile
        found, new = [], []
        for job in planned:
            identity = job.identity
            known, place = self._numbers[identity], self._asked[identity]
            self._asked[identity] += 1
            if place == len(known):
                added = self._entry(job, identity, max(self._jobs, default=-1) + 1)
                self._jobs[added.number] = added
                known.append(added.number)
                new.append(added)
            elif _reconsidered(self._jobs[known[place]], job):
                self._jobs[known[place]] = self._entry(job, identity, known[place])
                new.append(self._jobs[known[place]])
            elif allowed_code.named(self._jobs[known[place]].checked_spec) != allowed_code.named(job.spec):
                raise CommandLineError(
                    f"{self._ledger.path}: job {known[place]} names other code than the sweep that you ask for\n"
                    "    choose another hydra.sweep.dir, or start anew beside it with --fresh"
                )
            found.append(self._jobs[known[place]])
        return found, new

    def meet(self, numbers: Sequence[int]) -> list[int]:
        """Counts jobs of the ledger as asked for, without planning them again; returns those that it has."""
        found = [number for number in numbers if number in self._jobs]
        for number in found:
            self._asked[self._jobs[number].identity] += 1
        return found

    def unasked(self) -> list[LedgerJob]:
        """The jobs of the ledger that were not planned."""
        numbers = [n for identity, known in self._numbers.items() for n in known[self._asked[identity] :]]
        return [self._jobs[number] for number in sorted(numbers)]

    def _entry(self, job: PlannedJob, identity: str, number: int) -> LedgerJob:
        own = {
            "sweep": studies.Sweep(objective=job.spec.sweep.objective),
            "seeds": 1,
        }  # the rest concerns the sweep alone
        spec = processes.with_threads(job.spec.model_copy(update=own), self._at_once)
        entry = LedgerJob(number, job.overrides, job.settings, spec.model_dump_json(), identity)
        if job.skip:
            return replace(entry, state=Status.SKIPPED, reason=job.skip)
        for other in self._numbers[identity]:
            first = self._jobs[other]
            if first.state is not Status.SKIPPED and first.same_as is None and other != number:
                entry = replace(entry, same_as=other, directory=first.directory)
                return replace(entry, state=first.state, reason=first.reason, run_id=first.run_id)
        taken = {each.directory for each in self._jobs.values()}
        config = None if job.config is None else job.config()
        wanted = name = str(number if config is None else hydra_job.job_directory(config, number))
        count = 1
        while name in taken:
            count += 1
            name = f"{wanted}_{count}"
        if config is None:
            return replace(entry, directory=name)
        sweep = self._ledger.directory
        hydra_job.note_sweep(config, sweep)
        return replace(entry, directory=name, hydra=hydra_job.texts(config, sweep / name))


def _reconsidered(known: LedgerJob, job: PlannedJob) -> bool:
    """Whether a job that was skipped is to run now, or the other way round."""
    if known.state is Status.SKIPPED:
        return not job.skip
    return bool(job.skip) and not known.state.has_results and known.same_as is None


def _changed_results(jobs: Sequence[LedgerJob]) -> list[str]:
    """A sentence for each job whose run_id is no longer the recorded one. Reads data (or its cache), not TensorFlow."""
    from embexp.runs.prepare import prepare

    found = []
    for job in jobs:
        spec = job.checked_spec
        if not isinstance(spec.study, NoStudy) or job.run_id is None or job.same_as is not None:
            continue
        try:
            run_id = prepare(spec).run_id
        except EmbexpError as error:
            found.append(f"job {job.number}: {' '.join(str(error).split())}")
            continue
        if run_id != job.run_id:
            found.append(f"job {job.number} was run_id {job.run_id[:12]}, and would be {str(run_id)[:12]} now")
    return found


@dataclass(frozen=True)
class SweepResult:
    """The result of `embexp.sweep`.

    Attributes:
        outcomes: how each job ended, with its metrics and the directory of its run, in the order of the specs.
    """

    directory: Path
    outcomes: tuple[Outcome, ...]

    @property
    def succeeded(self) -> bool:
        """Whether every job has ended normally, or was skipped."""
        return all(each.status.is_settled for each in self.outcomes)


def sweep_specs(specs: Sequence[RunSpec], directory: Path, launching: Launching, console: Console) -> SweepResult:
    """Runs specs, each in a process of its own. A directory that has the same sweep is continued.

    Args:
        specs: checked; one whose settings can't be combined is skipped, with the reason.

    Raises:
        CommandLineError: the directory has another sweep.
        RunError: another process works there.
    """
    from embexp.sweeps.running import Runner

    place = directory.absolute()
    if not ledgers.exists(place):
        place = files.new_directory(place)
    parts = [settings_of(each.model_dump(mode="json", exclude=_NOT_SETTINGS)) for each in specs]
    settings = varying_settings([{key.removesuffix(".kind"): value for key, value in each.items()} for each in parts])
    jobs = []
    for number, (spec, own) in enumerate(zip(specs, settings, strict=True)):
        skip = "; ".join(f"{fault.path}={fault.value}: {fault.rule}" for fault in combination_faults(spec))
        texts = tuple(f"{key}={value}" for key, value in own.items())
        jobs.append(PlannedJob(number, texts, spec, None, skip, setting=number))
    notes: dict[str, object] = {
        "command": {"folder": os.getcwd(), "search": False},
        "launching": launching.model_dump(mode="json"),
    }
    with (
        locks.of_folder(place, f"the sweep in {place}").exclusive(patience=PATIENCE),
        Ledger(place, create=True) as ledger,
        Runner(ledger, launching, console) as runner,
    ):
        running = Sweep(composition.loader(), Plan(DictConfig({}), (), tuple(jobs), launching), runner)
        running.begin(notes)
        ended = running.run_batch([()] * len(jobs), first=0)
        runner.finish()
    return SweepResult(place, tuple(each for outcomes in ended for each in outcomes))


def varying_settings(leaves: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """For each spec, the keys whose values differ among all, as text.

    A value that only follows from a choice, as `model.hidden` from `model`, is left out.

    Args:
        leaves: of each spec, value by dotted key.
    """
    keys = [key for key in dict.fromkeys(key for each in leaves for key in each) if key != "name"]
    differing = [key for key in keys if _varies(key, leaves)]
    for key in list(differing):
        choice = next((each for each in differing if key.startswith(f"{each}.")), None)
        if choice is None:
            continue
        alike = [[each for each in leaves if each.get(choice) == value] for value in {e.get(choice) for e in leaves}]
        if not any(_varies(key, group) for group in alike):
            differing.remove(key)
    return [{key: _text(each[key]) for key in differing if key in each} for each in leaves]


def _varies(key: str, leaves: Sequence[Mapping[str, Any]]) -> bool:
    return any(each.get(key, ...) != leaves[0].get(key, ...) for each in leaves)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else format_value(value)
