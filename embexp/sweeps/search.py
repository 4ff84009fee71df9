"""The values that a sweep tries, from overrides in Hydra's grammar: all combinations, or what a search chooses.

And a search: in which space, by which metric, and whether its settings go together. No Optuna.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from hydra.core.override_parser.types import Override, RangeSweep
from hydra.errors import HydraException

from embexp.errors import CommandLineError, ConfigError, Fault
from embexp.specs.run import RunSpec
from embexp.specs.running import PrunerKind, SamplerKind, SearchSettings
from embexp.specs.strategies import Strategy
from embexp.specs.tasks import Objective, objectives
from embexp.sweeps.jobs import Outcome
from embexp.sweeps.settings import DEFAULT_TRIALS, SWEEPER
from embexp.sweeps.space import Numbers, Space, steps

Check = Callable[[Sequence[Sequence[str]]], Sequence[RunSpec]]
"""Composes and checks jobs with some overrides; returns the specs of those that can run."""
_LISTED = 8
"""Factors of a number of jobs that are listed."""


def combinations(overrides: Sequence[Override]) -> list[list[str]]:
    """The overrides of each job of Hydra's basic sweeper, in its order: the last key's values vary fastest.

    Raises:
        CommandLineError: a swept key has no list of values.
    """
    choices = {key: [f"{key}={text}" for text in texts(each)] for key, each in _by_key(overrides).items()}
    return [list(each) for each in itertools.product(*choices.values())]


def factors(overrides: Sequence[Override]) -> dict[str, int]:
    """The number of values of each swept key; no job is made.

    Raises:
        CommandLineError: a swept key has no list of values.
    """
    return {key: count_combinations(each) for key, each in _by_key(overrides).items() if each.is_sweep_override()}


def limit(factors: Mapping[str, int], most: int) -> None:
    """Checks the number of jobs of a sweep.

    Args:
        factors: whose product it is, by what there are several of.
        most: `sweep.max_jobs`.

    Raises:
        ConfigError: there are more.
    """
    jobs = math.prod(factors.values())
    if jobs <= most:
        return
    several = [f"{number:,} of {key}" for key, number in factors.items() if number > 1]
    more = f" × {len(several) - _LISTED} more" if len(several) > _LISTED else ""
    rule = f"the sweep has {jobs:,} jobs ({' × '.join(several[:_LISTED])}{more})"
    remedy = f"sweep over fewer values, or set sweep.max_jobs={jobs}"
    raise ConfigError([Fault("sweep.max_jobs", str(most), rule, remedy)])


def count_combinations(override: Override) -> int:
    """The number of values of a swept key.

    Raises:
        CommandLineError: it has no list of values.
    """
    value = override.value()
    found = steps(value) if isinstance(value, RangeSweep) else len(_texts(override))
    if not found:
        raise _without_values(override)
    return found


def texts(override: Override) -> list[str]:
    """The values of a key as overrides have them; of one that is not swept, its only one.

    Raises:
        CommandLineError: it is swept, but has no list of values.
    """
    if not override.is_sweep_override():
        return [str(override.get_value_element_as_str())]
    found = _texts(override)
    if not found:
        raise _without_values(override)
    return found


def _texts(override: Override) -> list[str]:
    value = override.value()
    if isinstance(value, RangeSweep) and not steps(value):
        return []
    try:
        found = list(override.sweep_string_iterator()) if override.is_discrete_sweep() else []
    except HydraException as error:
        raise CommandLineError(f"{override.input_line}: {error}") from error
    if isinstance(value, RangeSweep) and not isinstance(value.range(), range):
        meant = dict(_decimals(value))
        return [meant.get(float(text), text) for text in found]
    return found


def _decimals(value: RangeSweep) -> Iterable[tuple[float, str]]:
    """Each number of a range of floats, as Hydra sums it up in binary, and as the one that its decimals mean.

    The third of `range(0.1, 1, 0.1)` is 0.30000000000000004 to Hydra.
    """
    first, step = Decimal(repr(value.start)), Decimal(repr(value.step))
    for number, exact in enumerate(value.range()):
        yield exact, repr(float(first + number * step))


def _by_key(overrides: Iterable[Override]) -> dict[str, Override]:
    """The overrides by key; of two with one key, the later counts, in the place of the earlier."""
    return {override.get_key_element(): override for override in overrides}


def _without_values(override: Override) -> CommandLineError:
    return CommandLineError(
        f"{override.input_line}: this sweep names no values to try\n"
        "    give the values: key=1,2,3 or 'key=range(0,5)'; an interval needs a search: hydra/sweeper=optuna"
    )


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
        return self.settings.n_trials or DEFAULT_TRIALS

    def lines(self) -> list[str]:
        """The search in words: how many trials, by what, and what each of them chooses."""
        aims = ", ".join(f"{objective.direction} validation {objective.metric}" for objective in self.objectives)
        pruner = "" if self.settings.pruner is PrunerKind.NONE else f", pruner {self.settings.pruner.value}"
        how = f"sampler {self.settings.sampler.value}{pruner}"
        budget = "" if self.settings.budget is None else f", budget {self.settings.budget}"
        head = f"search: {self.trials} trials, {self.at_once} at once{budget}, {how}: {aims}"
        return [head, *(f"    {line}" for line in self.space.tree())]


def plan_search(
    chosen: SearchSettings,
    searched: Space,
    check: Check,
    *,
    at_once: Callable[[Sequence[Strategy]], int],
) -> Search:
    """Plans a search.

    Args:
        check: composes jobs; it gets a few that have every choice and both ends of every interval.
        at_once: returns the number of jobs that the launcher runs at once.

    Raises:
        ConfigError: with all faults of the search, or of a job.
    """
    specs = check(searched.probes())
    sought = dict.fromkeys(
        objectives(spec.task, spec.sweep.objective, spec.task.cutoffs_of(spec), spec.further_metrics) for spec in specs
    )
    if not all(getattr(spec.data, "validates", True) for spec in specs):
        rule = "a search chooses settings on the validation split, but that is empty"
        raise ConfigError([Fault("data.split.validation", "0", rule, "set data.split.validation above 0")])
    if len(sought) > 1:
        words = " or ".join(", ".join(each.metric for each in one) for one in sought)
        rule = f"the trials have different metrics ({words}), which can't be compared"
        raise ConfigError([Fault("sweep.objective", "null", rule, "name a metric that all of them have")])
    [aims] = sought
    study = any(spec.study.kind != "none" for spec in specs)
    faults = list(search_setting_faults(chosen, searched, aims, study=study))
    if chosen.pruner is not PrunerKind.NONE and any(spec.seeds > 1 for spec in specs):
        rule = "a trial with several seeds has several jobs, which would be pruned separately"
        faults.append(Fault(f"{SWEEPER}.pruner", chosen.pruner.value, rule, f"set {SWEEPER}.pruner=none or seeds=1"))
    if faults:
        raise ConfigError(faults)
    most = chosen.n_jobs or at_once([spec.strategy for spec in specs])
    return Search(searched, aims, chosen, most, max(spec.seeds for spec in specs))


def objective_values(objectives: Sequence[Objective], outcomes: Sequence[Outcome]) -> list[float]:
    """The value of each objective for one setting.

    Args:
        outcomes: of the setting, one for each seed.

    Returns:
        Means over the outcomes; NaN where one of them has no such metric.
    """
    found = []
    for objective in objectives:
        measured = [outcome.metrics.get(f"validation {objective.metric}", math.nan) for outcome in outcomes]
        found.append(statistics.fmean(measured) if measured else math.nan)
    return found


def search_setting_faults(
    settings: SearchSettings, space: Space, objectives: Sequence[Objective], *, study: bool
) -> Iterator[Fault]:
    """What can't be combined in a search.

    Args:
        study: whether each job is a study of several trainings.
    """
    path, kind, several = f"{SWEEPER}.sampler", settings.sampler, len(objectives) > 1
    if kind is SamplerKind.CMAES:
        if importlib.util.find_spec("cmaes") is None:
            rule = "it needs the package cmaes, which is not installed"
            yield Fault(path, kind.value, rule, "pip install 'embexp[sweeps]'")
        if several:
            yield Fault(path, kind.value, "it can optimise only a single objective", f"choose {path}=tpe or random")
        if sum(isinstance(parameter, Numbers) for parameter in space.parameters) < 2:
            rule = "it needs at least two numeric ranges"
            yield Fault(path, kind.value, rule, f"choose {path}=tpe, or give intervals")
        if space.is_conditional:
            rule = "all of its trials need the same parameters, but some parameters here have conditions"
            yield Fault(path, kind.value, rule, f"choose {path}=tpe or random")
    path, pruner = f"{SWEEPER}.pruner", settings.pruner
    if pruner is not PrunerKind.NONE and several:
        yield Fault(path, pruner.value, "pruning compares trials by a single objective", f"set {path}=none")
    if pruner is not PrunerKind.NONE and study:
        rule = "a study trains several times, each time from step 1"
        yield Fault(path, pruner.value, rule, f"set {path}=none or study=none")


class TrialJobs:
    """What a study asks its sweep about the jobs of trials. Without a sweep, nothing is known or refused."""

    def rejection(self, overrides: Sequence[str], others: Sequence[Sequence[str]]) -> str:
        """Why a trial is not to be run: its settings can't be combined, or a job has them already; "" if it is.

        Args:
            others: overrides of trials that are to be run, too.
        """
        return ""

    def has(self, trial: int) -> bool:
        """Whether a trial has jobs: one that was only asked for has none."""
        return True

    def leave_out(self, trials: Sequence[int]) -> None:
        """Notes that the jobs of some trials are not to be run, if they have not ended."""

    def value(self, trial: int, key: str) -> str | None:
        """The value that a trial has for a key which it did not choose; None if it has none."""
        return None

    def same(self, overrides: Mapping[int, Sequence[str]]) -> set[int]:
        """The trials whose jobs are those that some overrides ask for."""
        return {*overrides}

    def seconds(self) -> tuple[float, dict[int, float]]:
        """Seconds in which jobs have run so far, in all commands together; and by trial, at the end of its jobs."""
        return 0.0, {}

    def agrees(self, question: str) -> bool:
        """Whether the user wants something that loses trials."""
        return False
