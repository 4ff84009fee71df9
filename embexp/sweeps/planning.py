"""The jobs of a sweep and how they are run: all checked before the first starts, and entered into the ledger."""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from hydra.core.override_parser.types import Glob, Override
from omegaconf import DictConfig, OmegaConf, open_dict, read_write
from omegaconf.errors import OmegaConfBaseException

from embexp.config import alike, composition, hydra_globals, hydra_job, zipped
from embexp.config.composition import Composition, Job, compose_config
from embexp.config.folders import Folders
from embexp.config.loader import Loader
from embexp.config.messages import as_override, did_you_mean, format_value, listing
from embexp.config.overrides import parse, repeated
from embexp.errors import Code, CommandLineError, ConfigError, Fault
from embexp.records.folder import named_functions
from embexp.reports.record import Status
from embexp.specs import tracking
from embexp.specs.run import RunSpec
from embexp.specs.running import Launching, Sweep
from embexp.sweeps import engines, processes, space
from embexp.sweeps.engines import Engine
from embexp.sweeps.jobs import OTHER_DIRECTORY
from embexp.sweeps.ledger import ADDED, Ledger, LedgerJob
from embexp.sweeps.search import Search, TrialJobs, combinations, factors, limit, plan_search
from embexp.sweeps.settings import checked_launching, checked_search_settings, storage_rule
from embexp.system import digests, terminal
from embexp.system.parallel import Progress, quiet

_SWEEPER = "hydra_plugins.embexp_optuna_sweeper.OptunaSweeper"
_LAUNCHER = "hydra_plugins.embexp_launcher.EmbexpLauncher"
_ENOUGH = 8
"""Settings with faults after which no more are looked for."""
_NO_PART = {"name", "output", "sweep", "seeds", "expect", "resolvers", "environment"}
"""What two jobs with the same results may differ in."""
Exclusion = Mapping[str, Any]

_FOREIGN = (Code.KEY_OF_ANOTHER_KIND, Code.NOT_IN_CONFIG)
"""Faults of settings that one choice of a sweep has and another has not: without effect in the jobs that have not."""
_ABSENT = object()


@dataclass(frozen=True)
class Plan:
    """A whole sweep.

    Attributes:
        base: the config without the swept overrides; has Hydra's own settings.
        overrides: of the command line, without those for Hydra, as its sweeper takes them.
        jobs: all jobs; None if the sweeper chooses them while the sweep runs.
        engine: the launcher of others that runs them; None: embexp's own.
        search: how the sweeper `optuna` chooses them; None for another sweeper.
        effective: keys that have an effect in a job that was checked: in one without such a setting they have none.
        notes: what the user should know, each a sentence.
        outside: what to add to the line that says where the sweep is, see `composition.elsewhere`.
    """

    base: DictConfig
    overrides: tuple[str, ...]
    jobs: tuple[PlannedJob, ...] | None
    launching: Launching
    engine: Engine | None = None
    search: Search | None = None
    effective: frozenset[str] = frozenset()
    notes: tuple[str, ...] = ()
    outside: str = ""


