"""A search: its settings and its plan are checked, then trials run in batches until there are as many as asked for."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from embexp.config.messages import did_you_mean, format_value
from embexp.config.validate import rule_of, valid_values
from embexp.errors import CommandLineError, ConfigError, Fault
from embexp.reports.record import Status
from embexp.specs.run import RunSpec
from embexp.sweeps import pruning, search_space
from embexp.sweeps.outcomes import Outcome
from embexp.sweeps.search_space import Numbers, Space
from embexp.system import files
from embexp.training.metric_names import Objective, objectives

if TYPE_CHECKING:
    from embexp.sweeps.study import Study, Trial

SEARCH_FILE = "search.json"


Launch = Callable[[Sequence[Sequence[str]], int], Sequence[Sequence[Outcome]]]
"""Runs some trials, the first of which has this number, and returns the outcomes of each: one for each seed."""
Told = Callable[[Sequence[int]], object]
"""Takes note of trials that an earlier process has run, by their numbers."""
SWEEPER = "hydra_plugins.embexp_optuna_sweeper.OptunaSweeper"

Check = Callable[[Sequence[Sequence[str]]], Sequence[RunSpec]]
"""Composes and checks jobs with some overrides; returns the specs of those that can run."""
_NODE = "hydra.sweeper"
DEFAULT_TRIALS = 20


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

    def run(self, directory: Path, launch: Launch, told: Told = lambda numbers: None) -> list[Trial]:
        """Runs the trials that are missing.

        A batch is asked for as a whole, then run, then told as a whole. With one process after the other, a search that
        was killed at any time therefore asks for the trials that it would have asked for without.

        Args:
            told: called first, with the trials that are not run again.

        Returns:
            The best trial, or the best ones of several objectives.
        """
        from embexp.sweeps.study import Study  # which imports Optuna

        with Study(self.space, self.objectives, self.settings, directory) as study:
            told([each.job for each in study.trials() if each.state != "running"])
            while batch := self._batch(study):
                with self._pruned(study, directory, batch):
                    ended = {trial.job: each for trial, each in self._launched(batch, launch)}
                for trial in batch:
                    _tell(study, trial, ended[trial.job], self.objectives)
                self._write(study, directory)
                if any(_is_open(each) for each in ended.values()):
                    break  # interrupted
            self._write(study, directory)
            return study.best()

    def lines(self) -> list[str]:
        """The search in words: how many trials, by what, and what each of them chooses."""
        aims = ", ".join(f"{each.direction} validation {each.metric}" for each in self.objectives)
        pruner = "" if self.settings.pruner is PrunerKind.NONE else f", pruner {self.settings.pruner.value}"
        how = f"sampler {self.settings.sampler.value}{pruner}"
        head = f"search: {self.trials} trials, {self.at_once} at once, {how}: {aims}"
        return [head, *(f"    {each.described}" for each in self.space.parameters)]

    def described(self, trial: Trial) -> str:
        """A trial in one line: its job, its values and its settings."""
        values = [
            f"validation {each.metric} {v:.4f}" for each, v in zip(self.objectives, trial.values or (), strict=True)
        ]
        settings = [f"{each.key}={text}" for each, text in zip(self.space.parameters, trial.texts, strict=True)]
        return "   ".join([f"job {trial.job * self.seeds}", *values, " ".join(settings)])

    def _batch(self, study: Study) -> list[Trial]:
        """The next trials: those of a batch that was not told, completed if it was only asked for in part."""
        known = study.trials()
        batch = [each for each in known if each.state == "running"]
        count = len(known)
        begun = batch or count % self.at_once
        end = math.ceil(count / self.at_once) * self.at_once if begun else count + self.at_once
        batch += [study.ask(job) for job in range(count, min(end, self.trials))]
        return batch

    def _launched(self, batch: Sequence[Trial], launch: Launch) -> Iterator[tuple[Trial, Sequence[Outcome]]]:
        """Runs a batch; a launcher numbers its jobs without gaps."""
        for _, group in groupby(enumerate(batch), key=lambda pair: pair[1].job - pair[0]):
            trials = [trial for _, trial in group]
            yield from zip(
                trials, launch([self.space.overrides(each.texts) for each in trials], trials[0].job), strict=True
            )

    def _pruned(self, study: Study, directory: Path, batch: Sequence[Trial]) -> contextlib.AbstractContextManager[None]:
        if self.settings.pruner is PrunerKind.NONE:
            return contextlib.nullcontext()
        trials = {each.job: each for each in batch}
        return pruning.answered(
            directory,
            trials,
            self.objectives[0].metric,
            lambda job, step, value: study.report(trials[job], step, value),
        )

    def _write(self, study: Study, directory: Path) -> None:
        """Writes search.json: the history of the search, with the best so far."""
        sign = -1.0 if self.objectives[0].higher_is_better else 1.0
        best: float | None = None
        history = []
        for each in study.trials():
            if len(self.objectives) == 1 and each.state == "complete" and each.values:
                best = each.values[0] if best is None or sign * each.values[0] < sign * best else best
            history.append(
                {
                    "trial": each.number,
                    "job": each.job,
                    "state": each.state,
                    "params": {key.key: text for key, text in zip(self.space.parameters, each.texts, strict=True)},
                    "values": None if each.values is None else list(each.values),
                    "best_so_far": best,
                }
            )
        content = {
            "objectives": [
                {"metric": f"validation {each.metric}", "direction": each.direction} for each in self.objectives
            ],
            "sampler": self.settings.sampler.value,
            "pruner": self.settings.pruner.value,
            "n_trials": self.trials,
            "best": [each.job for each in study.best()],
            "trials": history,
        }
        files.write_text(directory / SEARCH_FILE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _is_open(outcomes: Sequence[Outcome]) -> bool:
    """Whether a trial is to be continued, as after an interruption."""
    is_open = (Status.INTERRUPTED, Status.CANCELLED, Status.PLANNED)
    return any(each.status in is_open or each.status.is_under_way for each in outcomes)


def _tell(study: Study, trial: Trial, outcomes: Sequence[Outcome], objectives: Sequence[Objective]) -> None:
    """Tells a study how a trial ended; its values are means over its seeds."""
    if _is_open(outcomes):
        return
    if any(each.status is Status.PRUNED for each in outcomes):
        study.tell_pruned(trial)
        return
    values = objective_values(objectives, outcomes)
    if all(each.status.has_results for each in outcomes) and all(map(math.isfinite, values)):
        study.tell(trial, values)
    else:
        study.tell_failed(trial)


def read_settings(config: DictConfig) -> SearchSettings:
    """The settings of a search.

    Args:
        config: of the sweep, without what it varies.

    Raises:
        CommandLineError: Optuna is not installed.
        ConfigError: with all faults.
    """
    if importlib.util.find_spec("optuna") is None:
        raise CommandLineError(
            "hydra/sweeper=optuna needs the package optuna, which is not installed\n    pip install 'embexp[sweeps]'"
        )
    try:
        node: Any = OmegaConf.to_container(config.hydra.sweeper, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        raise ConfigError([Fault(_NODE, "a mapping", f"it can't be resolved: {str(error).splitlines()[0]}")]) from None
    return read_search_settings(node)


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
    faults = search_setting_faults(chosen, space, aims, study=study)
    if chosen.pruner is not PrunerKind.NONE and any(spec.seeds > 1 for spec in specs):
        rule = "a trial of several seeds is several jobs, and each would be pruned alone"
        faults.append(Fault(f"{_NODE}.pruner", chosen.pruner.value, rule, f"set {_NODE}.pruner=none, or seeds=1"))
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


class SamplerKind(StrEnum):
    """How the settings of the next trials are chosen."""

    TPE = "tpe"
    RANDOM = "random"
    CMAES = "cmaes"
    GRID = "grid"


class PrunerKind(StrEnum):
    """How trials are ended whose evaluations are worse than those of others."""

    NONE = "none"
    MEDIAN = "median"
    HYPERBAND = "hyperband"


Way = Literal["minimize", "maximize"]
Count = Annotated[int, Field(strict=True, ge=1)]


class SearchSettings(BaseModel):
    """The node `hydra.sweeper`; see `conf/hydra/sweeper/optuna.yaml`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    n_trials: Count | None = None
    n_jobs: Count | None = None
    direction: Way | tuple[Way, ...] | None = None
    sampler: SamplerKind = SamplerKind.TPE
    seed: Annotated[int, Field(strict=True, ge=0)] = 0
    pruner: PrunerKind = PrunerKind.NONE
    study_name: Annotated[str, Field(min_length=1)] | None = None
    storage: Annotated[str, Field(min_length=1)] | None = None
    params: dict[str, Any] | None = None

    def trials(self, space: Space) -> int:
        """Number of trials; a grid has no more than its combinations."""
        if self.sampler is SamplerKind.GRID:
            combinations = int(math.prod(each.size for each in space.parameters))
            return min(self.n_trials or combinations, combinations)
        return self.n_trials or DEFAULT_TRIALS

    def storage_url(self, directory: Path) -> str:
        """Where Optuna keeps the study: `storage` if that is a URL, else a SQLite file."""
        if self.storage is not None and "://" in self.storage:
            return self.storage
        path = directory / "optuna.sqlite" if self.storage is None else Path(os.path.expanduser(self.storage))
        return f"sqlite:///{path.absolute()}"


