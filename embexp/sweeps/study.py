"""Runs a search as a study of Optuna's: trials are asked for in batches, run, and told their values; all on disk."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

import optuna
from optuna.trial import FrozenTrial, TrialState

from embexp.errors import CommandLineError, RunError
from embexp.reports.record import Status
from embexp.specs.tasks import Objective
from embexp.sweeps import progress
from embexp.sweeps.jobs import OTHER_DIRECTORY, Outcome
from embexp.sweeps.search import Choices, Parameter, Search, Space, objective_values
from embexp.sweeps.settings import PrunerKind, SamplerKind, SearchSettings
from embexp.system import files
from embexp.system.printable import masked

SEARCH_FILE = "search.json"
Launch = Callable[[Sequence[Sequence[str]], int], Sequence[Sequence[Outcome]]]
"""Runs some trials, the first of which has this number, and returns the outcomes of each: one for each seed."""
_JOB, _SWEEP = "embexp_job", "embexp_sweep"
"""Attributes of a trial: the number of its job, and the sweep that this belongs to, "" in a storage of its own."""
_FORGOTTEN = "embexp_forgotten"
"""Attribute of a study: numbers of trials that a sweep has forgotten. A finished trial can't be changed, or removed."""
_WORDS = "words"
"""What a search notes about itself in words, which are shown, but not compared."""


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
        self._space, self._settings, self._directory = space, settings, directory
        self._sweep = "" if settings.storage is None else str(directory)  # whose directory may be moved
        self._distributions = {parameter.key: _distribution(parameter) for parameter in space.parameters}
        url, name = settings.storage_url(directory), settings.study_name or directory.name
        directions = [objective.direction for objective in objectives]
        if rule := settings.storage_rule(directory):
            raise RunError(masked(f"hydra.sweeper.storage: {url}: {rule}"))
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
                    pruner=_PRUNERS[settings.pruner](),
                    load_if_exists=True,
                )
                found = [direction.name.lower() for direction in self._study.directions]
            except Exception as error:  # of any database and its driver
                line = (str(error).splitlines() or [type(error).__name__])[0]
                raise RunError(masked(f"hydra.sweeper.storage: {url} can't be used: {line}")) from error
            if found != directions:
                raise RunError(
                    f"{masked(url)} holds a study {name!r} with the objectives {', '.join(found)}, and this search has"
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
        left_out = self._left_out()
        own = filter(self._is_own, self._study.get_trials(deepcopy=False))
        found = [self._trial(trial) for trial in own if trial.number not in left_out]
        return sorted(found, key=lambda each: each.job)

    def next_job(self) -> int:
        """The number of the next trial's job; those of forgotten trials are not used again."""
        own = filter(self._is_own, self._study.get_trials(deepcopy=False))
        return max((int(trial.user_attrs[_JOB]) for trial in own), default=-1) + 1

    def forget(self, jobs: Collection[int]) -> None:
        """Leaves out the trials of some jobs: of the sweep, and of what the sampler knows."""
        key, own = f"{_FORGOTTEN}:{self._sweep}", filter(self._is_own, self._study.get_trials(deepcopy=False))
        numbers = [trial.number for trial in own if trial.user_attrs[_JOB] in jobs]
        self._study.set_user_attr(key, sorted({*self._study.user_attrs.get(key, ()), *numbers}))

    def correct(self, trial: Trial, values: Sequence[float]) -> None:
        """Notes other values of a trial that was told, as its job was run again: a new trial in its place."""
        found = self._frozen(trial.number)
        self._study.add_trial(
            optuna.trial.create_trial(
                state=TrialState.COMPLETE,
                values=list(values),
                params=found.params,
                distributions=found.distributions,
                user_attrs=found.user_attrs,
            )
        )

    def _left_out(self) -> set[int]:
        """Numbers of trials that were forgotten, or have another one in their place."""
        attributes = self._study.user_attrs
        found = {number for key, numbers in attributes.items() if key.startswith(_FORGOTTEN) for number in numbers}
        last: dict[tuple[str, int], int] = {}
        for trial in self._study.get_trials(deepcopy=False):
            if _JOB in trial.user_attrs:
                place = str(trial.user_attrs.get(_SWEEP)), int(trial.user_attrs[_JOB])
                found |= {last[place]} if place in last else set()
                last[place] = trial.number
        return found

    def ask(self, job: int) -> Trial:
        """A new trial. It depends on the seed, the number of its job and what the study knows; not on the process."""
        seed = int.from_bytes(hashlib.sha256(f"{self._settings.seed}/{job}".encode()).digest()[:4], "big")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            self._study.sampler = _sampler(self._settings.sampler, seed)
        # Asked for in a copy in memory and stored at once: a search that is killed meanwhile leaves no half of a trial.
        # Not what the storage's owner has put into the queue, which is in the storage already.
        is_queued = self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,))
        study = self._study if is_queued else self._copied()
        asked = study.ask(self._distributions)
        asked.set_user_attr(_SWEEP, self._sweep)
        asked.set_user_attr(_JOB, job)
        if not is_queued:
            self._study.add_trial(study.trials[asked.number])
        return next(trial for trial in reversed(self.trials()) if trial.job == job)

    def tell(self, trial: Trial, values: Sequence[float]) -> None:
        """The values of a trial's objectives."""
        self._study.tell(trial.number, list(values))

    def end(self, trial: Trial, state: TrialState) -> None:
        """A trial has failed, or was pruned; the value of a pruned one is that of the last report."""
        self._study.tell(trial.number, state=state)

    def report(self, trial: Trial, step: int, value: float) -> bool:
        """Reports an evaluation of a running trial, and returns whether to prune it."""
        found = self._frozen(trial.number)
        asked = optuna.trial.Trial(self._study, found._trial_id)
        if step not in found.intermediate_values:  # a resumed job evaluates again what it had evaluated before
            asked.report(value, step)
        return bool(asked.should_prune())  # a NumPy bool, of some pruners

    def best(self) -> list[Trial]:
        """The best trial of this sweep, or with several objectives all that no other beats in every one."""
        own = [trial for trial in self.trials() if trial.state == "complete"]
        study = optuna.create_study(directions=self._study.directions)
        study.add_trials([self._frozen(each.number) for each in own])
        found = [own[trial.number] for trial in study.best_trials]
        return found[:1] if len(self._study.directions) == 1 else found

    def _check_description(self, objectives: Sequence[Objective]) -> None:
        """Notes what this sweep searches, or compares it with what it searched before; there may be more trials."""
        described = {
            "parameters": [str(parameter) for parameter in self._space.parameters],
            "fixed": list(self._space.fixed),
            "objectives": [objective.metric for objective in objectives],
            "sampler": self._settings.sampler.value,
            "seed": self._settings.seed,
            "pruner": self._settings.pruner.value,
        }
        words = {"parameters": [parameter.described for parameter in self._space.parameters]}
        key = f"{_SWEEP}:{self._sweep}"
        before = self._study.user_attrs.get(key)
        if before is None or not self.trials():  # a search without a trial has nothing that another could change
            self._study.set_user_attr(key, described | {_WORDS: words})
            return
        changed = [name for name in described if before.get(name) != described[name]]
        if changed:
            shown_before, shown = before | before.get(_WORDS, {}), described | words
            lines = (f"    {name}: {_difference(shown_before.get(name), shown[name])}" for name in changed)
            raise CommandLineError(
                "\n".join([f"{self._directory} has another search", *lines, f"    {OTHER_DIRECTORY}"])
            )

    def _frozen(self, number: int) -> FrozenTrial:
        return next(trial for trial in self._study.get_trials(deepcopy=False) if trial.number == number)

    def _is_own(self, trial: FrozenTrial) -> bool:
        return trial.user_attrs.get(_SWEEP) == self._sweep and _JOB in trial.user_attrs

    def _trial(self, found: FrozenTrial) -> Trial:
        texts = tuple(parameter.text(found.params[parameter.key]) for parameter in self._space.parameters)
        values = None if found.values is None else tuple(found.values)
        return Trial(found.number, found.user_attrs[_JOB], texts, found.state.name.lower(), values)

    def _copied(self) -> optuna.Study:
        """The study with all its trials, in memory."""
        known = self._study
        copied = optuna.create_study(
            study_name=known.study_name, directions=known.directions, sampler=known.sampler, pruner=known.pruner
        )
        left_out = self._left_out()
        copied.add_trials([trial for trial in known.get_trials(deepcopy=False) if trial.number not in left_out])
        return copied


