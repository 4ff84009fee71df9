"""A search's study in Optuna: trials are asked for, reported on and told their values, and all of it is on disk."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import optuna
from optuna.samplers import PartialFixedSampler
from optuna.trial import FrozenTrial, TrialState

from embexp.errors import CommandLineError, RunError
from embexp.sweeps.search import PrunerKind, SamplerKind, SearchSettings
from embexp.sweeps.search_space import Choices, Parameter, Space
from embexp.training.metric_names import Objective

_JOB, _SWEEP = "embexp_job", "embexp_sweep"
"""Attributes of a trial: the number of its job, and the sweep that this belongs to, "" in a storage of its own."""


@dataclass(frozen=True)
class Trial:
    """A trial of this sweep.

    Attributes:
        job: number of its job in the sweep.
        texts: the value of each parameter, as its override has it.
        state: complete, pruned, fail, running or waiting.
        values: of the objectives; None without a result.
    """

    number: int
    job: int
    texts: tuple[str, ...]
    state: str
    values: tuple[float, ...] | None


class Study:
    """The study of one sweep. A storage of the user's may hold trials of other sweeps, too: they inform the sampler."""

    def __init__(
        self, space: Space, objectives: Sequence[Objective], settings: SearchSettings, directory: Path
    ) -> None:
        """Creates the study, or continues it.

        Raises:
            RunError: the storage can't be used, or holds a study of this name with other objectives.
            CommandLineError: the sweep's directory has another search.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space, self._settings = space, settings
        self._sweep = "" if settings.storage is None else str(directory)  # whose directory may be moved
        self._distributions = {each.key: _distribution(each) for each in space.parameters}
        url, name = settings.storage_url(directory), settings.study_name or directory.name
        directions = [each.direction for each in objectives]
        with contextlib.ExitStack() as opened:
            try:
                storage = optuna.storages.RDBStorage(url)
                opened.callback(storage.engine.dispose)
                if settings.storage is None and settings.study_name is None:
                    name = next(
                        iter(optuna.get_all_study_names(storage)), name
                    )  # of the directory that it was begun in
                self._study = optuna.create_study(
                    storage=storage,
                    study_name=name,
                    directions=directions,
                    pruner=_pruner(settings.pruner),
                    load_if_exists=True,
                )
                found = [each.name.lower() for each in self._study.directions]
            except Exception as error:  # of any database and its driver
                line = (str(error).splitlines() or [type(error).__name__])[0]
                raise RunError(f"hydra.sweeper.storage: {url} can't be used: {line}") from error
            if found != directions:
                raise RunError(
                    f"{url} holds a study {name!r} with the objectives {', '.join(found)}, and this search has"
                    f" {', '.join(directions)}\n    choose another hydra.sweeper.study_name"
                )
            self._check_description(objectives)
            self._opened = opened.pop_all()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the connections to the storage."""
        self._opened.close()

    def trials(self) -> list[Trial]:
        """The trials of this sweep, in the order of their jobs."""
        found = [self._trial(each) for each in self._study.get_trials(deepcopy=False) if self._is_own(each)]
        return sorted(found, key=lambda each: each.job)

    def ask(self, job: int) -> Trial:
        """A new trial. It depends on the seed, the number of its job and what the study knows; not on the process.

        Args:
            job: number of its job.
        """
        seed = int.from_bytes(hashlib.sha256(f"{self._settings.seed}/{job}".encode()).digest()[:4], "big")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study.sampler = _sampler(self._settings.sampler, seed)
            if self._settings.sampler is SamplerKind.GRID:
                self._study.sampler = PartialFixedSampler(self._combination(job), self._study.sampler)
        # Asked for in a copy in memory and stored at once: a search that is killed meanwhile leaves no half of a trial.
        # Not what the storage's owner has put into the queue, which is in the storage already.
        is_queued = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        study = self._study if is_queued else self._copied()
        asked = study.ask(self._distributions)
        asked.set_user_attr(_SWEEP, self._sweep)
        asked.set_user_attr(_JOB, job)
        if not is_queued:
            self._study.add_trial(study.trials[asked.number])
        return next(each for each in reversed(self.trials()) if each.job == job)

    def tell(self, trial: Trial, values: Sequence[float]) -> None:
        """The values of a trial's objectives."""
        self._study.tell(trial.number, list(values))

    def tell_pruned(self, trial: Trial) -> None:
        """A trial was pruned; its value is that of the last report."""
        self._study.tell(trial.number, state=TrialState.PRUNED)

    def tell_failed(self, trial: Trial) -> None:
        """A trial has no result."""
        self._study.tell(trial.number, state=TrialState.FAIL)

    def report(self, trial: Trial, step: int, value: float) -> bool:
        """Reports an evaluation of a running trial, and returns whether to prune it."""
        found = self._frozen(trial.number)
        asked = optuna.trial.Trial(self._study, found._trial_id)
        if step not in found.intermediate_values:  # a resumed job evaluates again what it had evaluated before
            asked.report(value, step)
        return bool(asked.should_prune())  # a NumPy bool, of some pruners

    def best(self) -> list[Trial]:
        """The best trial of this sweep, or with several objectives all that no other beats in every one."""
        own = [each for each in self.trials() if each.state == "complete" and each.values is not None]
        signs = [1 if each is optuna.study.StudyDirection.MINIMIZE else -1 for each in self._study.directions]
        points = {
            each.number: [sign * value for sign, value in zip(signs, each.values or (), strict=True)] for each in own
        }
        beaten = {
            number
            for (number, point), (_, other) in itertools.permutations(points.items(), 2)
            if other != point and all(theirs <= ours for ours, theirs in zip(point, other, strict=True))
        }
        found = [each for each in own if each.number not in beaten]
        return found[:1] if len(signs) == 1 else found

    def _check_description(self, objectives: Sequence[Objective]) -> None:
        """Notes what this sweep searches, or compares it with what it searched before; there may be more trials."""
        described = {
            "parameters": [str(each) for each in self._space.parameters],
            "fixed": list(self._space.fixed),
            "objectives": [each.metric for each in objectives],
            "sampler": self._settings.sampler.value,
            "seed": self._settings.seed,
            "pruner": self._settings.pruner.value,
        }
        key = f"{_SWEEP}:{self._sweep}"
        before = self._study.user_attrs.get(key)
        if before is None:
            self._study.set_user_attr(key, described)
        elif before != described:
            changed = next(name for name in described if before.get(name) != described[name])
            raise CommandLineError(
                f"{self._sweep} has another search: its {changed} differ\n"
                "    choose another hydra.sweep.dir, or start anew beside it with --fresh"
            )

    def _frozen(self, number: int) -> FrozenTrial:
        return next(each for each in self._study.get_trials(deepcopy=False) if each.number == number)

    def _is_own(self, trial: FrozenTrial) -> bool:
        return trial.user_attrs.get(_SWEEP) == self._sweep and _JOB in trial.user_attrs

    def _trial(self, found: FrozenTrial) -> Trial:
        texts = tuple(each.text(found.params[each.key]) for each in self._space.parameters)
        values = None if found.values is None else tuple(found.values)
        return Trial(found.number, found.user_attrs[_JOB], texts, found.state.name.lower(), values)

    def _copied(self) -> optuna.Study:
        """The study with all its trials, in memory."""
        known = self._study
        copied = optuna.create_study(
            study_name=known.study_name, directions=known.directions, sampler=known.sampler, pruner=known.pruner
        )
        copied.add_trials(known.get_trials(deepcopy=False))
        return copied

    def _combination(self, job: int) -> dict[str, Any]:
        """The combination of a grid that a job tries; the last parameter's values vary fastest."""
        chosen = {}
        for parameter in reversed(self._space.parameters):
            job, place = divmod(job, int(parameter.size))
            chosen[parameter.key] = _value(parameter, place)
        return {each.key: chosen[each.key] for each in self._space.parameters}