def plan(loader: Loader, overrides: Sequence[str], progress: Progress = quiet) -> Plan:
    """Finds and checks every job.

    Args:
        overrides: as on the command line.

    Raises:
        ConfigError: any config is invalid, or all jobs are skipped; with the faults of all jobs.
        CommandLineError: a package is missing, or an override can't be swept.
    """
    parsed, tuned = _without_tuned(loader, _parsed(loader, overrides))
    tasks = [each for each in parsed if not each.is_hydra_override()]
    hydra = [str(each.input_line) for each in parsed if each.is_hydra_override()]
    engines.require_package(parsed)
    composed = compose_config(loader, [str(each.input_line) for each in parsed if not each.is_sweep_override()])
    base, outside = composed.config, composition.elsewhere(composed, composition.IN_SWEEPS)
    faults = [*repeated(parsed), *hydra_job.without_effect(parsed, multirun=True), *hydra_job.sweep_faults(base)]
    if faults := [*faults, *composition.faults_of_places(composed, *composition.IN_SWEEPS[:2])]:
        raise ConfigError(faults)
    engine = None
    if base.hydra.launcher.get("_target_") != _LAUNCHER:
        engine = engines.engine(base, loader.permission)
        with read_write(base.hydra):
            base.hydra.launcher = {"_target_": _LAUNCHER}  # it passes jobs on, whatever the sweeper
    launched = checked_launching(base)
    sweeper = base.hydra.runtime.choices.get("hydra/sweeper")
    for task in tasks:
        if task.key_or_group == "seeds" and task.is_sweep_override():
            raise CommandLineError(f"{task.input_line}: a sweep has one number of seeds for all settings: seeds=5")
    most = _number(base, "sweep.max_jobs", Sweep.model_fields["max_jobs"].default)
    search, effective, notes = None, frozenset[str](), tuple[str, ...]()
    if base.hydra.sweeper.get("_target_") == _SWEEPER:
        search, effective, notes = _search(loader, base, tasks, hydra, launched, engine)
        limit({"trials": search.trials, "seeds": search.seeds}, most)
    if sweeper != "basic":
        if search is None and (zips := [task for task in tasks if isinstance(task, zipped.Zipped)]):
            rule = f"sweeper {sweeper} can't combine lists by position"
            remedy = "remove it, or choose hydra/sweeper=basic or hydra/sweeper=optuna"
            raise ConfigError([Fault(each.key_or_group, each.get_value_string(), rule, remedy) for each in zips])
        asked = tuple(str(task.input_line) for task in tasks)
        return Plan(base, asked, None, launched, engine, search, effective, (*tuned, *notes), outside)
    with hydra_globals.borrowed(base):
        if conditional := [
            key
            for key, value in (base.hydra.sweeper.params or {}).items()
            if OmegaConf.is_config(value) and not zipped.keys_of(key)
        ]:
            rule, remedy = "only a search can have parameters with conditions", "choose hydra/sweeper=optuna"
            raise ConfigError([Fault(f"{space.PARAMS}.{key}", "a mapping", rule, remedy) for key in conditional])
        params = _parsed(loader, [f"{key}={value}" for key, value in (base.hydra.sweeper.params or {}).items()])
        params, more = _without_tuned(loader, params)
        with read_write(base.hydra), open_dict(base.hydra):  # Hydra's sweeper reads them there
            pairs = (zipped.for_hydra(param).partition("=") for param in params)
            base.hydra.sweeper.params = {key: value for key, _, value in pairs} or base.hydra.sweeper.params
    _check_zips([*params, *tasks])
    limit(factors([*params, *tasks]) | {"seeds": _number(base, "seeds", 1)}, most)
    checked = _possible(loader, combinations([*params, *tasks]), hydra, engine, base, progress)
    # Hydra accepts a valid key that no file mentions only if it is added.
    lines = [zipped.for_hydra(task) for task in tasks]
    forced = tuple(f"++{line}" if line.partition("=")[0] in checked.added else line for line in lines)
    notes = (*tuned, *more, *inert_notes(checked.jobs))
    return Plan(base, forced, checked.jobs, launched, engine, notes=notes, outside=outside)


def inert_notes(jobs: Sequence[PlannedJob]) -> Iterator[str]:
    """A line for each setting that has no effect in some jobs."""
    without: dict[str, list[int]] = {}
    for job in jobs:
        for override in job.inert:
            without.setdefault(key_of(override), []).append(job.number)
    for key, numbers in without.items():
        yield f"no effect: {key} in {len(numbers)} of {len(jobs)} jobs, whose choices have no such setting"


def _possible(
    loader: Loader,
    batch: Sequence[Sequence[str]],
    hydra: Sequence[str],
    engine: Engine | None,
    base: DictConfig,
    progress: Progress = quiet,
) -> Checked:
    """The checked jobs of a batch.

    Raises:
        ConfigError: any config is invalid, no job can run, the launcher can't start the processes of one, or jobs have
            another folder for the sweep.
        CommandLineError: every job is excluded.
    """
    found = check(loader, batch, hydra, progress, seeds=_number(base, "seeds", 1))
    if found.directories - {hydra_job.undated_sweep_directory(base)}:
        raise ConfigError([_several_directories(base)])
    if all(job.skip for job in found.jobs):
        if found.impossible:
            raise ConfigError(found.impossible)
        raise CommandLineError("sweep.exclude excludes every job of this sweep")
    check_processes(engine, found.jobs)
    return found


