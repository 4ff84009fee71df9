"""`embexp run -m`, `embexp.sweep`, `embexp resume` of a sweep: jobs are checked, entered into the ledger and run."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig
from rich.console import Console

from embexp.config import composition, hydra_job
from embexp.config import overrides as additions
from embexp.config.hydra_job import Callbacks
from embexp.config.loader import Loader
from embexp.config.named_code import OWN_MODULES, Permission
from embexp.errors import CommandLineError, ConfigError, EmbexpError, RunError, plural
from embexp.records.folder import check_code, check_entries, json_object, named_functions, why_another
from embexp.reports.collected import settings_of
from embexp.reports.record import Status, text_of
from embexp.specs import tracking
from embexp.specs.run import RunSpec, combination_faults
from embexp.specs.running import Launching
from embexp.specs.studies import NoStudy
from embexp.specs.tasks import objectives
from embexp.sweeps import ledger as ledgers
from embexp.sweeps import planning, processes, search
from embexp.sweeps.engines import Engine
from embexp.sweeps.jobs import OTHER_DIRECTORY, Outcome, loss
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.planning import Enrolment, LedgerJobs, Plan, PlannedJob, key_of
from embexp.sweeps.processes import Command
from embexp.sweeps.settings import changed_launching
from embexp.system import files, locks, machine_faults, printable, slurm, terminal

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
    narrow: bool = False,
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
        narrow: go on with a search in a narrower space without asking.
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
    _check_alone()
    loader = composition.loader(config_dir, config_name, config_path, permission=permission, overrides=overrides)
    overrides = additions.sweep_lines(loader, overrides)
    with terminal.shown_if_long() as progress:
        plan = planning.plan(loader, overrides, progress)
    callbacks = Callbacks(plan.base, permission)
    if faults := callbacks.faults_of_jobs():
        raise ConfigError(faults)
    place = (directory or hydra_job.sweep_directory(plan.base)).absolute()
    machine_faults.name_place(place, "hydra.sweep.dir" if directory is None else "directory")
    asked = place
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
    with running(place, plan.launching, terminal.console(), command=command, engine=plan.engine) as runner:
        begun = Sweep(loader, plan, runner, why_another(asked, runner.ledger.directory), narrow=narrow)
        engine = None if plan.engine is None else plan.engine.as_json()
        launching = plan.launching.model_dump(mode="json")
        begun.begin({"command": command_line, "launching": launching, "engine": engine})
        hydra_job.note_sweep(plan.base, place)
        loader.multirun(plan.base, begun, plan.overrides, callbacks)
        return runner.finish()


@contextlib.contextmanager
def running(
    place: Path,
    launching: Launching,
    console: Console,
    *,
    folder: Path | None = None,
    command: Command | None = None,
    engine: Engine | None = None,
) -> Iterator[Runner]:
    """Runs the jobs of a sweep while this process has its lock.

    Args:
        folder, command, engine: see `Runner`.
    """
    from embexp.sweeps.running import Runner  # not above: it needs NumPy, and wrong settings are reported without it

    with (
        printable.lasting_streams(lambda _: None),  # whose terminal is closed before the signal comes that says so
        locks.of_folder(place, f"the sweep in {place}").exclusive(patience=PATIENCE),
        _opened(place) as ledger,
        Runner(ledger, launching, console, folder=folder, command=command, engine=engine) as runner,
    ):
        yield runner


def _opened(place: Path) -> Ledger:
    """The ledger of a folder in which nothing leads elsewhere."""
    check_entries(place)
    return Ledger(place, create=True)


def _check_alone() -> None:
    """Raises CommandLineError if Slurm has started this process several times."""
    if slurm.task(os.environ) is not None:
        rule = f"Slurm has started this command as {os.environ[slurm.NTASKS]} tasks, but a sweep is one process"
        remedy = "start it with srun --ntasks=1; hydra/launcher=submitit_slurm starts the workers of its jobs"
        raise CommandLineError(f"{rule}\n    {remedy}")


class Sweep:
    """A running sweep. Hydra passes it to embexp's launcher as the task function."""

    def __init__(self, loader: Loader, plan: Plan, runner: Runner, why_here: str, *, narrow: bool = False) -> None:
        """Prepares the sweep.

        Args:
            why_here: what to add to the line that says where it is; "" where it was asked for.
            narrow: whether a search may go on in a narrower space.
        """
        self._narrow = narrow
        self._why_here = why_here
        self._loader = loader
        self._plan = plan
        self._runner = runner
        strategies = [job.spec.strategy for job in plan.jobs or ()]
        at_once = processes.jobs_at_once(plan.launching, strategies, processes.visible_gpus())
        self._enrolment = Enrolment(runner.ledger, at_once=at_once, engine=plan.engine)
        self._failed_before: set[int] = set()
        self._settings: dict[int, list[int]] = {}
        """Numbers of the jobs of each setting."""
        self._notes: Mapping[str, object] = {}

    def __call__(self, config: object) -> None:
        """Never called: each job gets its own process.

        Raises:
            TypeError: always.
        """
        raise TypeError("only hydra/launcher=embexp can run the jobs of this sweep")

    def begin(self, notes: dict[str, object]) -> None:
        """Enters the jobs into the ledger, if they are known in advance, and prints those that are skipped.

        Every check comes before the first change of the ledger: a sweep that is refused leaves it as it was. What is
        noted of a search waits for the check of its study, in `run_search`.

        Raises:
            CommandLineError: the ledger has jobs that are not planned now, or jobs that would give other results now.
        """
        ledger, shown = self._runner.ledger, self._runner.shown
        before = {job.number for job in ledger.jobs()}
        command = ledger.noted("command")
        if command is not None and bool(command.get("search")) is not (self._plan.jobs is None):
            kind = "a search" if command.get("search") else "a sweep over given values"
            raise CommandLineError(f"{ledger.directory} already holds a different sweep, {kind}\n    {OTHER_DIRECTORY}")
        self._notes = notes
        if self._plan.jobs is None:
            if self._plan.search is None:
                self._note()
            return
        found, new = self._enrolment.find(self._plan.jobs)
        if before:
            self._check([job for job in found if job.number in before])
        self._enter(self._plan.jobs, found, new, notes)
        self._begin()
        found = [ledger.job(job.number) for job in found]
        shown.expect(len(self._missing([job.number for job in found])), len(found))
        if before:
            self._say_continued(found)
        else:
            self._say_where()
        for note in self._plan.notes:
            shown.say(note)
        for job in found:
            if job.state is Status.SKIPPED:
                shown.say(f"job {job.number} of {len(found)} is skipped: {job.reason}")
            elif job.same_as is not None:
                shown.say(f"job {job.number} of {len(found)} duplicates job {job.same_as} and is not run again")

    def _note(self) -> None:
        """Notes what is known about the sweep, once nothing can refuse it any more."""
        self._begin()
        self._runner.ledger.add([], self._notes)

    def _begin(self) -> None:
        self._runner.begin()
        ledger = self._runner.ledger
        failed = [job for job in ledger.jobs() if job.state is Status.FAILED]
        self._failed_before = {job.number for job in failed if not loss(ledger.directory, job)}

    def _enter(
        self,
        planned: Sequence[PlannedJob],
        found: Sequence[LedgerJob],
        new: Sequence[LedgerJob],
        notes: Mapping[str, object] | None = None,
        *,
        first: int = 0,
    ) -> None:
        """Enters jobs into the ledger, and notes which are of each setting."""
        self._runner.ledger.add(new, notes)
        for job, planned_job in zip(found, planned, strict=True):
            self._settings.setdefault(first + planned_job.setting, []).append(job.number)

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
            jobs = planning.check(self._loader, batch, hydra, effective=self._plan.effective).jobs
            planning.check_processes(self._plan.engine, jobs)
            self._enter(jobs, *self._enrolment.find(jobs), first=first)
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
            raise TypeError("the sweep is not a search")

        def told(trials: Sequence[int]) -> Mapping[int, Sequence[Outcome]]:
            self._note()
            for trial in trials:
                numbers = [trial * search.seeds + seed for seed in range(search.seeds)]
                self._settings[trial] = self._enrolment.meet(numbers)
            missing = self._missing([number for trial in trials for number in self._settings[trial]])
            if not trials:
                self._say_where()
            else:
                is_done = "1 trial is done" if len(trials) == 1 else f"{len(trials)} trials are done"
                runner.shown.say(f"continuing the search in {runner.ledger.directory}: {is_done}")
            for note in self._plan.notes:
                runner.shown.say(note)
            if missing:
                runner.shown.expect(len(missing), search.trials * search.seeds)
                with study.unpruned(search, runner.ledger.directory, missing):
                    runner.run(missing)
            return {trial: list(map(runner.outcome, self._settings[trial])) for trial in trials}

        def launch(batch: Sequence[Sequence[str]], first: int) -> list[list[Outcome]]:
            return self.run_batch(batch, first=first)

        from embexp.sweeps import study  # which imports Optuna

        jobs = LedgerJobs(self._loader, self._plan, runner.ledger, self._enrolment, narrow=self._narrow)
        for trial in study.run(search, runner.ledger.directory, launch, told, jobs):
            runner.shown.say(f"best trial: {study.described(search, trial)}")

    def objective(self, outcomes: Sequence[Outcome]) -> float | list[float]:
        """What `sweep.objective` names, of a setting: the mean over its seeds, NaN if it failed."""
        spec = self._runner.ledger.job(outcomes[0].number).checked_spec
        wanted = spec.sweep.objective
        aims = objectives(spec.task, wanted, spec.task.cutoffs_of(spec), spec.further_metrics)
        values = search.objective_values(aims, outcomes)
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
        _check_asked(place, self._enrolment.unasked(), len(known))
        check_results(place, [job for job in known if job.state.has_results], self._runner.shown.console)

    def _say_where(self) -> None:
        self._runner.shown.say(f"sweep in {self._runner.ledger.directory}{self._why_here}{self._plan.outside}")

    def _say_continued(self, found: Sequence[LedgerJob]) -> None:
        text = f"continuing the sweep in {self._runner.ledger.directory}: {_how_many_are_done(found)}"
        if failed := [job for job in found if job.number in self._failed_before and job.same_as is None]:
            text += f", {len(failed)} failed (`embexp resume` tries them again)"
        self._runner.shown.say(text + self._plan.outside)


