"""Checks the jobs of a sweep: composes each, repeats it over seeds, and finds those that are skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from omegaconf import DictConfig

from embexp.config.folders import Folders
from embexp.config.jobs import Candidate, Candidates
from embexp.config.loader import Loader
from embexp.errors import ConfigError, Fault
from embexp.specs.run import RunSpec
from embexp.sweeps import exclusions
from embexp.system import digests
from embexp.system.parallel import Progress, quiet

_ENOUGH = 20
"""Settings with faults after which no more are looked for."""
_NO_PART = {"name", "output", "sweep", "seeds"}
"""What two jobs with the same results may differ in."""


@dataclass(frozen=True)
class PlannedJob:
    """A checked job.

    Attributes:
        number: from 0.
        overrides: as Hydra gives them, such as `data.fold=3`.
        spec: what to run.
        config: composes its config as Hydra does; None: it is not composed.
        skip: why it is skipped, or "".
        setting: number of the combination of overrides that it is, or repeats with another seed.
        same_as: number of the first job that asks for the same run, unless it is that one.
    """

    number: int
    overrides: tuple[str, ...]
    spec: RunSpec
    config: Callable[[], DictConfig] | None
    skip: str = ""
    setting: int = 0
    same_as: int | None = None

    @property
    def settings(self) -> dict[str, str]:
        """Value by key of the overrides."""
        return settings(self.overrides)

    @property
    def identity(self) -> str:
        """Equal for jobs that ask for the same run."""
        return digests.of_json(self.spec.model_dump(mode="json", exclude=_NO_PART))


@dataclass(frozen=True)
class Checked:
    """The jobs of a batch.

    Attributes:
        jobs: all of them, by number.
        added: keys that their overrides added to the config.
        impossible: the faults of jobs that are skipped because of them.
    """

    jobs: tuple[PlannedJob, ...]
    added: frozenset[str]
    impossible: tuple[Fault, ...]


def settings(overrides: Iterable[str]) -> dict[str, str]:
    """Value by key of overrides, without + and ~."""
    return {key_of(each): each.partition("=")[2] for each in overrides}


def key_of(override: str) -> str:
    """The key of an override, without + and ~."""
    return override.lstrip("+~").partition("=")[0]


def check(loader: Loader, batch: Sequence[Sequence[str]], hydra: Sequence[str], progress: Progress = quiet) -> Checked:
    """Checks the jobs of a batch.

    Args:
        loader: composes configs.
        batch: the overrides of each setting.
        hydra: overrides for Hydra itself.
        progress: called with the fraction that is done.

    Raises:
        ConfigError: with the faults of all jobs, or of the first ones that have some.
    """
    candidates = Candidates(loader, hydra, batch)
    jobs: list[PlannedJob] = []
    added: set[str] = set()
    faults: dict[Fault, list[int]] = {}
    impossible: dict[Fault, list[int]] = {}
    faulty, seen = 0, len(batch)
    for setting, overrides in enumerate(batch):
        progress(f"checking {len(batch):,} jobs", setting / len(batch))
        try:
            repeated = list(_repeated(candidates, overrides, loader.folders))
        except ConfigError as error:
            for fault in error.faults:
                faults.setdefault(fault, []).append(setting)
            faulty += 1
            if faulty == _ENOUGH:
                seen = setting + 1
                break
            continue
        for words, job in repeated:
            spec = job.spec
            why = exclusions.excluding(spec.sweep.exclude, job.choices, job.container)
            if not why:
                why = "; ".join(f"{fault.path}={fault.value}: {fault.rule}" for fault in job.impossible)
                for fault in job.impossible:
                    impossible.setdefault(fault, []).append(setting)
            jobs.append(PlannedJob(len(jobs), tuple(words), spec, job.config, why, setting))
            added |= job.added
    if faults:
        raise ConfigError([_in_jobs(fault, numbers, batch[:seen]) for fault, numbers in faults.items()])
    if all(job.skip for job in jobs):  # an error, which is to name the sources of the settings
        first = {numbers[0]: candidates.by_hydra(batch[numbers[0]]) for numbers in impossible.values()}
        sources = {(fault.path, fault.value): fault for job in first.values() for fault in job.impossible}
        impossible = {sources.get((fault.path, fault.value), fault): numbers for fault, numbers in impossible.items()}
    told = tuple(_in_jobs(fault, list(dict.fromkeys(numbers)), batch) for fault, numbers in impossible.items())
    return Checked(tuple(_with_duplicates(jobs)), frozenset(added), told)


def _repeated(
    candidates: Candidates, overrides: Sequence[str], folders: Folders
) -> Iterator[tuple[Sequence[str], Candidate]]:
    """A setting, or its repetitions with `seed`, `seed` + 1, … as `seeds` asks.

    Raises:
        ConfigError: with all faults.
    """
    first = candidates.candidate(overrides)
    if wrong := exclusions.faults(first.spec.sweep.exclude, folders, first.choices, first.container):
        raise ConfigError(wrong)
    if first.spec.seeds == 1:
        yield overrides, first
        return
    others = [each for each in overrides if key_of(each) != "seed"]
    for number in range(first.spec.seeds):
        words = [*others, f"seed={first.spec.seed + number}"]
        yield words, candidates.candidate(words)


def _with_duplicates(jobs: Sequence[PlannedJob]) -> Iterator[PlannedJob]:
    """The jobs; those that ask for the same run as an earlier one are marked."""
    first: dict[str, int] = {}
    for job in jobs:
        number = first.setdefault(job.identity, job.number)
        yield job if job.skip or number == job.number else replace(job, same_as=number)


def _in_jobs(fault: Fault, numbers: Sequence[int], batch: Sequence[Sequence[str]]) -> Fault:
    """A fault that names the jobs that have it, unless all have it."""
    if len(numbers) == len(batch):
        return fault
    if len(numbers) == 1:
        where = f"job {numbers[0]} ({' '.join(batch[numbers[0]])})"
    else:
        where = f"{len(numbers)} of {len(batch)} jobs, the first is {numbers[0]} ({' '.join(batch[numbers[0]])})"
    return replace(fault, source=f"{fault.source}, in {where}" if fault.source else where)