def _difference(before: Any, now: Any) -> str:
    """What a search has there that another has not; of lists, only the items that differ."""
    if isinstance(before, list) and isinstance(now, list) and sorted(before) != sorted(now):
        before, now = [each for each in before if each not in now], [each for each in now if each not in before]
    texts = ["; ".join(map(str, each)) or "nothing" if isinstance(each, list) else str(each) for each in (before, now)]
    return f"it has {texts[0]}, and this command has {texts[1]}"


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
            return optuna.samplers.TPESampler(seed=seed, constant_liar=True)  # a batch's jobs don't repeat each other
        case SamplerKind.RANDOM:
            return optuna.samplers.RandomSampler(seed=seed)
        case SamplerKind.CMAES:
            return optuna.samplers.CmaEsSampler(seed=seed, warn_independent_sampling=False)
        case _:
            assert_never(kind)


_PRUNERS: Mapping[PrunerKind, Callable[[], optuna.pruners.BasePruner]] = {
    PrunerKind.NONE: optuna.pruners.NopPruner,
    PrunerKind.MEDIAN: optuna.pruners.MedianPruner,
    PrunerKind.HYPERBAND: optuna.pruners.HyperbandPruner,
}


Told = Callable[[Sequence[int]], Mapping[int, Sequence[Outcome]]]
"""Gets the numbers of the trials that are not run again, and returns how their jobs have ended."""


