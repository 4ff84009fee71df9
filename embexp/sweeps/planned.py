"""The jobs of a sweep, all checked before the first starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf, read_write
from omegaconf.errors import OmegaConfBaseException

from embexp.config import hydra_checks, hydra_globals
from embexp.config.compose import compose
from embexp.config.loader import Loader
from embexp.config.overrides import parse, repeated
from embexp.errors import CommandLineError, ConfigError
from embexp.specs import addresses
from embexp.specs.run import RunSpec
from embexp.specs.sweeping import Launching, Sweep
from embexp.sweeps import checking, combinations, engines, launching, packages, searching, shares
from embexp.sweeps.checking import Checked, PlannedJob
from embexp.sweeps.engines import Engine
from embexp.sweeps.search import Search
from embexp.system.parallel import Progress, quiet

_LAUNCHER = "hydra_plugins.embexp_launcher.EmbexpLauncher"


@dataclass(frozen=True)
class Plan:
    """A whole sweep.

    Attributes:
        base: the config without the swept overrides; has Hydra's own settings.
        overrides: of the command line, without those for Hydra, as its sweeper takes them.
        jobs: all jobs; None if the sweeper chooses them while the sweep runs.
        launching: how the jobs are run.
        engine: the launcher of others that runs them; None: embexp's own.
        search: how the sweeper `optuna` chooses them; None for another sweeper.
    """

    base: DictConfig
    overrides: tuple[str, ...]
    jobs: tuple[PlannedJob, ...] | None
    launching: Launching
    engine: Engine | None = None
    search: Search | None = None


def plan(loader: Loader, overrides: Sequence[str], progress: Progress = quiet) -> Plan:
    """Finds and checks every job.

    Args:
        loader: composes configs.
        overrides: as on the command line.
        progress: called with the fraction of the jobs that are checked.

    Raises:
        ConfigError: any config is invalid, or all jobs are skipped; with the faults of all jobs.
        CommandLineError: a package is missing, or an override can't be swept.
    """
    parsed = _parsed(loader, overrides)
    tasks = [each for each in parsed if not each.is_hydra_override()]
    hydra = [str(each.input_line) for each in parsed if each.is_hydra_override()]
    packages.require_package(parsed)
    base = compose(loader, [str(each.input_line) for each in parsed if not each.is_sweep_override()]).config
    faults = [*repeated(parsed), *hydra_checks.without_effect(parsed, multirun=True), *hydra_checks.sweep_faults(base)]
    if faults:
        raise ConfigError(faults)
    engine = None
    if base.hydra.launcher.get("_target_") != _LAUNCHER:
        engine = engines.engine(base, loader.permission)
        with read_write(base.hydra):
            base.hydra.launcher = {"_target_": _LAUNCHER}  # it passes jobs on, whatever the sweeper
    launched = launching.read(base)
    sweeper = base.hydra.runtime.choices.get("hydra/sweeper")
    for each in tasks:
        if each.key_or_group == "seeds" and each.is_sweep_override():
            raise CommandLineError(f"{each.input_line}: the settings of a sweep have one number of seeds: seeds=5")
    most = _number(base, "sweep.max_jobs", Sweep.model_fields["max_jobs"].default)
    search = None
    if base.hydra.sweeper.get("_target_") == searching.SWEEPER:
        search = _search(loader, base, tasks, hydra, launched)
        combinations.limit({"trials": search.trials, "seeds": search.seeds}, most)
    if sweeper != "basic":
        return Plan(base, tuple(str(each.input_line) for each in tasks), None, launched, engine, search)
    with hydra_globals.borrowed(base):
        params = _parsed(loader, [f"{key}={value}" for key, value in (base.hydra.sweeper.params or {}).items()])
    seeds = {"seeds": _number(base, "seeds", 1)}
    combinations.limit(combinations.factors([*params, *tasks]) | seeds, most)
    checked = _possible(loader, combinations.combinations([*params, *tasks]), hydra, progress)
    forced = tuple(_forced(str(each.input_line), checked.added) for each in tasks)
    return Plan(base, forced, checked.jobs, launched, engine)


def _possible(
    loader: Loader, batch: Sequence[Sequence[str]], hydra: Sequence[str], progress: Progress = quiet
) -> Checked:
    """The checked jobs of a batch.

    Raises:
        ConfigError: any config is invalid, or no job can run.
        CommandLineError: every job is excluded.
    """
    found = checking.check(loader, batch, hydra, progress)
    if all(job.skip for job in found.jobs):
        if found.impossible:
            raise ConfigError(found.impossible)
        raise CommandLineError("sweep.exclude leaves out every job of this sweep")
    return found


def _search(
    loader: Loader, base: DictConfig, tasks: Sequence[Override], hydra: Sequence[str], launched: Launching
) -> Search:
    """Plans the search of the sweeper `optuna`."""
    settings = searching.settings(base)
    if not loader.permission.own and (elsewhere := list(addresses.storage_faults(settings.storage))):
        raise ConfigError(elsewhere)

    def check(batch: Sequence[Sequence[str]]) -> list[RunSpec]:
        return [job.spec for job in _possible(loader, batch, hydra).jobs if not job.skip]

    params = _parsed(loader, [f"{key}={value}" for key, value in (settings.params or {}).items()])
    return searching.plan(
        settings,
        [*params, *tasks],
        check,
        at_once=lambda specs: shares.jobs_at_once(launched, specs, shares.visible_gpus()),
    )


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


def _number(base: DictConfig, path: str, default: int) -> int:
    """A whole number of a config; the default for anything else, which the check of the jobs reports."""
    try:
        found = OmegaConf.select(base, path)
    except OmegaConfBaseException:
        return default
    return found if type(found) is int and found > 0 else default


def _forced(override: str, added: frozenset[str]) -> str:
    """An override that Hydra accepts: a valid key that no file mentions has to be added (`++`)."""
    return f"++{override}" if override.partition("=")[0] in added else override