def check_results(place: Path, jobs: Sequence[LedgerJob], console: Console) -> None:
    """Raises CommandLineError if jobs that have ended with results would give others now."""
    with terminal.naming("checking that data, files and code have not changed", console):
        changed = _changed_results(place, jobs)
    if changed:
        lines = "\n".join(f"    {each}" for each in changed)
        remedy = f"{OTHER_DIRECTORY}\n    embexp resume {place}"
        raise CommandLineError(
            f"{place} has results that would now differ because data, files or code have changed:\n{lines}\n"
            f"    {remedy} finishes the sweep anyway"
        )


def _how_many_are_done(jobs: Sequence[LedgerJob]) -> str:
    done = sum(job.state.is_settled for job in jobs)
    return f"{done} of {plural(len(jobs), 'job')} {'is' if done == 1 else 'are'} done"


def _check_asked(place: Path, others: Sequence[LedgerJob], known: int) -> None:
    """Raises CommandLineError if a ledger has jobs that were not asked for, next to `known` ones that were."""
    if others:
        words = f"job {others[0].number} ({' '.join(others[0].overrides)})"
        count = f"{len(others)} of its {plural(known + len(others), 'job')} are not in this one"
        raise CommandLineError(
            f"{place} already holds a different sweep: {count}; the first is {words}\n"
            f"    {OTHER_DIRECTORY}\n    embexp resume {place} finishes that one"
        )