def check_processes(engine: Engine | None, jobs: Iterable[PlannedJob]) -> None:
    """Raises ConfigError if a launcher can't start the processes of jobs."""
    if wrong := list(dict.fromkeys(engines.faults(engine, [job.spec.strategy for job in jobs if not job.skip]))):
        raise ConfigError(wrong)


def _search(
    loader: Loader,
    base: DictConfig,
    tasks: Sequence[Override],
    hydra: Sequence[str],
    launched: Launching,
    engine: Engine | None,
) -> tuple[Search, frozenset[str], tuple[str, ...]]:
    """Plans the search of the sweeper `optuna`; returns it with `effective` and `notes` of its plan."""
    settings = checked_search_settings(base)
    if not loader.permission.own and (elsewhere := list(tracking.storage_faults(settings.storage))):
        raise ConfigError(elsewhere)
    if settings.storage is not None and (rule := storage_rule(settings, Path())):
        remedy = "name another, such as hydra.sweeper.storage=search.db"
        raise ConfigError([Fault("hydra.sweeper.storage", format_value(settings.storage), rule, remedy)])

    effective: set[str] = set()
    without: dict[str, None] = {}

    def check(batch: Sequence[Sequence[str]]) -> list[RunSpec]:
        jobs = _possible(loader, batch, hydra, engine, base).jobs
        if unchecked := list(_unchecked(jobs)):
            jobs = _possible(loader, [*batch, *unchecked], hydra, engine, base).jobs
        for job in jobs:
            effective.update(map(key_of, job.effective))
            without.update(dict.fromkeys(map(key_of, job.inert)))
        return [job.spec for job in jobs if not job.skip]

    lines, entries = space.entries(settings.params or {})
    params, tuned = _without_tuned(loader, _parsed(loader, [*lines, *(entry.line for entry in entries)]))
    plain = len(lines)
    _check_zips([*params[:plain], *tasks])
    searched = space.space(tasks, params[:plain], list(zip(entries, params[plain:], strict=True)))
    search = plan_search(
        settings,
        searched,
        check,
        at_once=lambda strategies: processes.jobs_at_once(launched, strategies, processes.visible_gpus()),
    )
    notes = (f"no effect: {key} in trials whose choices have no such setting" for key in without)
    return search, frozenset(effective), (*tuned, *searched.notes, *notes)


def _unchecked(jobs: Sequence[PlannedJob]) -> Iterator[list[str]]:
    """Overrides of jobs in which those values have an effect that had none in the probes of a search."""
    checked = {override for job in jobs for override in job.effective}
    for override in dict.fromkeys(override for job in jobs for override in job.inert if override not in checked):
        key = key_of(override)
        like = next((job for job in jobs if key in map(key_of, job.effective)), None)
        if like is not None:
            yield [override if key_of(each) == key else each for each in like.overrides]


def _check_zips(overrides: Sequence[Override]) -> None:
    """Raises ConfigError if a key is in lists that are taken together and elsewhere; of equal keys, the last counts."""
    if found := list(zipped.faults({each.get_key_element(): each for each in overrides}.values())):
        raise ConfigError(found)


def _parsed(loader: Loader, texts: Iterable[str]) -> list[Override]:
    parsed, faults = parse(loader, texts, sweeping=True)
    if faults:
        raise ConfigError(faults)
    return parsed


def _without_tuned(loader: Loader, parsed: Sequence[Override]) -> tuple[list[Override], list[str]]:
    """Overrides with the choices that their globs mean, and a line for each glob that leaves some out.

    A choice that is tuned for one experiment, such as `adam_movielens`, counts only if a pattern matches it that does
    not match `adam`.
    """
    found, notes = list[Override](), list[str]()
    experiments = loader.folders.choices.get("experiment", {})
    for override in parsed:
        if not isinstance(glob := override.value(), Glob):
            found.append(override)
            continue
        known = loader.folders.choices.get(override.key_or_group, {})
        tuned = {f"{name}_{experiment}": name for name in known for experiment in experiments}
        matching = glob.filter([*known])
        taken = [
            name
            for name in matching
            if name not in tuned or any(fnmatch(name, each) and not fnmatch(tuned[name], each) for each in glob.include)
        ]
        if left_out := [name for name in matching if name not in taken]:
            notes.append(
                f"{override.input_line} tries {', '.join(taken)}, and not what is tuned for one experiment"
                f" ({', '.join(left_out)}): a pattern for these includes them, such as"
                f" glob([{','.join(glob.include)},{left_out[0]}])"
            )
        words = f"{str(override.input_line).partition('=')[0]}={','.join(taken)}"
        found.append(loader.parse(words) if left_out else override)
    return found, notes