def read_search_settings(node: Mapping[str, Any]) -> SearchSettings:
    """The settings of a node.

    Args:
        node: `hydra.sweeper` as plain values.

    Raises:
        ConfigError: with all faults.
    """
    try:
        return SearchSettings.model_validate({key: value for key, value in node.items() if key != "_target_"})
    except ValidationError as error:
        faults: dict[str, Fault] = {}
        for each in error.errors():
            key = str(each["loc"][0]) if each["loc"] else ""
            path = f"{_NODE}.{key}"
            if each["type"] == "extra_forbidden":
                rule, remedy = "the sweeper optuna has no such setting", did_you_mean(key, SearchSettings.model_fields)
                remedy = remedy or f"it has {', '.join(SearchSettings.model_fields)}"
            elif key == "direction":
                rule, remedy = "it must be minimize or maximize, or a list with one for each objective", ""
            else:
                rule, remedy = rule_of(each), did_you_mean(str(each["input"]), valid_values(each))
            faults.setdefault(path, Fault(path, format_value(each["input"]), rule, remedy))
        raise ConfigError(list(faults.values())) from None


def search_setting_faults(
    settings: SearchSettings, space: Space, objectives: Sequence[Objective], *, study: bool
) -> list[Fault]:
    """What can't be combined in a search.

    Args:
        study: whether each job is a study of several trainings.
    """
    return [
        *_direction(settings, objectives),
        *_sampler(settings, space, objectives),
        *_pruner(settings, objectives, study),
    ]


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
        remedy = f"leave it out, or set {_NODE}.direction={wanted}"
        yield Fault(f"{_NODE}.direction", format_value(given if len(given) > 1 else given[0]), better, remedy)


