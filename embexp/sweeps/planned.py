"""The jobs of a sweep, all checked before the first starts."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig

from embexp.config import composition, hydra_globals
from embexp.config.compose import compose
from embexp.config.loader import Loader
from embexp.config.overrides import parse
from embexp.errors import CommandLineError, ConfigError, Fault
from embexp.specs.run import RunSpec

_LAUNCHER = "hydra_plugins.embexp_launcher.EmbexpLauncher"


@dataclass(frozen=True)
class PlannedJob:
    """A checked job.

    Attributes:
        number: from 0.
        overrides: as Hydra gives them, such as `data.fold=3`.
        spec: what to run.
        config: as Hydra composed it.
        skip: why it is skipped, or "".
    """

    number: int
    overrides: tuple[str, ...]
    spec: RunSpec
    config: DictConfig
    skip: str = ""

    @property
    def settings(self) -> dict[str, str]:
        """Value by key."""
        return settings(self.overrides)


@dataclass(frozen=True)
class Plan:
    """A whole sweep.

    Attributes:
        base: the config without the swept overrides; has Hydra's own settings.
        overrides: of the command line, without those for Hydra, as its sweeper takes them.
        jobs: all jobs; None if the sweeper chooses them while the sweep runs.
    """

    base: DictConfig
    overrides: tuple[str, ...]
    jobs: tuple[PlannedJob, ...] | None


def settings(overrides: Iterable[str]) -> dict[str, str]:
    """Value by key of overrides, without + and ~."""
    pairs = (each.lstrip("+~").partition("=") for each in overrides)
    return {key: value for key, _, value in pairs}


def plan(loader: Loader, overrides: Sequence[str]) -> Plan:
    """Finds and checks every job.

    Raises:
        ConfigError: any config is invalid, or all jobs are skipped; with the faults of all jobs.
        CommandLineError: the launcher is not embexp's.
    """
    parsed = _parsed(loader, overrides)
    base = compose(loader, [str(each.input_line) for each in parsed if not each.is_sweep_override()]).config
    launcher, sweeper = base.hydra.launcher.get("_target_"), base.hydra.runtime.choices.get("hydra/sweeper")
    if launcher != _LAUNCHER:
        raise CommandLineError(
            f"the launcher {launcher} would run jobs in one process or elsewhere\n"
            "    embexp runs each job in a process of its own: leave hydra/launcher out"
        )
    tasks = [each for each in parsed if not each.is_hydra_override()]
    if sweeper != "basic":
        return Plan(base, tuple(str(each.input_line) for each in tasks), None)
    with hydra_globals.borrowed(base):
        params = _parsed(loader, [f"{key}={value}" for key, value in (base.hydra.sweeper.params or {}).items()])
    batch = combinations([*params, *tasks])
    hydra = [str(each.input_line) for each in parsed if each.is_hydra_override()]
    jobs, added, impossible = _checked(loader, batch, hydra)
    if all(job.skip for job in jobs):
        raise ConfigError(impossible)
    return Plan(base, tuple(_forced(str(each.input_line), added) for each in tasks), tuple(_without_duplicates(jobs)))


def combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """The overrides of each job of Hydra's basic sweeper, in its order: the last key's values vary fastest.

    Raises:
        CommandLineError: a swept key has no list of values.
    """
    choices: dict[str, list[str]] = {}
    for override in overrides:
        key = override.get_key_element()
        if not override.is_sweep_override():
            choices[key] = [f"{key}={override.get_value_element_as_str()}"]
            continue
        try:
            texts = list(override.sweep_string_iterator()) if override.is_discrete_sweep() else []
        except HydraException as error:
            raise CommandLineError(f"{override.input_line}: {error}") from error
        if not texts:
            raise CommandLineError(
                f"{override.input_line}: this sweep names no values to try\n"
                "    give the values: key=1,2,3 or 'key=range(0,5)'"
            )
        choices[key] = [f"{key}={text}" for text in texts]
    return [list(each) for each in itertools.product(*choices.values())]


def checked(loader: Loader, batch: Sequence[Sequence[str]], hydra: Sequence[str], *, first: int) -> list[PlannedJob]:
    """Checks the jobs of one batch of a sweeper.

    Raises:
        ConfigError: with the faults of all its jobs.
    """
    jobs, _, _ = _checked(loader, batch, hydra)
    return [replace(job, number=first + job.number) for job in jobs]


def _parsed(loader: Loader, texts: Iterable[str]) -> list[Override]:
    parsed, faults = parse(loader, texts, sweeping=True)
    if faults:
        raise ConfigError(faults)
    return parsed


def _checked(
    loader: Loader, batch: Sequence[Sequence[str]], hydra: Sequence[str]
) -> tuple[list[PlannedJob], frozenset[str], list[Fault]]:
    """The jobs, keys that were added to the config, and the faults of skipped jobs."""
    jobs: list[PlannedJob] = []
    added: set[str] = set()
    faults: dict[Fault, list[int]] = {}
    impossible: dict[Fault, list[int]] = {}
    for number, overrides in enumerate(batch):
        try:
            job = composition.candidate(loader, [*hydra, *overrides])
        except ConfigError as error:
            for fault in error.faults:
                faults.setdefault(fault, []).append(number)
            continue
        for fault in job.impossible:
            impossible.setdefault(fault, []).append(number)
        why = "; ".join(f"{fault.path}={fault.value}: {fault.rule}" for fault in job.impossible)
        jobs.append(PlannedJob(number, tuple(overrides), job.spec, job.composition.config, why))
        added |= job.composition.added
    if faults:
        raise ConfigError([_in_jobs(fault, numbers, batch) for fault, numbers in faults.items()])
    return jobs, frozenset(added), [_in_jobs(fault, numbers, batch) for fault, numbers in impossible.items()]


def _in_jobs(fault: Fault, numbers: Sequence[int], batch: Sequence[Sequence[str]]) -> Fault:
    """A fault that names the jobs that have it, unless all have it."""
    if len(numbers) == len(batch):
        return fault
    if len(numbers) == 1:
        where = f"job {numbers[0]} ({' '.join(batch[numbers[0]])})"
    else:
        where = f"{len(numbers)} of {len(batch)} jobs, the first is {numbers[0]} ({' '.join(batch[numbers[0]])})"
    return replace(fault, source=f"{fault.source}, in {where}" if fault.source else where)


def _forced(override: str, added: frozenset[str]) -> str:
    """An override that Hydra accepts: a valid key that no file mentions has to be added (`++`)."""
    return f"++{override}" if override.partition("=")[0] in added else override


def _without_duplicates(jobs: Sequence[PlannedJob]) -> list[PlannedJob]:
    """Marks jobs with the same spec as an earlier job as skipped."""
    first: dict[str, int] = {}
    marked = []
    for job in jobs:
        key = json.dumps(job.spec.model_dump(mode="json", exclude={"name", "output"}), sort_keys=True)
        number = first.setdefault(key, job.number)
        marked.append(job if job.skip or number == job.number else replace(job, skip=f"the same as job {number}"))
    return marked