def settled_before(plan: Plan) -> dict[int, str]:
    """The planned jobs that would not run, as the folder of the sweep has them already, and why; writes nothing.

    Raises:
        CommandLineError: the folder has another sweep.
    """
    place = hydra_job.sweep_directory(plan.base).absolute()
    if plan.jobs is None or not ledgers.exists(place):
        return {}
    with Ledger(place) as ledger:
        enrolment = Enrolment(ledger, at_once=1, engine=plan.engine)
        found, new = enrolment.find(plan.jobs)
        added = {job.number for job in new}
        _check_asked(place, enrolment.unasked(), len(found) - len(new))
    why = {}
    for planned, job in zip(plan.jobs, found, strict=True):
        if planned.skip or planned.same_as is not None or job.number in added:
            continue
        if job.state is Status.FAILED and not loss(place, job):
            why[planned.number] = "failed before: `embexp resume` tries it again"
        elif job.state.is_settled and not loss(place, job):
            why[planned.number] = f"{job.state.value.replace('_', ' ')} before: not run again"
    return why


def _changed_results(directory: Path, jobs: Sequence[LedgerJob]) -> list[str]:
    """A sentence for each job whose run_id is no longer the recorded one. Reads data (or its cache), not TensorFlow."""
    from embexp.runs.prepare import prepare

    found = []
    for job in jobs:
        spec = job.checked_spec
        own = json_object(directory / str(job.directory) / "summary.json").get("run_id")  # the ledger may be changed
        before = own if isinstance(own, str) else job.run_id
        if not isinstance(spec.study, NoStudy) or before is None or job.same_as is not None:
            continue
        try:
            run_id = prepare(spec).run_id
        except EmbexpError as error:
            found.append(f"job {job.number}: {' '.join(str(error).split())}")
            continue
        if run_id != before:
            found.append(f"job {job.number} had run_id {before[:12]}, but would now have {str(run_id)[:12]}")
    return found