def _value(parameter: Parameter, place: int) -> Any:
    """The value at a place in the order of a grid."""
    if isinstance(parameter, Choices):
        return parameter.texts[place]
    number = float(parameter.text(parameter.low + place * (parameter.step or 1)))
    return int(number) if parameter.whole else number


def _distribution(parameter: Parameter) -> optuna.distributions.BaseDistribution:
    if isinstance(parameter, Choices):
        return optuna.distributions.CategoricalDistribution(parameter.texts)
    if parameter.whole:
        step = int(parameter.step or 1)
        return optuna.distributions.IntDistribution(
            int(parameter.low), int(parameter.high), log=parameter.log, step=step
        )
    return optuna.distributions.FloatDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)


def _sampler(kind: SamplerKind, seed: int) -> optuna.samplers.BaseSampler:
    match kind:
        case SamplerKind.TPE:
            return optuna.samplers.TPESampler(
                seed=seed, constant_liar=True
            )  # the jobs of a batch don't repeat each other
        case SamplerKind.RANDOM | SamplerKind.GRID:  # a grid fixes every parameter
            return optuna.samplers.RandomSampler(seed=seed)
        case SamplerKind.CMAES:
            return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        case _:
            assert_never(kind)


def _pruner(kind: PrunerKind) -> optuna.pruners.BasePruner:
    match kind:
        case PrunerKind.NONE:
            return optuna.pruners.NopPruner()
        case PrunerKind.MEDIAN:
            return optuna.pruners.MedianPruner()
        case PrunerKind.HYPERBAND:
            return optuna.pruners.HyperbandPruner()
        case _:
            assert_never(kind)