def _number(base: DictConfig, path: str, default: int) -> int:
    """A whole number of a config; the default for anything else, which the check of the jobs reports."""
    try:
        found = OmegaConf.select(base, path)
    except OmegaConfBaseException:
        return default
    return found if type(found) is int and found > 0 else default


@dataclass(frozen=True)
class PlannedJob:
    """A checked job.

    Attributes:
        number: from 0.
        overrides: as Hydra gives them, such as `data.fold=3`.
        inert: those of them that have no effect, as the job's choices have no such setting.
        compose: makes its config again, as those of many jobs would take much memory; None: it has none.
        skip: why it is skipped, or "".
        setting: number of the combination of overrides that it is, or repeats with another seed.
        same_as: number of the first job that asks for the same run, unless it is that one.
    """

    number: int
    overrides: tuple[str, ...]
    spec: RunSpec
    compose: Callable[[], Composition] | None
    skip: str = ""
    setting: int = 0
    same_as: int | None = None
    inert: tuple[str, ...] = ()

    @property
    def effective(self) -> list[str]:
        """The overrides that have an effect."""
        return [override for override in self.overrides if override not in self.inert]

    @property
    def settings(self) -> dict[str, str]:
        """Value by key of the overrides that have an effect, without + and ~."""
        return {key_of(override): override.partition("=")[2] for override in self.effective}

    @property
    def identity(self) -> str:
        """Equal for jobs that ask for the same run."""
        return digests.of_json(self.spec.model_dump(mode="json", exclude=_NO_PART))


@dataclass(frozen=True)
class Checked:
    """The jobs of a batch.

    Attributes:
        added: keys that their overrides added to the config.
        impossible: the faults of jobs that are skipped because of them.
        directories: what they say of the sweep's directory; the times in it as they are written.
    """

    jobs: tuple[PlannedJob, ...]
    added: frozenset[str]
    impossible: tuple[Fault, ...]
    directories: frozenset[str]


