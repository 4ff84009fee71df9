"""A search: what its trials choose, by which metric, and whether its settings go together. No Optuna."""

from __future__ import annotations

import importlib.util
import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from hydra.core.override_parser.types import Override

from embexp.config.messages import format_value
from embexp.errors import ConfigError, Fault
from embexp.specs.metrics import Objective, objectives
from embexp.specs.run import RunSpec
from embexp.sweeps import search_space
from embexp.sweeps.jobs import Outcome
from embexp.sweeps.search_space import Numbers, Space
from embexp.sweeps.settings import SWEEPER, PrunerKind, SamplerKind, SearchSettings

Check = Callable[[Sequence[Sequence[str]]], Sequence[RunSpec]]
"""Composes and checks jobs with some overrides; returns the specs of those that can run."""


@dataclass(frozen=True)
class Search:
    """What is searched, and how."""

    space: Space
    objectives: tuple[Objective, ...]
    settings: SearchSettings
    at_once: int
    seeds: int = 1

    @property
    def trials(self) -> int:
        """Number of trials."""
        return self.settings.trials(self.space)

    def lines(self) -> list[str]:
        """The search in words: how many trials, by what, and what each of them chooses."""
        aims = ", ".join(f"{each.direction} validation {each.metric}" for each in self.objectives)
        pruner = "" if self.settings.pruner is PrunerKind.NONE else f", pruner {self.settings.pruner.value}"
        how = f"sampler {self.settings.sampler.value}{pruner}"
        head = f"search: {self.trials} trials, {self.at_once} at once, {how}: {aims}"
        return [head, *(f"    {each.described}" for each in self.space.parameters)]


def plan_search(
    chosen: SearchSettings,
    overrides: Sequence[Override],
    check: Check,
    *,
    at_once: Callable[[Sequence[RunSpec]], int],
) -> Search:
    """Plans a search.

    Args:
        overrides: of `hydra.sweeper.params` and of the command line.
        check: composes jobs; it gets a few that have every choice and both ends of every interval.
        at_once: returns the number of jobs that the launcher runs at once.

    Raises:
        ConfigError: with all faults of the search, or of a job.
    """
    space = search_space.space(overrides)
    specs = check(space.probes())
    sought = dict.fromkeys(objectives_of(spec) for spec in specs)
    splits = [getattr(spec.data, "split", None) for spec in specs]
    if any(split is not None and not split.validates for split in splits):
        rule = "a search chooses settings by the validation split, and that is empty"
        raise ConfigError([Fault("data.split.validation", "0", rule, "set data.split.validation above 0")])
    if len(sought) > 1:
        words = " or ".join(", ".join(each.metric for each in one) for one in sought)
        rule = f"the trials have different metrics ({words}), which can't be compared"
        raise ConfigError([Fault("sweep.objective", "null", rule, "name a metric that all have")])
    [aims] = sought
    study = any(spec.study.kind != "none" for spec in specs)
    faults = list(search_setting_faults(chosen, space, aims, study=study))
    if chosen.pruner is not PrunerKind.NONE and any(spec.seeds > 1 for spec in specs):
        rule = "a trial of several seeds is several jobs, and each would be pruned alone"
        faults.append(Fault(f"{SWEEPER}.pruner", chosen.pruner.value, rule, f"set {SWEEPER}.pruner=none, or seeds=1"))
    if faults:
        raise ConfigError(faults)
    return Search(space, aims, chosen, chosen.n_jobs or at_once(specs), max(spec.seeds for spec in specs))


def objectives_of(spec: RunSpec) -> tuple[Objective, ...]:
    """What `sweep.objective` names, or the default of the task.

    Raises:
        ConfigError: `sweep.objective` is no metric of the task.
    """
    return objectives(spec.task, spec.sweep.objective, spec.recommendation.cutoffs, spec.own_metrics)


def objective_values(objectives: Sequence[Objective], outcomes: Sequence[Outcome]) -> list[float]:
    """The value of each objective for one setting.

    Args:
        outcomes: of the setting, one for each seed.

    Returns:
        Means over the outcomes; NaN where one of them has no such metric.
    """
    found = []
    for each in objectives:
        measured = [outcome.metrics.get(f"validation {each.metric}", math.nan) for outcome in outcomes]
        found.append(statistics.fmean(measured) if measured else math.nan)
    return found


def search_setting_faults(
    settings: SearchSettings, space: Space, objectives: Sequence[Objective], *, study: bool
) -> Iterator[Fault]:
    """What can't be combined in a search.

    Args:
        study: whether each job is a study of several trainings.
    """
    yield from _direction(settings, objectives)
    path, kind, several = f"{SWEEPER}.sampler", settings.sampler, len(objectives) > 1
    endless = [each.key for each in space.parameters if math.isinf(each.size)]
    if kind is SamplerKind.GRID and endless:
        remedy = f"give {endless[0]} values, as by choice(…) or range(…), or choose another sampler"
        yield Fault(path, kind.value, "a grid needs a number of values, and an interval has no end of them", remedy)
    if kind is SamplerKind.CMAES:
        if importlib.util.find_spec("cmaes") is None:
            rule = "it needs the package cmaes, which is not installed"
            yield Fault(path, kind.value, rule, "pip install 'embexp[sweeps]'")
        if several:
            yield Fault(path, kind.value, "it makes a single objective better", f"choose {path}=tpe or random")
        if sum(isinstance(each, Numbers) for each in space.parameters) < 2:
            rule = "it searches at least two ranges of numbers together"
            yield Fault(path, kind.value, rule, f"choose {path}=tpe, or give intervals")
    path, pruner = f"{SWEEPER}.pruner", settings.pruner
    if pruner is not PrunerKind.NONE and several:
        yield Fault(path, pruner.value, "trials are compared by a single objective", f"set {path}=none")
    if pruner is not PrunerKind.NONE and study:
        rule = "a study trains several times, each from step 1"
        yield Fault(path, pruner.value, rule, f"set {path}=none, or study=none")


def _direction(settings: SearchSettings, objectives: Sequence[Objective]) -> Iterator[Fault]:
    if settings.direction is None:
        return
    given = [settings.direction] if isinstance(settings.direction, str) else list(settings.direction)
    expected = [each.direction for each in objectives]
    if given != expected:
        better = ", ".join(
            f"{each.metric} gets better when it is {'higher' if each.higher_is_better else 'lower'}"
            for each in objectives
        )
        wanted = expected[0] if len(expected) == 1 else f"[{','.join(expected)}]"
        remedy = f"leave it out, or set {SWEEPER}.direction={wanted}"
        yield Fault(f"{SWEEPER}.direction", format_value(given if len(given) > 1 else given[0]), better, remedy)
