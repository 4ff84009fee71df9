"""The values that a sweep tries, from overrides in Hydra's grammar: all combinations, or the space of a search.

And a search: what its trials choose, by which metric, and whether its settings go together. No Optuna.
"""

from __future__ import annotations

import importlib.util
import itertools
import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException

from embexp.errors import CommandLineError, ConfigError, Fault
from embexp.specs.run import RunSpec
from embexp.specs.strategies import Strategy
from embexp.specs.tasks import Objective, objectives
from embexp.sweeps.jobs import Outcome
from embexp.sweeps.settings import DEFAULT_TRIALS, SWEEPER, PrunerKind, SamplerKind, SearchSettings

Check = Callable[[Sequence[Sequence[str]]], Sequence[RunSpec]]
"""Composes and checks jobs with some overrides; returns the specs of those that can run."""
_DIGITS = 12
"""Digits of a number from a range of floats; the rest is rounding."""
_LISTED = 8
"""Factors of a number of jobs that are listed."""


@dataclass(frozen=True)
class Choices:
    """Values without an order between them.

    Attributes:
        texts: the values, as an override has them.
    """

    key: str
    texts: tuple[str, ...]

    def text(self, value: object) -> str:
        """The override's text of a value."""
        return str(value)

    @property
    def described(self) -> str:
        """The parameter in words."""
        return f"{self.key}: {', '.join(self.texts)}"

    @property
    def probes(self) -> tuple[str, ...]:
        """Values to check before the search begins: all."""
        return self.texts


@dataclass(frozen=True)
class Numbers:
    """Numbers from `low` to `high`, both included.

    Attributes:
        whole: whether they are whole numbers.
        log: whether their logarithms are drawn.
        step: between neighbours; None: none, any number is a value.
    """

    key: str
    low: float
    high: float
    whole: bool
    log: bool = False
    step: float | None = None

    def text(self, value: float) -> str:
        """The override's text of a value."""
        if self.whole:
            return str(int(value))
        return repr(float(value) if self.step is None else float(f"{value:.{_DIGITS}g}"))

    @property
    def described(self) -> str:
        """The parameter in words."""
        kind = "whole numbers " if self.whole else ""
        step = f" in steps of {self.step:g}" if self.step not in (None, 1) else ""
        return f"{self.key}: {kind}{self.low:g} to {self.high:g}{step}{', logarithmic' if self.log else ''}"

    @property
    def probes(self) -> tuple[str, ...]:
        """Values to check before the search begins: the ends."""
        return (self.text(self.low), self.text(self.high))


Parameter = Choices | Numbers


@dataclass(frozen=True)
class Space:
    """A search space.

    Attributes:
        fixed: overrides that are the same in every trial.
    """

    parameters: tuple[Parameter, ...]
    fixed: tuple[str, ...]

    def overrides(self, values: Sequence[str]) -> list[str]:
        """The overrides of a trial.

        Args:
            values: the text of each parameter's value.
        """
        chosen = [f"{parameter.key}={text}" for parameter, text in zip(self.parameters, values, strict=True)]
        return [*self.fixed, *chosen]

    def probes(self) -> list[list[str]]:
        """Overrides of a few trials that have every choice and both ends of every interval."""
        first = [each.probes[0] for each in self.parameters]
        found = [first]
        for place, parameter in enumerate(self.parameters):
            found += [[*first[:place], text, *first[place + 1 :]] for text in parameter.probes[1:]]
        return [self.overrides(each) for each in found]


def space(overrides: Sequence[Override]) -> Space:
    """The search space of parsed overrides; of two with one key, the later counts.

    Raises:
        ConfigError: an override that no search can draw from, or nothing to search; with all faults.
    """
    parameters: dict[str, Parameter] = {}
    fixed: dict[str, str] = {}
    faults: list[Fault] = []
    for override in overrides:
        key = override.get_key_element()
        parameters.pop(key, None)
        fixed.pop(key, None)
        if not override.is_sweep_override():
            fixed[key] = str(override.input_line)
            continue
        found = _parameter(key, override)
        if isinstance(found, Fault):
            faults.append(found)
        elif isinstance(found, Choices) and len(found.texts) == 1:
            fixed[key] = f"{key}={found.probes[0]}"
        else:
            parameters[key] = found
    if not (parameters or faults):
        rule = "a search needs something to choose"
        remedy = "give values to choose from, such as 'optimizer.learning_rate=tag(log, interval(0.01, 1))'"
        faults.append(Fault("hydra.sweeper", "optuna", rule, remedy))
    if faults:
        raise ConfigError(faults)
    return Space(tuple(parameters.values()), tuple(fixed.values()))