def varying(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Keys whose values are not the same in all jobs."""
    keys = dict.fromkeys(key for setting in settings for key in setting)
    return [key for key in keys if any(setting.get(key, ...) != settings[0].get(key, ...) for setting in settings)]


def key_of(override: str) -> str:
    """The key of an override, without + and ~."""
    return override.lstrip("+~").partition("=")[0]


def check(
    loader: Loader,
    batch: Sequence[Sequence[str]],
    hydra: Sequence[str],
    progress: Progress = quiet,
    *,
    seeds: int = 1,
    effective: Collection[str] = (),
) -> Checked:
    """Checks the jobs of a batch.

    A setting that the choices of a job do not have has no effect there, if it has one in another job.

    Args:
        batch: the overrides of each setting; of lists that are taken together, those of the setting.
        seeds: how often each setting is repeated.
        effective: keys that have an effect in jobs of other batches.

    Raises:
        ConfigError: with the faults of all jobs, or of the first ones that have some.
    """
    batch = [zipped.written_out(loader, overrides) for overrides in batch]
    composed_jobs, jobs = alike.Jobs(loader), list[PlannedJob]()
    added: set[str] = set()
    directories: set[str] = set()
    faults: dict[Fault, list[int]] = {}
    foreign: dict[tuple[str, Fault], list[int]] = {}
    known = set(effective)
    impossible: dict[tuple[str, str, str], tuple[Fault, list[int]]] = {}
    faulty, seen = 0, len(batch)
    for setting, overrides in enumerate(batch):
        progress(f"checking {len(batch):,} jobs", setting / len(batch))
        fitting = _fitting(composed_jobs, hydra, overrides)
        known |= set(map(key_of, fitting.overrides))
        added |= {key_of(override) for override in fitting.inert}
        for found in fitting.foreign:
            foreign.setdefault(found, []).append(setting)
        try:
            repeated = list(_repeated(loader, composed_jobs, hydra, fitting))
        except ConfigError as error:
            for fault in error.faults:
                faults.setdefault(fault, []).append(setting)
            faulty += 1
            if faulty == _ENOUGH:
                seen = setting + 1
                break
            continue
        for words, job in repeated:
            composed = job.composition
            why = _excluding(job.spec.sweep.exclude, composed.choices, composed.container)
            if not why:
                why = "; ".join(f"{fault.path}={fault.value}: {fault.rule}" for fault in job.impossible)
                for fault in job.impossible:
                    impossible.setdefault((fault.path, fault.value, fault.rule), (fault, []))[1].append(setting)
            again = partial(composed_jobs.composed, (*hydra, *words))
            asked = overrides if words == fitting.overrides else (*words, *fitting.inert)
            jobs.append(PlannedJob(len(jobs), tuple(asked), job.spec, again, why, setting, inert=fitting.inert))
            added |= composed.added
            directories.add(composed.sweep_directory)
    if seen == len(batch):  # else another job may have the setting
        for (key, fault), numbers in foreign.items():
            if key not in known:
                faults.setdefault(fault, []).extend(numbers)
    if faults:
        of_jobs = sorted(faults.items(), key=lambda each: each[1][0])
        raise ConfigError([_in_jobs(fault, numbers, batch, seen, seeds) for fault, numbers in of_jobs])
    told = tuple(
        _in_jobs(fault, list(dict.fromkeys(numbers)), batch, seen, seeds) for fault, numbers in impossible.values()
    )
    return Checked(tuple(_with_duplicates(jobs)), frozenset(added), told, frozenset(directories))


@dataclass(frozen=True)
class _Fitting:
    """The overrides of a setting, divided by whether the config that they compose has such a key.

    Attributes:
        job: what the fitting ones compose; None: they have faults.
        foreign: key and fault of those that do not fit.
        faults: all others.
    """

    overrides: tuple[str, ...]
    inert: tuple[str, ...]
    job: Job | None
    foreign: tuple[tuple[str, Fault], ...] = ()
    faults: tuple[Fault, ...] = ()


def _fitting(jobs: alike.Jobs, hydra: Sequence[str], overrides: Sequence[str]) -> _Fitting:
    """Divides the overrides of a setting; without those that do not fit, others may not fit, either."""
    left, inert, foreign = [*overrides], list[str](), list[tuple[str, Fault]]()
    while True:
        try:
            job = jobs.job([*hydra, *left])
        except ConfigError as error:
            named = {
                override: fault
                for fault in error.faults
                for override in left
                if fault.code in _FOREIGN
                and f"{key_of(override)}.".startswith(f"{fault.path}.")
                and not override.startswith("~")
            }
            if not named:
                return _Fitting(tuple(left), tuple(inert), None, tuple(foreign), error.faults)
            foreign += [(key_of(override), fault) for override, fault in named.items()]
            inert += named
            left = [override for override in left if override not in named]
        else:
            return _Fitting(tuple(left), tuple(inert), job, tuple(foreign))


def _several_directories(base: DictConfig) -> Fault:
    """The fault of a sweep's directory that differs from job to job."""
    above, below = hydra_job.divided_sweep_directory(base)
    rule = "all jobs of a sweep share one folder, but this differs between jobs"
    jobs = f"hydra.sweep.dir={above or 'DIR'} 'hydra.sweep.subdir={below}'"
    return Fault("hydra.sweep.dir", f"{above}/{below}".lstrip("/"), rule, f"name the folders of the jobs: {jobs}")


def _repeated(
    loader: Loader, jobs: alike.Jobs, hydra: Sequence[str], fitting: _Fitting
) -> Iterator[tuple[Sequence[str], Job]]:
    """A setting, or its repetitions with `seed`, `seed` + 1, … as `seeds` asks.

    Raises:
        ConfigError: with all faults.
    """
    first = fitting.job
    if first is None:
        raise ConfigError(fitting.faults)
    spec, composed = first.spec, first.composition
    if wrong := _exclusion_faults(spec.sweep.exclude, loader.folders, composed.choices, composed.container):
        raise ConfigError(wrong)
    if spec.seeds == 1:
        yield fitting.overrides, first
        return
    others = [override for override in fitting.overrides if key_of(override) != "seed"]
    for number in range(spec.seeds):
        words = [*others, f"seed={spec.seed + number}"]
        yield words, jobs.job([*hydra, *words])


def _with_duplicates(jobs: Sequence[PlannedJob]) -> Iterator[PlannedJob]:
    """The jobs; those that ask for the same run as an earlier one are marked."""
    first: dict[str, int] = {}
    for job in jobs:
        number = first.setdefault(job.identity, job.number)
        yield job if job.skip or number == job.number else replace(job, same_as=number)


def _in_jobs(fault: Fault, numbers: Sequence[int], batch: Sequence[Sequence[str]], seen: int, seeds: int) -> Fault:
    """A fault that names the jobs that have it, unless all have it.

    Args:
        numbers: of the settings that have it.
        seen: how many settings were checked, from the first.
        seeds: how often each is repeated.
    """
    if len(numbers) == len(batch):
        return fault
    one, several = ("job", "jobs") if seeds == 1 else ("setting", "settings")
    first = f"{numbers[0]} ({' '.join(batch[numbers[0]])})"
    of = f"{len(batch)} {several}" if seen == len(batch) else f"the first {seen} {several} (of {len(batch)})"
    where = f"{one} {first}" if len(numbers) == 1 else f"{len(numbers)} of {of}, the first is {first}"
    return replace(fault, source=f"{fault.source}, in {where}" if fault.source else where)


def _excluding(exclusions: Sequence[Exclusion], made: Mapping[str, str | None], container: Mapping[str, Any]) -> str:
    """Why a job is left out, or "".

    Args:
        exclusions: a job that has all settings of one of them is left out.
        made: the choice of each group.
        container: the config of the job as plain values.
    """
    for exclusion in exclusions:
        if all(_has(key, value, made, container) for key, value in exclusion.items()):
            words = " ".join(f"{key}={format_value(value).strip(chr(39))}" for key, value in exclusion.items())
            return f"excluded by sweep.exclude: {words}"
    return ""


def _exclusion_faults(
    exclusions: Sequence[Exclusion], folders: Folders, made: Mapping[str, str | None], container: Mapping[str, Any]
) -> list[Fault]:
    """Keys that are neither choices nor settings of a job, and choices that do not exist: they would exclude nothing.

    Args:
        folders: with the choices of each group.
        made: the choice of each group, in a job.
        container: the config of the job as plain values.
    """
    if not exclusions:
        return []
    groups, found = folders.choices, []
    for number, exclusion in enumerate(exclusions):
        for key, value in exclusion.items():
            path = f"sweep.exclude.{number}.{key}"
            known = groups.get(key.partition("@")[0])
            if known is None and _at(container, key) is _ABSENT:
                near = did_you_mean(key, [*made, *container])
                found.append(Fault(path, format_value(value), "the config has no such group and no such key", near))
            elif known is not None and value is not None and str(value) not in known:
                rule = f"group {key.partition('@')[0]} has {listing(known)}"
                found.append(Fault(path, format_value(value), rule, did_you_mean(str(value), known)))
    return found


def _has(key: str, value: Any, made: Mapping[str, str | None], container: Mapping[str, Any]) -> bool:
    if key in made:
        return made[key] == (None if value is None else str(value))
    found = _at(container, key)
    if isinstance(found, bool) or isinstance(value, bool):
        return found is value
    return bool(found == value)


def _at(container: Mapping[str, Any], key: str) -> Any:
    value: Any = container
    for part in key.split("."):
        value = value.get(part, _ABSENT) if isinstance(value, Mapping) else _ABSENT
    return value


class Enrolment:
    """Finds the places of planned jobs in the ledger.

    Jobs are found by what they ask for, not by their number: the n-th job that asks for a run is the n-th of the ledger
    that does. So a sweep can be extended, and a search that is started again meets the jobs that it has tried.
    """

    def __init__(self, ledger: Ledger, *, at_once: int, engine: Engine | None = None) -> None:
        """Prepares it.

        Args:
            at_once: number of jobs that will share this machine's cores.
            engine: the launcher of others that runs them instead; None: embexp's own.
        """
        self._ledger = ledger
        self._at_once, self._engine = at_once, engine
        self._jobs = {job.number: job for job in ledger.jobs()}
        self._forgotten = ledger.forgotten()
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
                used = [*self._jobs, *(each.number for each in self._forgotten)]
                added = self._entry(job, identity, max(used, default=-1) + 1)
                self._jobs[added.number] = added
                known.append(added.number)
                new.append(added)
            elif _reconsidered(self._jobs[known[place]], job):
                self._jobs[known[place]] = self._entry(job, identity, known[place])
                new.append(self._jobs[known[place]])
            elif named_functions(self._jobs[known[place]].checked_spec) != named_functions(job.spec):
                raise CommandLineError(
                    f"{self._ledger.path}: job {known[place]} names other code than the requested sweep\n    "
                    f"{OTHER_DIRECTORY}"
                )
            found.append(self._jobs[known[place]])
        return found, new

    def meet(self, numbers: Sequence[int]) -> list[int]:
        """Counts jobs of the ledger as asked for, without planning them again; returns those that it has."""
        found = [number for number in numbers if number in self._jobs]
        for number in found:
            self._asked[self._jobs[number].identity] += 1
        return found

    def number_of(self, identity: str) -> int | None:
        """The first job that asks for a run; None: no job does, but for those that are skipped."""
        known = (number for number in self._numbers.get(identity, ()) if self._jobs[number].state is not Status.SKIPPED)
        return next(known, None)

    def known(self, numbers: Iterable[int]) -> list[LedgerJob]:
        """The jobs of the ledger with some numbers, without those that it lacks."""
        return [self._jobs[number] for number in numbers if number in self._jobs]

    def unasked(self) -> list[LedgerJob]:
        """The jobs of the ledger that were not planned, without those that were added to the command's."""
        added = (self._ledger.noted(ADDED) or {}).get("numbers", ())
        places = [n for identity, known in self._numbers.items() for n in known[self._asked[identity] :]]
        numbers = [number for number in places if number not in added]
        return [self._jobs[number] for number in sorted(numbers)]

    def _entry(self, job: PlannedJob, identity: str, number: int) -> LedgerJob:
        own = {"sweep": Sweep(objective=job.spec.sweep.objective), "seeds": 1}  # the rest concerns the sweep alone
        strategy = engines.with_share(job.spec.strategy, self._engine, self._at_once)
        spec = job.spec.model_copy(update={**own, "strategy": strategy})
        entry = LedgerJob(number, job.overrides, job.settings, spec.model_dump_json(), identity)
        if job.skip:
            return replace(entry, state=Status.SKIPPED, reason=job.skip)
        for other in self._numbers[identity]:
            first = self._jobs[other]
            if first.state is not Status.SKIPPED and first.same_as is None and other != number:
                entry = replace(entry, same_as=other, directory=first.directory)
                return replace(entry, state=first.state, reason=first.reason, run_id=first.run_id)
        taken = {each.directory for each in self._jobs.values()} | {each.directory for each in self._forgotten}
        composed = None if job.compose is None else job.compose()
        content = {} if composed is None else composed.write()
        if composed is None or hydra_job.is_numbered(content):
            wanted = name = str(number)
        else:
            wanted = name = str(hydra_job.job_directory(composed.config, number))
        for count in itertools.count(2):
            if name not in taken:
                break
            name = f"{wanted}_{count}"
        texts = hydra_job.texts_of_job(content, number, self._ledger.directory, name) if content else {}
        return replace(entry, directory=name, hydra=texts)


def _reconsidered(known: LedgerJob, job: PlannedJob) -> bool:
    """Whether a job that was skipped is to run now, or the other way round."""
    if known.state is Status.SKIPPED:
        return not job.skip
    return bool(job.skip) and not known.state.has_results and known.same_as is None


class LedgerTimes(TrialJobs):
    """The times of the jobs of a search, as its ledger has them."""

    def __init__(self, ledger: Ledger, seeds: int) -> None:
        """Prepares it.

        Args:
            seeds: jobs of a trial.
        """
        self._ledger, self._seeds = ledger, seeds

    def seconds(self) -> tuple[float, dict[int, float]]:
        """See `TrialJobs`."""
        parts, ends = [], dict[int, float]()
        for job, started, ended in self._ledger.times():
            parts.append((started, ended))
            ends[job // self._seeds] = max(ended, ends.get(job // self._seeds, ended))
        return _covered(parts, math.inf), {trial: _covered(parts, end) for trial, end in ends.items()}


class LedgerJobs(LedgerTimes):
    """The jobs of a search, as its ledger has them."""

    def __init__(self, loader: Loader, plan: Plan, ledger: Ledger, enrolment: Enrolment, *, narrow: bool) -> None:
        """Prepares it.

        Args:
            narrow: whether the user agrees to a narrower space.
        """
        super().__init__(ledger, 1 if plan.search is None else plan.search.seeds)
        self._enrolment, self._narrow = enrolment, narrow
        hydra = [str(each) for each in plan.base.hydra.overrides.hydra]
        self._check = partial(check, loader, hydra=hydra, effective=plan.effective)
        self._identities: dict[tuple[str, ...], list[str]] = {}

    def rejection(self, overrides: Sequence[str], others: Sequence[Sequence[str]]) -> str:
        """See `TrialJobs`."""
        jobs = self._check([overrides]).jobs
        if skip := next((job.skip for job in jobs if job.skip), ""):
            return skip
        self._identities[tuple(overrides)] = own = [job.identity for job in jobs]
        asked = {identity for other in others for identity in self._identity(other)}
        numbers = [self._enrolment.number_of(identity) for identity in own]
        if all(identity in asked or number is not None for identity, number in zip(own, numbers, strict=True)):
            return f"duplicate of job {numbers[0]}" if numbers[0] is not None else "duplicate of another job"
        return ""

    def _identity(self, overrides: Sequence[str]) -> list[str]:
        key = tuple(overrides)
        if key not in self._identities:
            self._identities[key] = [job.identity for job in self._check([overrides]).jobs]
        return self._identities[key]

    def has(self, trial: int) -> bool:
        """See `TrialJobs`."""
        return bool(self._jobs_of(trial))

    def leave_out(self, trials: Sequence[int]) -> None:
        """See `TrialJobs`."""
        for job in (job for trial in trials for job in self._jobs_of(trial)):
            if not job.state.is_settled and job.state is not Status.FAILED:
                self._ledger.leave(job.number, Status.SKIPPED, "the search goes on in a narrower space")

    def value(self, trial: int, key: str) -> str | None:
        """See `TrialJobs`."""
        job = next(iter(self._jobs_of(trial)), None)
        if job is None:
            return None
        bare = key.lstrip("+")
        files = {name.rpartition("/")[2]: text for name, text in job.hydra.items()}
        choices = _at(yaml.safe_load(files.get("hydra.yaml", "{}")), "hydra.runtime.choices")
        if isinstance(choices, Mapping) and bare in choices:
            return format_value(choices[bare])
        value = _at(json.loads(job.spec), bare)
        return None if value is _ABSENT or isinstance(value, dict | list) else as_override(value)

    def same(self, overrides: Mapping[int, Sequence[str]]) -> set[int]:
        """See `TrialJobs`."""
        found: dict[int, list[str]] = defaultdict(list)
        trials = list(overrides)
        for job in self._check([overrides[trial] for trial in trials]).jobs if trials else ():
            found[trials[job.setting]].append(job.identity)
        return {trial for trial, own in found.items() if own == [job.identity for job in self._jobs_of(trial)]}

    def _jobs_of(self, trial: int) -> list[LedgerJob]:
        return self._enrolment.known(range(trial * self._seeds, (trial + 1) * self._seeds))

    def agrees(self, question: str) -> bool:
        """See `TrialJobs`."""
        return self._narrow or terminal.confirmed(question)


def _covered(parts: Iterable[tuple[float, float]], end: float) -> float:
    """How much of the time until `end` some intervals cover; they are in the order of their beginnings."""
    found, until = 0.0, -math.inf
    for started, ended in parts:
        found += max(0.0, min(ended, end) - max(started, until))
        until = max(until, min(ended, end))
    return found
