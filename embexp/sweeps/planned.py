"""The jobs of a sweep, all checked before the first starts."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig

from embexp.config import hydra_checks, hydra_globals
from embexp.config.compose import compose
from embexp.config.loader import Loader
from embexp.config.overrides import parse
from embexp.errors import CommandLineError, ConfigError
from embexp.specs.sweeping import Launching
from embexp.sweeps import checking, launching
from embexp.sweeps.checking import PlannedJob

_LAUNCHER = "hydra_plugins.embexp_launcher.EmbexpLauncher"


@dataclass(frozen=True)
class Plan:
    """A whole sweep.

    Attributes:
        base: the config without the swept overrides; has Hydra's own settings.
        overrides: of the command line, without those for Hydra, as its sweeper takes them.
        jobs: all jobs; None if the sweeper chooses them while the sweep runs.
        launching: how the jobs are run.
    """

    base: DictConfig
    overrides: tuple[str, ...]
    jobs: tuple[PlannedJob, ...] | None
    launching: Launching


def plan(loader: Loader, overrides: Sequence[str]) -> Plan:
    """Finds and checks every job.

    Raises:
        ConfigError: any config is invalid, or all jobs are skipped; with the faults of all jobs.
        CommandLineError: the launcher is not embexp's.
    """
    parsed = _parsed(loader, overrides)
    base = compose(loader, [str(each.input_line) for each in parsed if not each.is_sweep_override()]).config
    if faults := [*hydra_checks.without_effect(parsed, multirun=True), *hydra_checks.sweep_faults(base)]:
        raise ConfigError(faults)
    launcher, sweeper = base.hydra.launcher.get("_target_"), base.hydra.runtime.choices.get("hydra/sweeper")
    if launcher != _LAUNCHER:
        raise CommandLineError(
            f"the launcher {launcher} would run jobs in one process or elsewhere\n"
            "    embexp runs each job in a process of its own: leave hydra/launcher out"
        )
    launched = launching.read(base)
    tasks = [each for each in parsed if not each.is_hydra_override()]
    for each in tasks:
        if each.key_or_group == "seeds" and each.is_sweep_override():
            raise CommandLineError(f"{each.input_line}: the settings of a sweep have one number of seeds: seeds=5")
    if sweeper != "basic":
        return Plan(base, tuple(str(each.input_line) for each in tasks), None, launched)
    with hydra_globals.borrowed(base):
        params = _parsed(loader, [f"{key}={value}" for key, value in (base.hydra.sweeper.params or {}).items()])
    batch = combinations([*params, *tasks])
    found = checking.check(loader, batch, [str(each.input_line) for each in parsed if each.is_hydra_override()])
    if all(job.skip for job in found.jobs):
        if found.impossible:
            raise ConfigError(found.impossible)
        raise CommandLineError("sweep.exclude leaves out every job of this sweep")
    return Plan(base, tuple(_forced(str(each.input_line), found.added) for each in tasks), found.jobs, launched)


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
    jobs = checking.check(loader, batch, hydra).jobs
    return [replace(job, setting=first + job.setting) for job in jobs]


def _parsed(loader: Loader, texts: Iterable[str]) -> list[Override]:
    parsed, faults = parse(loader, texts, sweeping=True)
    if faults:
        raise ConfigError(faults)
    return parsed


def _forced(override: str, added: frozenset[str]) -> str:
    """An override that Hydra accepts: a valid key that no file mentions has to be added (`++`)."""
    return f"++{override}" if override.partition("=")[0] in added else override
