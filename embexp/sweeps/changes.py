"""Changes of the jobs of a sweep: some are added, run again from their start, or forgotten.

Every check comes before the first change, under the lock of the sweep. The ledger changes in one transaction. What is
moved or told to a study comes before that, and what is removed comes after it. So a process that is killed at any time
leaves a ledger whose every job can be completed by `embexp resume`, or a command that can be repeated.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from embexp.config import composition, zipped
from embexp.config import overrides as additions
from embexp.config.named_code import Permission
from embexp.errors import CommandLineError, RunError, plural
from embexp.records.folder import check_code, check_entries
from embexp.reports import jobs as states
from embexp.reports.record import Status
from embexp.specs import tracking
from embexp.specs.running import Launching
from embexp.sweeps import planning, processes
from embexp.sweeps.engines import Engine
from embexp.sweeps.jobs import Outcome, job_directory, outcome
from embexp.sweeps.ledger import ADDED, Ledger, LedgerJob
from embexp.sweeps.planning import Enrolment, LedgerTimes, Plan, PlannedJob, key_of
from embexp.sweeps.processes import Command
from embexp.sweeps.search import Search
from embexp.sweeps.settings import changed_launching
from embexp.sweeps.sweep import check_code_of_jobs, check_results, running
from embexp.system import files, locks, terminal

EARLIER = ".earlier"
"""Folder of a sweep with the runs of jobs that were run again: hidden, so that reports leave it out."""


@dataclass(frozen=True)
class _Begun:
    """A sweep that this process alone may change.

    Attributes:
        noted: its command.
        states: of its jobs by number, as they were before this process had the lock.
        folder: the working folder in which it was started.
    """

    ledger: Ledger
    noted: Mapping[str, Any]
    states: Mapping[int, str]
    folder: Path
    launching: Launching
    engine: Engine | None
    permission: Permission

    @property
    def place(self) -> Path:
        """The directory of the sweep."""
        return self.ledger.directory

    def plan(self, overrides: Sequence[str] = ()) -> Plan:
        """Plans the sweep again from its command, with overrides in place of those that have the same key.

        Raises:
            ConfigError: a config is invalid.
        """
        given = set(map(key_of, overrides))
        kept = []
        for override in self.noted.get("overrides", ()):
            inside = {key.lstrip("+") for key in zipped.keys_of(key_of(override))}
            if key_of(override) not in given and not (inside and inside <= given):
                kept.append(override)
        with contextlib.chdir(self.folder), terminal.shown_if_long() as progress:
            loader = composition.loader(
                self.noted.get("config_dir"),
                self.noted.get("config_name", "config"),
                self.noted.get("config_path"),
                permission=self.permission,
                overrides=[*kept, *overrides],
            )
            return planning.plan(loader, additions.sweep_lines(loader, [*kept, *overrides]), progress)

    def run(self, numbers: Sequence[int], console: Console, command: Command | None) -> bool:
        """Runs jobs, and nothing else; whether all of them have ended with results."""
        with running(
            self.place, self.launching, console, folder=self.folder, command=command, engine=self.engine
        ) as runner:
            runner.begin()
            found = runner.ledger.jobs()
            runner.shown.expect(len(numbers), max(job.number for job in found) + 1)
            runner.run(numbers)
            runner.finish()
            return all(runner.ledger.job(number).state.is_settled for number in numbers)


@contextlib.contextmanager
def _begun(directory: Path, allow_code: Sequence[str]) -> Iterator[_Begun]:
    """A sweep, within a block in which no other process has it.

    Raises:
        RunError: another process has it, or the directory has no ledger.
    """
    place = directory.absolute()
    with Ledger(place) as ledger:
        at_the_moment = {job.number: job.state for job in states.read(place)}
        with locks.of_folder(place, f"the sweep in {place}").exclusive():
            check_entries(place)
            noted, recorded, known = map(ledger.noted, ("command", "launching", "engine"))
            if noted is None:
                raise RunError(f"{ledger.path} has no jobs: the sweep was killed before it had planned any")
            permission = Permission(frozenset(allow_code), own=False)
            engine = (
                None if known is None else Engine(known["name"], known["hydra"], known["folder"], permission=permission)
            )
            launching = changed_launching(recorded or {}, (), composition.loader())
            yield _Begun(ledger, noted, at_the_moment, Path(noted["folder"]), launching, engine, permission)


def add(
    directory: Path,
    overrides: Sequence[str],
    *,
    later: bool = False,
    allow_code: Sequence[str] = (),
    command: Command | None = None,
    console: Console | None = None,
) -> bool:
    """Adds jobs to a sweep over given values: those of its command with other values, that it does not have yet.

    Args:
        overrides: such as `seed=3,4`; each takes the place of that of the command with the same key.
        later: whether the jobs are only planned, for `embexp resume`.
        allow_code: as for `sweep.resume`.
        command: runs a job; None: jobs are forked where their devices allow that.
        console: None: the terminal.

    Returns:
        Whether every job that was added and not skipped has ended with results, or is planned for later.

    Raises:
        ConfigError: the config of any of them is invalid.
        CommandLineError: the sweep is a search, or its configs, data or code would give other results now.
        RunError: another process has the sweep.
    """
    console = console or terminal.console()
    with _begun(directory, allow_code) as begun:
        place, ledger = begun.place, begun.ledger
        if begun.noted.get("search"):
            remedy = f"embexp resume {place} hydra.sweeper.n_trials=N asks for more"
            raise CommandLineError(f"{place} has a search, which chooses its jobs itself\n    {remedy}")
        if "overrides" not in begun.noted:
            raise CommandLineError(f"{place} was begun by embexp.sweep\n    call that again, with more specs")
        if of_hydra := [each for each in overrides if key_of(each).startswith(("hydra.", "hydra/"))]:
            remedy = f"remove it; embexp resume {place} accepts settings of hydra.launcher"
            raise CommandLineError(f"{of_hydra[0]}: jobs are added with the settings of the sweep\n    {remedy}")
        known = _jobs_of(begun.plan())
        _check_configs(ledger, known)
        wanted = _jobs_of(begun.plan(overrides))
        _check_others(begun, wanted, allow_code)
        strategies = [job.spec.strategy for job in wanted]
        at_once = processes.jobs_at_once(begun.launching, strategies, processes.visible_gpus())
        found, new = Enrolment(ledger, at_once=at_once, engine=begun.engine).find(wanted)
        check_results(place, [job for job in ledger.jobs() if job.state.has_results], console)
        numbers = [job.number for job in new]
        earlier = (ledger.noted(ADDED) or {}).get("numbers", [])
        ledger.add(new, {ADDED: {"numbers": sorted({*earlier, *numbers})}, states.TABLES_NOTED: {}})
        missing = [job.number for job in new if job.same_as is None and not job.state.is_settled]
        there = len(found) - len(new)
        text = f"{_jobs_are(numbers) if new else 'nothing is'} added to the sweep in {place}"
        text += f"; {there} {'is' if there == 1 else 'are'} already there" if there else ""
        _say(console, text + (f"; `embexp resume {place}` runs what is missing" if later and missing else ""))
        return begun.run(missing, console, command) if missing and not later else True


def _check_others(begun: _Begun, wanted: Sequence[PlannedJob], allow_code: Sequence[str]) -> None:
    """Raises an error if the record of a sweep names a launcher, or another machine, that the user has not allowed.

    What the configs name was checked when they were composed.
    """
    tracking.check_addresses([job.spec for job in wanted], begun.ledger.path)
    target = "" if begun.engine is None else begun.engine.named_code(begun.place)
    named = {target: "hydra.launcher"} if target else {}
    check_code(named, [each for each in allow_code if each in named], record=begun.ledger.path)


def _jobs_of(plan: Plan) -> tuple[PlannedJob, ...]:
    return plan.jobs or ()


def _check_configs(ledger: Ledger, known: Sequence[PlannedJob]) -> None:
    """Raises CommandLineError if the command of a sweep asks for other runs now, as after a change of a YAML file."""
    identities = {job.identity for job in ledger.jobs()} | {each.identity for each in ledger.forgotten()}
    if others := [job for job in known if job.identity not in identities]:
        first = " ".join(others[0].overrides)
        raise CommandLineError(
            f"{ledger.directory}: the command that began this sweep would now plan other runs, such as that of "
            f"{first}, because config files have changed\n    restore the files, or start a new sweep"
        )


def rerun(
    directory: Path,
    numbers: Sequence[int],
    *,
    later: bool = False,
    allow_code: Sequence[str] = (),
    command: Command | None = None,
    console: Console | None = None,
) -> bool:
    """Runs jobs of a sweep again, from their start. Their earlier folders are kept, in `.earlier`.

    Arguments and the result are those of `add`.

    Raises:
        CommandLineError: a job does not exist, is running, skipped, or a copy of another; with all reasons.
        RunError: another process has the sweep.
        UsageError: a job names code that isn't allowed.
    """
    console = console or terminal.console()
    with _begun(directory, allow_code) as begun:
        ledger, place = begun.ledger, begun.place
        jobs = _named(begun, numbers, _not_to_rerun)
        check_code_of_jobs(ledger, begun.engine, begun.folder, allow_code, again=numbers)
        search = begun.plan().search if begun.noted.get("search") else None
        kept = [aside for job in jobs if (aside := _set_aside(place, job)) is not None]
        ledger.restart([job.number for job in jobs])
        whose = "its" if len(jobs) == 1 else "their"
        where = f"; {whose} earlier files are in {', '.join(map(str, kept))}" if kept else ""
        done = f"; `embexp resume {place}` runs {'it' if len(jobs) == 1 else 'them'}" if later else ""
        _say(console, f"{_jobs_are(numbers)} planned again{where}{done}")
        if later:
            return True
        names = [job.number for job in jobs]
        if search is None:
            return begun.run(names, console, command)
        from embexp.sweeps import study

        with study.unpruned(search, place, names):
            ended = begun.run(names, console, command)
        told = study.refresh(search, place, outcomes_of_trials(ledger, search), LedgerTimes(ledger, search.seeds))
        if told:
            _say(console, f"the search has new values for {plural(len(told), 'trial')}")
        return ended


def _not_to_rerun(job: LedgerJob) -> str:
    if job.state is Status.SKIPPED:
        return f"job {job.number} is skipped: {job.reason}"
    if job.same_as is not None:
        return f"job {job.number} is the same as job {job.same_as} and shows its result: run that job again"
    return ""


def _set_aside(place: Path, job: LedgerJob) -> Path | None:
    """Moves the folder of a job out of the way, to where it is returned to be; None: there is none."""
    folder = job_directory(place, job)
    if not folder.is_dir():
        return None
    aside = files.free_directory(place / EARLIER / str(job.directory))
    files.make_directories(aside.parent)
    os.rename(folder, aside)
    files.to_disk(aside.parent)
    files.to_disk(folder.parent)
    return aside


def forget(
    directory: Path,
    numbers: Sequence[int],
    *,
    delete: bool = False,
    allow_code: Sequence[str] = (),
    console: Console | None = None,
) -> None:
    """Takes jobs out of a sweep: out of its ledger, tables and page, and out of what its search knows.

    Args:
        delete: whether their folders are removed, too.
        allow_code: code that the command of a search names.
        console: None: the terminal.

    Raises:
        CommandLineError: a job does not exist, is running, or has copies or seeds that stay; with all reasons.
        RunError: another process has the sweep.
    """
    console = console or terminal.console()
    with _begun(directory, allow_code) as begun:
        ledger, place = begun.ledger, begun.place
        search = begun.plan().search if begun.noted.get("search") else None
        every = ledger.jobs()
        jobs = _named(begun, numbers, lambda job: _not_to_forget(job, every, numbers, search))
        if len(jobs) == len(every):
            raise CommandLineError(f"these are all jobs of the sweep in {place}\n    remove the folder instead")
        knows = None
        if search is not None:
            from embexp.sweeps import study

            trials, times = {job.number // search.seeds for job in jobs}, LedgerTimes(ledger, search.seeds)
            knows = study.forget(search, place, trials, times)
        ledger.forget(jobs)
        folders = [job_directory(place, job) for job in jobs if job.same_as is None and job.directory is not None]
        for folder in [each for each in folders if each.is_dir()] if delete else ():
            shutil.rmtree(folder)
            files.to_disk(folder.parent)
        with running(place, begun.launching, console, folder=begun.folder, engine=begun.engine) as runner:
            _say(console, f"{_jobs_are(numbers)} removed from the sweep in {place}")
            if knows is not None:
                _say(console, f"the sampler knows {plural(knows, 'trial')} now, and none of these")
            if staying := [str(each) for each in folders if each.is_dir()]:
                _say(
                    console, f"{'their folders stay' if len(staying) > 1 else 'its folder stays'}: {', '.join(staying)}"
                )
            runner.finish()


def _not_to_forget(job: LedgerJob, jobs: Sequence[LedgerJob], numbers: Collection[int], search: Search | None) -> str:
    copies = [str(each.number) for each in jobs if each.same_as == job.number and each.number not in numbers]
    if copies:
        return f"job {job.number} has copies, which show its result: also name job {' and '.join(copies)}"
    if search is not None and search.seeds > 1:
        trial = job.number // search.seeds
        others = [each.number for each in jobs if each.number // search.seeds == trial and each.number not in numbers]
        if others:
            return f"job {job.number} is one of the seeds of a trial: also name job {' and '.join(map(str, others))}"
    return ""


def _named(begun: _Begun, numbers: Sequence[int], why_not: Callable[[LedgerJob], str]) -> list[LedgerJob]:
    """Jobs by their numbers, each once.

    Args:
        why_not: the reason that forbids the change of a job; "": nothing does.

    Raises:
        CommandLineError: there is no such job, it is running, or something forbids the change; with all reasons.
    """
    place, known = begun.place, {job.number: job for job in begun.ledger.jobs()}
    under_way = [number for number, state in begun.states.items() if state in (Status.RUNNING, Status.QUEUED)]
    faults = []
    for number in dict.fromkeys(numbers):
        if (job := known.get(number)) is None:
            faults.append(f"there is no job {number}: the sweep has {_listed(list(known))}")
        elif number in under_way or (job.directory is not None and states.in_use(job_directory(place, job))):
            faults.append(f"job {number} is running, or in a queue: `embexp sweep cancel {place}` ends it")
        elif reason := why_not(job):
            faults.append(reason)
    if faults:
        raise CommandLineError("\n    ".join([f"{place}: nothing is changed", *faults]))
    return [known[number] for number in dict.fromkeys(numbers)]


def outcomes_of_trials(ledger: Ledger, search: Search) -> dict[int, list[Outcome]]:
    """How the jobs of each trial of a search have ended, by the number of the trial's job in the search."""
    found: dict[int, list[Outcome]] = {}
    for job in ledger.jobs():
        found.setdefault(job.number // search.seeds, []).append(outcome(ledger.directory, job))
    return {trial: outcomes for trial, outcomes in found.items() if len(outcomes) == search.seeds}


def _listed(numbers: Sequence[int]) -> str:
    ends = f"{numbers[0]} to {numbers[-1]}"
    return (
        f"job {numbers[0]}"
        if len(numbers) == 1
        else f"jobs {ends}" + ("" if numbers[-1] - numbers[0] == len(numbers) - 1 else f", {len(numbers)} of them")
    )


def _jobs_are(numbers: Collection[int]) -> str:
    """`1 job is`, `2 jobs are`."""
    return f"{plural(len(numbers), 'job')} {'is' if len(numbers) == 1 else 'are'}"


def _say(console: Console, text: str) -> None:
    terminal.say(console, text)