def run(search: Search, directory: Path, launch: Launch, told: Told = lambda numbers: {}) -> list[Trial]:
    """Runs the trials of a search that are missing.

    A batch is asked for as a whole, then run, then told as a whole. With one process after the other, a search that was
    killed at any time therefore asks for the trials that it would have asked for without.

    Args:
        told: called first. Jobs that were run again since, as their folders were gone, may have other values.

    Returns:
        The best trial, or the best ones of several objectives.

    Raises:
        RunError: the storage of the study can't be used.
        CommandLineError: the directory has another search.
    """
    with Study(search.space, search.objectives, search.settings, directory) as study:
        _refresh(search, study, told([each.job for each in study.trials() if each.state != "running"]))
        while batch := _next_batch(search, study):
            with _pruned(search, study, directory, batch):
                ended = {trial.job: each for trial, each in _launched(search, batch, launch)}
            for trial in batch:
                _tell(study, trial, ended[trial.job], search.objectives)
            _write(search, study, directory)
            if any(_is_open(each) for each in ended.values()):
                break  # interrupted
        _write(search, study, directory)
        return study.best()


def forget(search: Search, directory: Path, jobs: Collection[int]) -> int:
    """Takes the trials of some jobs out of a search, and returns how many its sampler still knows, of this sweep."""
    with Study(search.space, search.objectives, search.settings, directory) as study:
        study.forget(jobs)
        _write(search, study, directory)
        return len(study.trials())


def refresh(search: Search, directory: Path, outcomes: Mapping[int, Sequence[Outcome]]) -> list[int]:
    """Tells a search the values of trials whose jobs were run again; returns the jobs of those that have others now."""
    with Study(search.space, search.objectives, search.settings, directory) as study:
        changed = _refresh(search, study, outcomes)
        _write(search, study, directory)
        return changed


def _refresh(search: Search, study: Study, outcomes: Mapping[int, Sequence[Outcome]]) -> list[int]:
    changed = []
    for trial in study.trials():
        ended = outcomes.get(trial.job, ())
        if trial.state == "running" or not ended or not all(each.status.has_results for each in ended):
            continue
        values = objective_values(search.objectives, ended)
        if all(map(math.isfinite, values)) and (trial.state != "complete" or tuple(values) != trial.values):
            study.correct(trial, values)
            changed.append(trial.job)
    return changed