def _parameter(key: str, override: Override) -> Parameter | Fault:
    value = override.value()
    text = str(override.input_line).partition("=")[2]
    tags = sorted(value.tags) if isinstance(value, ChoiceSweep | RangeSweep | IntervalSweep) else []
    if tags not in ([], ["log"]):
        return Fault(key, text, f"a search knows the tag log, and this has {', '.join(tags)}")
    if isinstance(value, IntervalSweep) and value.start is not None and value.end is not None:
        return _interval(key, text, value.start, value.end, log=bool(tags))
    if tags:
        return Fault(key, text, "the tag log is for an interval", f"write '{key}=tag(log, interval(LOW, HIGH))'")
    if isinstance(value, ChoiceSweep | RangeSweep):
        value.shuffle = False  # a search draws in an order of its own, and its choices keep theirs when it is resumed
    if isinstance(value, RangeSweep):
        return _range(key, text, value)
    try:
        texts = tuple(dict.fromkeys(override.sweep_string_iterator()))
    except HydraException as error:
        return Fault(key, text, f"it can't be read: {str(error).splitlines()[0]}")
    return Choices(key, texts) if texts else Fault(key, text, "it has no values")


def _interval(key: str, text: str, low: float, high: float, *, log: bool) -> Parameter | Fault:
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        return Fault(key, text, "an interval goes from a number to a larger one")
    if log and low <= 0:
        return Fault(key, text, "a logarithmic interval begins above 0")
    whole = isinstance(low, int) and isinstance(high, int)
    if low == high:
        return Choices(key, (str(low),))
    return Numbers(key, low, high, whole, log, 1 if whole else None)


def _range(key: str, text: str, value: RangeSweep) -> Parameter | Fault:
    count = steps(value)
    if not count or value.start is None:
        return Fault(key, text, "this range has no values", "write range(FIRST, END), END not included")
    if count == 1:
        return Choices(key, (str(value.start),))
    whole = isinstance(value.range(), range)
    ends = value.start, value.start + (count - 1) * value.step
    low, high = sorted(float(f"{end:.{_DIGITS}g}") for end in ends)
    return Numbers(key, low, high, whole, step=abs(value.step))


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


def steps(value: RangeSweep) -> int:
    """The number of values of a range, which is not made; 0 for one without an end, or without steps."""
    limits = (value.start, value.stop, value.step)
    if not value.step or not all(each is not None and math.isfinite(each) for each in limits):
        return 0
    start, stop, step = (Decimal(each) for each in limits if each is not None)
    return max(0, math.ceil((stop - start) / step))


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
        "    give the values: key=1,2,3 or 'key=range(0,5)'; an interval is for a search: hydra/sweeper=optuna"
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
        head = f"search: {self.trials} trials, {self.at_once} at once, {how}: {aims}"
        return [head, *(f"    {parameter.described}" for parameter in self.space.parameters)]


def plan_search(
    chosen: SearchSettings,
    overrides: Sequence[Override],
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
    searched = space(overrides)
    specs = check(searched.probes())
    sought = dict.fromkeys(
        objectives(spec.task, spec.sweep.objective, spec.task.cutoffs_of(spec), spec.further_metrics) for spec in specs
    )
    if not all(getattr(spec.data, "validates", True) for spec in specs):
        rule = "a search chooses settings by the validation split, and that is empty"
        raise ConfigError([Fault("data.split.validation", "0", rule, "set data.split.validation above 0")])
    if len(sought) > 1:
        words = " or ".join(", ".join(each.metric for each in one) for one in sought)
        rule = f"the trials have different metrics ({words}), which can't be compared"
        raise ConfigError([Fault("sweep.objective", "null", rule, "name a metric that all have")])
    [aims] = sought
    study = any(spec.study.kind != "none" for spec in specs)
    faults = list(search_setting_faults(chosen, searched, aims, study=study))
    if chosen.pruner is not PrunerKind.NONE and any(spec.seeds > 1 for spec in specs):
        rule = "a trial of several seeds is several jobs, and each would be pruned alone"
        faults.append(Fault(f"{SWEEPER}.pruner", chosen.pruner.value, rule, f"set {SWEEPER}.pruner=none, or seeds=1"))
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
            yield Fault(path, kind.value, "it makes a single objective better", f"choose {path}=tpe or random")
        if sum(isinstance(parameter, Numbers) for parameter in space.parameters) < 2:
            rule = "it searches at least two ranges of numbers together"
            yield Fault(path, kind.value, rule, f"choose {path}=tpe, or give intervals")
    path, pruner = f"{SWEEPER}.pruner", settings.pruner
    if pruner is not PrunerKind.NONE and several:
        yield Fault(path, pruner.value, "trials are compared by a single objective", f"set {path}=none")
    if pruner is not PrunerKind.NONE and study:
        rule = "a study trains several times, each from step 1"
        yield Fault(path, pruner.value, rule, f"set {path}=none, or study=none")