def resume(
    directory: Path,
    overrides: Sequence[str] = (),
    *,
    allow_code: Sequence[str] = (),
    command: Command | None = None,
    console: Console | None = None,
) -> bool:
    """Finishes a sweep as it was planned, and prints its results.

    Jobs that are done are not repeated. Jobs that were interrupted go on from their newest checkpoint, and those that
    failed are tried again. A search continues with its sweeper, from the command that began it.

    Args:
        overrides: of `hydra.launcher`, such as `hydra.launcher.jobs=2`; threads stay those that were planned.
        allow_code: functions that its jobs may run, and the classes that it names, such as that of an unknown launcher.
        command: runs a job; None: jobs are forked where their devices allow that.
        console: shows progress and results; None: the terminal. A search shows them on the terminal.

    Returns:
        Whether every job that was not skipped has ended with results.

    Raises:
        ConfigError: an override is invalid.
        RunError: the directory has no ledger, or another process works there.
        UsageError: a job that is to be run, or the sweep, names code that isn't allowed.
    """
    _check_alone()
    place = directory.absolute()
    with Ledger(place) as ledger:
        noted, recorded, known = map(ledger.noted, ("command", "launching", "engine"))
        if noted is None:
            raise RunError(f"{ledger.path} has no jobs: the sweep was killed before it had planned any; start it again")
        folder = Path(noted["folder"])
        permission = Permission(frozenset(allow_code), own=False)
        if not noted.get("search"):
            launching = changed_launching(recorded or {}, overrides, composition.loader())
            engine = (
                None if known is None else Engine(known["name"], known["hydra"], known["folder"], permission=permission)
            )
            check_code_of_jobs(ledger, engine, folder, allow_code)
    if not noted.get("search"):
        console = console or terminal.console()
        with running(place, launching, console, folder=folder, command=command, engine=engine) as runner:
            return _finish(runner)
    changed = set(map(key_of, overrides))
    with contextlib.chdir(folder):
        return sweep(
            [*(override for override in noted.get("overrides", ()) if key_of(override) not in changed), *overrides],
            config_dir=noted.get("config_dir"),
            config_name=noted.get("config_name", "config"),
            config_path=noted.get("config_path"),
            directory=place,
            command=command,
            permission=permission,
        )