def described(search: Search, trial: Trial) -> str:
    """A trial in one line: its job, its values and its settings."""
    values = [
        f"validation {objective.metric} {v:.4f}"
        for objective, v in zip(search.objectives, trial.values or (), strict=True)
    ]
    settings = [f"{parameter.key}={text}" for parameter, text in zip(search.space.parameters, trial.texts, strict=True)]
    return "   ".join([f"job {trial.job * search.seeds}", *values, " ".join(settings)])


def _next_batch(search: Search, study: Study) -> list[Trial]:
    """The next trials: those of a batch that was not told, completed if it was only asked for in part."""
    known = study.trials()
    batch = [each for each in known if each.state == "running"]
    count = study.next_job()
    begun = batch or count % search.at_once
    end = math.ceil(count / search.at_once) * search.at_once if begun else count + search.at_once
    return batch + [study.ask(job) for job in range(count, min(end, count + search.trials - len(known)))]


def _launched(search: Search, batch: Sequence[Trial], launch: Launch) -> Iterator[tuple[Trial, Sequence[Outcome]]]:
    """Runs a batch; a launcher numbers its jobs without gaps."""
    for _, group in itertools.groupby(enumerate(batch), key=lambda pair: pair[1].job - pair[0]):
        trials = [trial for _, trial in group]
        settings = [search.space.overrides(each.texts) for each in trials]
        yield from zip(trials, launch(settings, trials[0].job), strict=True)


def _pruned(
    search: Search, study: Study, directory: Path, batch: Sequence[Trial]
) -> contextlib.AbstractContextManager[None]:
    if search.settings.pruner is PrunerKind.NONE:
        return contextlib.nullcontext()
    trials = {each.job: each for each in batch}
    return progress.answered(
        directory,
        trials,
        search.objectives[0].metric,
        lambda job, step, value: study.report(trials[job], step, value),
    )


def unpruned(search: Search, directory: Path, jobs: Sequence[int]) -> contextlib.AbstractContextManager[None]:
    """Within the block, jobs run to their end: their trials were told their values before their folders were lost."""
    if search.settings.pruner is PrunerKind.NONE:
        return contextlib.nullcontext()
    return progress.answered(directory, jobs, search.objectives[0].metric, lambda *_: False)


def _write(search: Search, study: Study, directory: Path) -> None:
    """Writes search.json: the history of the search, with the best so far."""
    choose = max if search.objectives[0].higher_is_better else min
    best: float | None = None
    history = []
    for each in study.trials():
        if len(search.objectives) == 1 and each.state == "complete" and each.values:
            best = each.values[0] if best is None else choose(best, each.values[0])
        params = {key.key: text for key, text in zip(search.space.parameters, each.texts, strict=True)}
        values = None if each.values is None else list(each.values)
        trial = {"trial": each.number, "job": each.job, "state": each.state, "params": params, "values": values}
        history.append(trial | {"best_so_far": best})
    content = {
        "objectives": [
            {"metric": f"validation {objective.metric}", "direction": objective.direction}
            for objective in search.objectives
        ],
        "sampler": search.settings.sampler.value,
        "pruner": search.settings.pruner.value,
        "n_trials": search.trials,
        "best": [each.job for each in study.best()],
        "trials": history,
    }
    files.write_text(directory / SEARCH_FILE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _is_open(outcomes: Sequence[Outcome]) -> bool:
    """Whether a trial is to be continued, as after an interruption."""
    is_open = (Status.INTERRUPTED, Status.CANCELLED, Status.PLANNED)
    return any(outcome.status in is_open or outcome.status.is_under_way for outcome in outcomes)


def _tell(study: Study, trial: Trial, outcomes: Sequence[Outcome], objectives: Sequence[Objective]) -> None:
    """Tells a study how a trial ended; its values are means over its seeds."""
    if _is_open(outcomes):
        return
    if any(outcome.status is Status.PRUNED for outcome in outcomes):
        study.end(trial, TrialState.PRUNED)
        return
    values = objective_values(objectives, outcomes)
    if all(outcome.status.has_results for outcome in outcomes) and all(map(math.isfinite, values)):
        study.tell(trial, values)
    else:
        study.end(trial, TrialState.FAIL)
