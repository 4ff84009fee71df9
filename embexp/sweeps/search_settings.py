"""The settings of `hydra/sweeper=optuna`, checked before anything runs."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from embexp.config.nearest import did_you_mean
from embexp.config.pydantic_errors import rule_of, valid_values
from embexp.config.shown import shown
from embexp.errors import CommandLineError, ConfigError, Fault
from embexp.sweeps.search_space import Numbers, Space
from embexp.training.metric_names import Objective

NODE = "hydra.sweeper"
DEFAULT_TRIALS = 20


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
        """Where Optuna keeps the study: `storage` if that is a URL, else a SQLite file.

        Args:
            directory: of the sweep.
        """
        if self.storage is not None and "://" in self.storage:
            return self.storage
        path = directory / "optuna.sqlite" if self.storage is None else Path(self.storage).expanduser()
        return f"sqlite:///{path.absolute()}"


def require_optuna() -> None:
    """Makes sure that Optuna is installed, before anything is composed or run.

    Raises:
        CommandLineError: it is not.
    """
    if importlib.util.find_spec("optuna") is None:
        raise CommandLineError(
            "hydra/sweeper=optuna needs the package optuna, which is not installed\n    pip install 'embexp[sweeps]'"
        )


def read(node: Mapping[str, Any]) -> SearchSettings:
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
            path = f"{NODE}.{key}"
            if each["type"] == "extra_forbidden":
                rule, remedy = "the sweeper optuna has no such setting", did_you_mean(key, SearchSettings.model_fields)
                remedy = remedy or f"it has {', '.join(SearchSettings.model_fields)}"
            elif key == "direction":
                rule, remedy = "it must be minimize or maximize, or a list with one for each objective", ""
            else:
                rule, remedy = rule_of(each), did_you_mean(str(each["input"]), valid_values(each))
            faults.setdefault(path, Fault(path, shown(each["input"]), rule, remedy))
        raise ConfigError(list(faults.values())) from None


def faults(settings: SearchSettings, space: Space, objectives: Sequence[Objective], *, study: bool) -> list[Fault]:
    """What can't be combined in a search.

    Args:
        settings: of the search.
        space: what it chooses.
        objectives: what it makes better.
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
        better = ", ".join(f"{each.metric} gets better when {_way(each)}" for each in objectives)
        wanted = expected[0] if len(expected) == 1 else f"[{','.join(expected)}]"
        remedy = f"leave it out, or set {NODE}.direction={wanted}"
        yield Fault(f"{NODE}.direction", shown(given if len(given) > 1 else given[0]), better, remedy)


def _way(objective: Objective) -> str:
    return "it is higher" if objective.higher_is_better else "it is lower"


def _sampler(settings: SearchSettings, space: Space, objectives: Sequence[Objective]) -> Iterator[Fault]:
    path, kind = f"{NODE}.sampler", settings.sampler
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
    path, kind = f"{NODE}.pruner", settings.pruner
    if kind is PrunerKind.NONE:
        return
    if len(objectives) > 1:
        yield Fault(path, kind.value, "trials are compared by a single objective", f"set {path}=none")
    if study:
        yield Fault(
            path, kind.value, "a study trains several times, each from step 1", f"set {path}=none, or study=none"
        )