def check_code_of_jobs(
    ledger: Ledger, engine: Engine | None, folder: Path, allow_code: Sequence[str], *, again: Collection[int] = ()
) -> None:
    """Raises UsageError if what is to be run, or runs again, names code that isn't allowed.

    Args:
        again: numbers of jobs that are to run though they are done.
    """
    specs: dict[bool, list[RunSpec]] = {True: [], False: []}
    for job in ledger.jobs():
        is_done = job.state.is_settled and not loss(ledger.directory, job) and job.number not in again
        specs[is_done].append(job.checked_spec)
    tracking.check_addresses(specs[False], ledger.path)
    done, names = (named_functions(*specs[is_settled]) for is_settled in (True, False))
    allowed = [each for each in allow_code if each not in done or each in names]
    target = "" if engine is None else engine.named_code(ledger.directory)
    others = {target: "hydra.launcher"} if target else {}
    record = f"{ledger.path}, of a sweep with the working folder {folder},"
    check_code({**names, **others}, allowed, record=record)


def _finish(runner: Runner) -> bool:
    runner.begin()
    jobs = runner.ledger.jobs()
    missing = [job.number for job in jobs if job.same_as is None and not job.state.is_settled]
    text = _how_many_are_done(jobs)
    runner.shown.say(text if missing else f"{text}; nothing is left to do")
    runner.shown.expect(len(missing), len(jobs))
    if missing:
        runner.run(missing)
    return runner.finish()


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
        """Whether every job ended normally or was skipped."""
        return all(outcome.status.is_settled for outcome in self.outcomes)


def sweep_specs(specs: Sequence[RunSpec], directory: Path, launching: Launching, console: Console) -> SweepResult:
    """Runs specs, each in a process of its own. A directory that has the same sweep is continued.

    Args:
        specs: checked; one whose settings can't be combined is skipped, with the reason.

    Raises:
        CommandLineError: the directory has another sweep.
        RunError: another process works there.
    """
    place = asked = directory.absolute()
    if not ledgers.exists(place):
        place = files.new_directory(place)
    parts = [settings_of(each.model_dump(mode="json", exclude=_NOT_SETTINGS)) for each in specs]
    settings = varying_settings([{key.removesuffix(".kind"): value for key, value in part.items()} for part in parts])
    jobs = []
    for number, (spec, own) in enumerate(zip(specs, settings, strict=True)):
        skip = "; ".join(f"{fault.path}={fault.value}: {fault.rule}" for fault in combination_faults(spec))
        texts = tuple(f"{key}={value}" for key, value in own.items())
        jobs.append(PlannedJob(number, texts, spec, None, skip, setting=number))
    notes: dict[str, object] = {
        "command": {"folder": os.getcwd(), "search": False},
        "launching": launching.model_dump(mode="json"),
    }
    with running(place, launching, console) as runner:
        plan = Plan(DictConfig({}), (), tuple(jobs), launching)
        begun = Sweep(composition.loader(), plan, runner, why_another(asked, runner.ledger.directory))
        begun.begin(notes)
        ended = begun.run_batch([()] * len(jobs), first=0)
        runner.finish()
    return SweepResult(place, tuple(outcome for outcomes in ended for outcome in outcomes))


def varying_settings(leaves: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """For each spec, the keys whose values differ among all, as text.

    A value that only follows from a choice, as `model.hidden` from `model`, is left out.

    Args:
        leaves: of each spec, value by dotted key.
    """
    differing = [key for key in planning.varying(leaves) if key != "name"]
    for key in list(differing):
        choice = next((each for each in differing if key.startswith(f"{each}.")), None)
        if choice is None:
            continue
        alike = [[leaf for leaf in leaves if leaf.get(choice) == value] for value in {e.get(choice) for e in leaves}]
        if not any(key in planning.varying(group) for group in alike):
            differing.remove(key)
    return [{key: text_of(leaf[key]) for key in differing if key in leaf} for leaf in leaves]
