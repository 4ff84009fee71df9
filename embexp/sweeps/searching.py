"""Plans a search: its settings, its space and its objectives, all checked before the first trial."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from embexp.errors import ConfigError, Fault
from embexp.specs.run import RunSpec
from embexp.sweeps import search_settings, search_space
from embexp.sweeps.search import Search
from embexp.sweeps.search_settings import NODE, PrunerKind
from embexp.training.metric_names import Objective, objectives

SWEEPER = "hydra_plugins.embexp_optuna_sweeper.OptunaSweeper"

Check = Callable[[Sequence[Sequence[str]]], Sequence[RunSpec]]
"""Composes and checks jobs with some overrides; returns the specs of those that can run."""


def settings(config: DictConfig) -> search_settings.SearchSettings:
    """The settings of a search.

    Args:
        config: of the sweep, without what it varies.

    Raises:
        CommandLineError: Optuna is not installed.
        ConfigError: with all faults.
    """
    search_settings.require_optuna()
    try:
        node: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError([Fault(NODE, "a mapping", f"it can't be resolved: {str(error).splitlines()[0]}")]) from None
    return search_settings.read(node)


def plan(
    chosen: search_settings.SearchSettings,
    overrides: Sequence[Override],
    check: Check,
    *,
    at_once: Callable[[Sequence[RunSpec]], int],
) -> Search:
    """Plans a search.

    Args:
        chosen: the settings.
        overrides: of `hydra.sweeper.params` and of the command line.
        check: composes jobs; it gets a few that have every choice and both ends of every interval.
        at_once: returns the number of jobs that the launcher runs at once.

    Raises:
        ConfigError: with all faults of the search, or of a job.
    """
    space = search_space.space(overrides)
    specs = check(space.probes())
    sought = dict.fromkeys(_objectives(spec) for spec in specs)
    if len(sought) > 1:
        words = " or ".join(", ".join(each.metric for each in one) for one in sought)
        rule = f"the trials have different metrics ({words}), which can't be compared"
        raise ConfigError([Fault("sweep.objective", "null", rule, "name a metric that all have")])
    [aims] = sought
    study = any(spec.study.kind != "none" for spec in specs)
    faults = search_settings.faults(chosen, space, aims, study=study)
    if chosen.pruner is not PrunerKind.NONE and any(spec.seeds > 1 for spec in specs):
        rule = "a trial of several seeds is several jobs, and each would be pruned alone"
        faults.append(Fault(f"{NODE}.pruner", chosen.pruner.value, rule, f"set {NODE}.pruner=none, or seeds=1"))
    if faults:
        raise ConfigError(faults)
    return Search(space, aims, chosen, chosen.n_jobs or at_once(specs), max(spec.seeds for spec in specs))


def _objectives(spec: RunSpec) -> tuple[Objective, ...]:
    found = objectives(spec.task, spec.sweep.objective, spec.recommendation.cutoffs)
    split = getattr(spec.data, "split", None)
    if split is not None and not split.validates:
        rule = "a search chooses settings by the validation split, and that is empty"
        raise ConfigError([Fault("data.split.validation", "0", rule, "set data.split.validation above 0")])
    return found