def _sampler(settings: SearchSettings, space: Space, objectives: Sequence[Objective]) -> Iterator[Fault]:
    path, kind = f"{_NODE}.sampler", settings.sampler
    endless = [each.key for each in space.parameters if math.isinf(each.size)]
    if kind is SamplerKind.GRID and endless:
        remedy = f"give {endless[0]} values, as by choice(…) or range(…), or choose another sampler"
        yield Fault(path, kind.value, "a grid needs a number of values, and an interval has no end of them", remedy)
    if kind is not SamplerKind.CMAES:
        return
    if importlib.util.find_spec("cmaes") is None:
        yield Fault(
            path, kind.value, "it needs the package cmaes, which is not installed", "pip install 'embexp[sweeps]'"
        )
    if len(objectives) > 1:
        yield Fault(path, kind.value, "it makes a single objective better", f"choose {path}=tpe or random")
    if sum(isinstance(each, Numbers) for each in space.parameters) < 2:
        rule = "it searches at least two ranges of numbers together"
        yield Fault(path, kind.value, rule, f"choose {path}=tpe, or give intervals")


def _pruner(settings: SearchSettings, objectives: Sequence[Objective], study: bool) -> Iterator[Fault]:
    path, kind = f"{_NODE}.pruner", settings.pruner
    if kind is PrunerKind.NONE:
        return
    if len(objectives) > 1:
        yield Fault(path, kind.value, "trials are compared by a single objective", f"set {path}=none")
    if study:
        yield Fault(
            path, kind.value, "a study trains several times, each from step 1", f"set {path}=none, or study=none"
        )
