"""Runs a search as a study of Optuna's: trials are asked for in batches, run, and told their values; all on disk."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import math
import random
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, assert_never

import optuna
from optuna.trial import FrozenTrial, TrialState

from embexp.errors import CommandLineError, RunError, plural
from embexp.reports.record import Status
from embexp.reports.searches import SEARCH_FILE
from embexp.specs.running import PrunerKind, SamplerKind, seconds_of
from embexp.specs.tasks import Objective
from embexp.sweeps import progress
from embexp.sweeps.jobs import OTHER_DIRECTORY, Outcome
from embexp.sweeps.search import Search, TrialJobs, objective_values
from embexp.sweeps.settings import storage_rule, storage_url
from embexp.sweeps.space import Choices, Condition, Numbers, Parameter, contains, key_of_name, named, text_of
from embexp.system import files
from embexp.system.printable import masked

Launch = Callable[[Sequence[Sequence[str]], int], Sequence[Sequence[Outcome]]]
"""Runs some trials, the first of which has this number, and returns the outcomes of each: one for each seed."""
_JOB, _SWEEP = "embexp_job", "embexp_sweep"
"""Attributes of a trial: the number of its job, and the sweep that this belongs to, "" in a storage of its own."""
_FORGOTTEN, _NEXT = "embexp_forgotten", "embexp_next"
"""Attributes of a study: numbers of trials that a sweep has forgotten, which can't be removed; and the first job that
none of them has had in an earlier space."""
_OUTSIDE = "embexp_outside"
"""Attribute of a trial that a narrower space does not have: what it was."""
_NEWEST, _COPY = "embexp_newest", "embexp_copy"
"""Attributes of studies: of the first, the name of that with the newest space of a sweep; of the others, the sweep."""
_WORDS, _PARAMETERS, _FIXED = "words", "parameters", "fixed"
OUTSIDE = "outside"
"""State of a trial that a narrower space does not have."""
_OWN_DRAWS, _DRAWS = 8, 200
"""Draws for one trial: how many are the sampler's, before others at random, and how many there are in all."""
_LISTED = 1000
"""Combinations of a space that is gone through one by one."""
FEWEST = 10
"""Trials with results that the importance of a parameter needs."""
_BEST = 5
"""Trials that importances should tell from the others."""


@dataclass(frozen=True)
class Trial:
    """A trial of this sweep.

    Attributes:
        job: number of its job in the sweep.
        settings: text by key of what it chose.
        state: complete, pruned, fail, running, waiting or outside.
        values: of the objectives; None without a result.
    """

    number: int
    job: int
    settings: Mapping[str, str]
    state: str
    values: tuple[float, ...] | None


class Study:
    """The study of one sweep. A storage of the user's may hold trials of other sweeps, too: they inform the sampler.

    Optuna takes no other choices in a study than the first ones. So a search whose space has changed goes on in a new
    study of the same storage, which begins with copies of its trials. The first study tells which one is the newest.

    Attributes:
        ended: why no other trial can be asked for, as a sentence; "" while one can.
    """

    def __init__(self, search: Search, directory: Path, jobs: TrialJobs | None = None) -> None:
        """Creates the study, or continues it. A study that is refused is not changed.

        Raises:
            RunError: the storage can't be used, or holds a study of this name with other objectives.
            CommandLineError: the sweep's directory holds a different search, or one that this does not contain, and the
                user does not agree.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._search, self._space, self._settings = search, search.space, search.settings
        self._directory, self._jobs = directory, jobs or TrialJobs()
        self._sweep = "" if self._settings.storage is None else str(directory)  # whose directory may be moved
        self._rejected: dict[frozenset[tuple[str, str]], str] = {}
        self.ended = ""
        self._read: list[FrozenTrial] | None = None
        url, name = storage_url(self._settings, directory), self._settings.study_name or directory.name
        directions = [objective.direction for objective in search.objectives]
        if rule := storage_rule(self._settings, directory):
            raise RunError(masked(f"hydra.sweeper.storage: {url}: {rule}"))
        with contextlib.ExitStack() as opened:
            try:
                self._storage = optuna.storages.RDBStorage(url)
                opened.callback(self._storage.engine.dispose)
                if self._settings.storage is None and self._settings.study_name is None:
                    name = next(
                        iter(optuna.get_all_study_names(self._storage)), name
                    )  # of the directory that it was begun in
                self._first = self._study = self._opened_study(name)
                if (newest := self._first.user_attrs.get(f"{_NEWEST}:{self._sweep}")) is not None:
                    self._study = self._opened_study(newest)
                found = [direction.name.lower() for direction in self._study.directions]
            except Exception as error:  # of any database and its driver
                line = (str(error).splitlines() or [type(error).__name__])[0]
                raise RunError(masked(f"hydra.sweeper.storage: {url} can't be used: {line}")) from error
            if found != directions:
                raise RunError(
                    f"{masked(url)} holds a study {name!r} with the objectives {', '.join(found)}, but this "
                    f"search has {', '.join(directions)}\n    choose another hydra.sweeper.study_name"
                )
            self._settle()
            self._opened = opened.pop_all()

    def _opened_study(self, name: str) -> optuna.Study:
        return optuna.create_study(
            storage=self._storage,
            study_name=name,
            directions=[objective.direction for objective in self._search.objectives],
            pruner=_PRUNERS[self._settings.pruner](),
            load_if_exists=True,
        )

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the connections to the storage."""
        self._opened.close()

    def trials(self) -> list[Trial]:
        """The trials of this sweep, in the order of their jobs."""
        left_out = self._left_out()
        found = [self._trial(each) for each in self._all() if self._is_own(each) and each.number not in left_out]
        return sorted(found, key=lambda each: each.job)

    def next_job(self) -> int:
        """The number of the next trial's job; those of forgotten trials are not used again."""
        used = [int(trial.user_attrs[_JOB]) + 1 for trial in self._all() if self._is_own(trial)]
        return max([int(self._study.user_attrs.get(f"{_NEXT}:{self._sweep}", 0)), *used])

    def forget(self, jobs: Collection[int]) -> None:
        """Leaves out the trials of some jobs: of the sweep, and of what the sampler knows."""
        key = f"{_FORGOTTEN}:{self._sweep}"
        numbers = [each.number for each in self._all() if self._is_own(each) and each.user_attrs[_JOB] in jobs]
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
        self._read = None

    def _left_out(self) -> set[int]:
        """Numbers of trials that were forgotten, or have another one in their place."""
        attributes = self._study.user_attrs
        found = {number for key, numbers in attributes.items() if key.startswith(_FORGOTTEN) for number in numbers}
        last: dict[tuple[str, int], int] = {}
        for trial in self._all():
            if _JOB in trial.user_attrs:
                place = str(trial.user_attrs.get(_SWEEP)), int(trial.user_attrs[_JOB])
                found |= {last[place]} if place in last else set()
                last[place] = trial.number
        return found

    def _all(self) -> list[FrozenTrial]:
        """All trials of the study, as they were when this process last changed it, or was about to ask."""
        if self._read is None:
            self._read = self._study.get_trials(deepcopy=False)
        return self._read

    def ask(self, job: int) -> Trial | None:
        """A new trial, which no other one repeats and whose settings go together; None if there is none any more.

        It depends on the seed, the number of its job and what the study knows; not on the process.
        """
        self._read = None  # another sweep may have changed it
        while any(each.state is TrialState.WAITING for each in self._all()):  # put there by the storage's owner
            self._study.sampler = self._sampler(job, 0)
            queued = self._study.ask()
            if not self._why_not(self._suggested(queued)):
                queued.set_user_attr(_SWEEP, self._sweep)
                queued.set_user_attr(_JOB, job)
                return self._of_job(job)
            self._study.tell(queued, state=TrialState.FAIL)
            self._read = None
        untried = self._untried()
        if untried is not None and not untried:
            return None
        # Asked for in a copy in memory and stored at once: a search that is killed meanwhile leaves no half of a trial.
        study = self._copied()
        for draw in range(_DRAWS if untried is None else _OWN_DRAWS):
            study.sampler = self._sampler(job, draw)
            if (asked := self._fresh(study)) is not None:
                return self._stored(study, asked, job)
        random.Random(self._seed(job, _DRAWS)).shuffle(untried := untried or [])
        for settings in untried:
            study.enqueue_trial(self._params(settings))
            if (asked := self._fresh(study)) is not None:
                return self._stored(study, asked, job)
        if self._untried() is None:
            self.ended = f"{_DRAWS} draws found no new combination that can run"
        return None

    def _fresh(self, study: optuna.Study) -> optuna.Trial | None:
        """Asks a study in memory; None if what it says is not to be run."""
        asked = study.ask()
        if not self._why_not(self._suggested(asked)):
            return asked
        study.tell(asked, state=TrialState.FAIL)
        return None

    def _stored(self, study: optuna.Study, asked: optuna.Trial, job: int) -> Trial:
        asked.set_user_attr(_SWEEP, self._sweep)
        asked.set_user_attr(_JOB, job)
        self._study.add_trial(study.trials[asked.number])
        return self._of_job(job)

    def _of_job(self, job: int) -> Trial:
        self._read = None
        return next(trial for trial in reversed(self.trials()) if trial.job == job)

    def _suggested(self, asked: optuna.Trial) -> dict[str, str]:
        """The settings that a trial of Optuna's chooses, one after the other."""
        settings: dict[str, str] = {}
        for parameter in self._space.parameters:
            if all(condition.holds(settings) for condition in parameter.when):
                distribution, name = _distribution(parameter), named(parameter)
                match distribution:
                    case optuna.distributions.CategoricalDistribution():
                        settings[parameter.key] = str(asked.suggest_categorical(name, distribution.choices))
                    case optuna.distributions.IntDistribution(low=low, high=high, log=log, step=step):
                        settings[parameter.key] = parameter.text(asked.suggest_int(name, low, high, step=step, log=log))
                    case optuna.distributions.FloatDistribution(low=low, high=high, log=log, step=step):
                        drawn = asked.suggest_float(name, low, high, step=step, log=log)
                        settings[parameter.key] = parameter.text(drawn)
        return settings

    def _why_not(self, settings: Mapping[str, str]) -> str:
        """Why a trial with some settings is not to be run, or ""."""
        known = [trial for trial in self.trials() if trial.state != OUTSIDE]
        if any(trial.settings == settings for trial in known):
            return "it was tried"
        key = frozenset(settings.items())
        if key not in self._rejected:
            others = [self._space.overrides(trial.settings) for trial in known if trial.state == "running"]
            if not (why := self._jobs.rejection(self._space.overrides(settings), others)):
                return ""
            self._rejected[key] = why
        return self._rejected[key]

    def _untried(self) -> list[dict[str, str]] | None:
        """What is left of a space with few combinations; None of one with many. Sets `ended` if that is nothing."""
        if math.isinf(count := self._space.count(_LISTED)):
            return None
        tried = [trial.settings for trial in self.trials() if trial.state != OUTSIDE]
        left = [each for each in self._space.combinations() if each not in tried]
        left = [each for each in left if frozenset(each.items()) not in self._rejected]
        if not left:
            done = f"the {count:,} combinations of its space" if count > 1 else "the only combination of its space"
            self.ended = (
                f"{done} {'are' if count > 1 else 'is'} tried, except those that can't run or that repeat a job"
            )
            if len(tried) >= count:
                self.ended = f"all {done.removeprefix('the ')} are tried" if count > 1 else f"{done} is tried"
        return left

    def _seed(self, job: int, draw: int) -> int:
        again = f"/{draw}" if draw else ""
        return int.from_bytes(hashlib.sha256(f"{self._settings.seed}/{job}{again}".encode()).digest()[:4], "big")

    def _sampler(self, job: int, draw: int) -> optuna.samplers.BaseSampler:
        """The sampler of a draw. After some draws that were not to be run, at random: others would say the same."""
        kind = self._settings.sampler if draw < _OWN_DRAWS else SamplerKind.RANDOM
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            return _sampler(kind, self._seed(job, draw), in_groups=self._space.is_conditional)

    def _params(self, settings: Mapping[str, str]) -> dict[str, Any]:
        """Optuna's values of some settings, by name."""
        return {named(each): _value(each, settings[each.key]) for each in self._space.active(settings)}

    def tell(self, trial: Trial, values: Sequence[float]) -> None:
        """The values of a trial's objectives."""
        self._study.tell(trial.number, list(values))
        self._read = None

    def end(self, trial: Trial, state: TrialState) -> None:
        """A trial has failed, or was pruned; the value of a pruned one is that of the last report."""
        self._study.tell(trial.number, state=state)
        self._read = None

    def report(self, trial: Trial, step: int, value: float) -> bool:
        """Reports an evaluation of a running trial, and returns whether to prune it."""
        self._read = None
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

    def importances(self) -> list[dict[str, float]]:
        """By objective and parameter, its share in what makes trials good, by PED-ANOVA; empty with too few trials.

        A parameter with conditions counts as it matters where it is chosen, if there are enough trials that have it.
        """
        own = [self._frozen(each.number) for each in self.trials() if each.state == "complete"]
        names = [named(each) for each in self._space.parameters]
        names = [name for name in names if sum(name in trial.params for trial in own) >= FEWEST]
        if len(names) < 2:
            return []
        study, found = optuna.create_study(directions=self._study.directions), []
        study.add_trials(own)
        evaluator = optuna.importance.PedAnovaImportanceEvaluator(target_quantile=min(0.5, max(0.1, _BEST / len(own))))
        for place, objective in enumerate(self._search.objectives):
            target = partial(_value_of, place, -1.0 if objective.higher_is_better else 1.0)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that low targets are sought: these are
                shares = optuna.importance.get_param_importances(
                    study, evaluator=evaluator, params=names, target=target
                )
            found.append({name: float(share) for name, share in shares.items()})
        return found

    def _settle(self) -> None:
        """Notes what this sweep searches, or compares it with what it searched before; there may be more trials.

        Raises:
            CommandLineError: that was another search, or one that this does not contain, and the user does not agree.
        """
        parameters = [json.loads(json.dumps(asdict(each))) for each in self._space.parameters]
        described = {
            _PARAMETERS: parameters,
            _FIXED: list(self._space.fixed),
            "objectives": [objective.metric for objective in self._search.objectives],
            "sampler": self._settings.sampler.value,
            "seed": self._settings.seed,
            "pruner": self._settings.pruner.value,
            _WORDS: {_PARAMETERS: [_in_words(each) for each in self._space.parameters]},
        }
        key = f"{_SWEEP}:{self._sweep}"
        before = self._study.user_attrs.get(key)
        if before is None or not self.trials():  # a search without a trial has nothing that another could change
            self._study.set_user_attr(key, described)
            return
        self._check_others(before, described)
        if [before.get(name) for name in (_PARAMETERS, _FIXED)] == [parameters, described[_FIXED]]:
            return
        kept = self._kept(before)
        self._check_narrower(before, described, kept)
        self._continue_in_another(described, kept)

    def _check_others(self, before: Mapping[str, Any], described: Mapping[str, Any]) -> None:
        """Checks that nothing has changed but the space."""
        chosen = {each.key for each in self._space.parameters} | {*_parameters_of(before)}
        shown_before, shown = dict(before), dict(described)
        for each in (shown_before, shown):
            each[_FIXED] = [line for line in each.get(_FIXED, ()) if line.partition("=")[0] not in chosen]
        names = [name for name in described if name not in (_WORDS, _PARAMETERS)]
        if changed := [name for name in names if shown_before.get(name) != shown[name]]:
            lines = (f"    {name}: {_difference(shown_before.get(name), shown[name])}" for name in changed)
            raise CommandLineError(
                "\n".join([f"{self._directory} already holds a different search", *lines, f"    {OTHER_DIRECTORY}"])
            )

    def _kept(self, before: Mapping[str, Any]) -> dict[int, dict[str, str]]:
        """By job, the settings that the trials of an earlier space have in this one; without those that it lacks."""
        fixed, now = (
            dict(line.split("=", 1) for line in lines if "=" in line)
            for lines in (before.get(_FIXED, ()), self._space.fixed)
        )
        found: dict[int, dict[str, str]] = {}
        for trial in self.trials():
            if any(
                Choices(key, (now[key],)).admitted(text) is None for key, text in trial.settings.items() if key in now
            ):
                continue
            others = dict(fixed)
            for key in {each.key for each in self._space.parameters} - {*trial.settings} - {*fixed}:
                if (value := self._jobs.value(trial.job, key)) is not None:
                    others[key] = value
            settings = self._space.fitted(trial.settings, others)
            if settings is not None:
                found[trial.job] = settings
        same = self._jobs.same({job: self._space.overrides(settings) for job, settings in found.items()})
        return {job: settings for job, settings in found.items() if job in same}

    def _check_narrower(
        self, before: Mapping[str, Any], described: Mapping[str, Any], kept: Mapping[int, object]
    ) -> None:
        """Raises CommandLineError if this space lacks something that the earlier one had, unless the user agrees."""
        known = [trial for trial in self.trials() if trial.state != OUTSIDE and self._jobs.has(trial.job)]
        lost = [trial for trial in known if trial.job not in kept]
        lacking = [
            each
            for of_key in _parameters_of(before).values()
            for each in of_key
            if not any(contains(own, each) for own in self._space.parameters if own.key == each.key)
        ]
        if not (lost or lacking):
            return
        words = [each.get(_WORDS, {}).get(_PARAMETERS, each[_PARAMETERS]) for each in (before, described)]
        lines = [
            f"{self._directory} already holds a different search, which this one does not contain",
            f"    parameters: {_difference(*words)}",
            f"    {len(lost)} of its {plural(len(known), 'trial')} would no longer count",
        ]
        if not self._jobs.agrees("\n".join([*lines, "    Go on with this one?"])):
            remedy = f"to continue with this one, add --narrow; otherwise, {OTHER_DIRECTORY}"
            raise CommandLineError("\n".join([*lines, f"    {remedy}"]))

    def _continue_in_another(self, described: Mapping[str, Any], kept: Mapping[int, Mapping[str, str]]) -> None:
        """Copies the trials into a new study with this space, which takes the place of the earlier one at once."""
        names, number, key = {*optuna.get_all_study_names(self._storage)}, 2, f"{_SWEEP}:{self._sweep}"
        while (name := f"{self._first.study_name}_{number}") in names:
            attributes = optuna.load_study(study_name=name, storage=self._storage).user_attrs
            if attributes.get(_COPY) == self._sweep and key not in attributes:
                optuna.delete_study(study_name=name, storage=self._storage)  # a copy that was killed half-way
                break
            number += 1
        copy = self._opened_study(name)
        copy.set_user_attr(_COPY, self._sweep)
        copy.add_trials(self._copies(kept))
        copy.set_user_attr(f"{_NEXT}:{self._sweep}", self._after_forgotten())
        copy.set_user_attr(key, dict(described))
        self._first.set_user_attr(f"{_NEWEST}:{self._sweep}", name)
        self._study, self._read = copy, None
        self._jobs.leave_out([trial.job for trial in self.trials() if trial.state == OUTSIDE])

    def _after_forgotten(self) -> int:
        """The first job that no forgotten trial of this sweep has had."""
        forgotten = self._study.user_attrs.get(f"{_FORGOTTEN}:{self._sweep}", ())
        used = [int(each.user_attrs[_JOB]) + 1 for each in self._all() if each.number in forgotten]
        return max([int(self._study.user_attrs.get(f"{_NEXT}:{self._sweep}", 0)), *used])

    def _copies(self, kept: Mapping[int, Mapping[str, str]]) -> Iterator[FrozenTrial]:
        """The trials as those of this space: what it lacks without parameters, and what was not begun not at all."""
        left_out = self._left_out()
        for found in self._all():
            if found.number in left_out:
                continue
            was = found.user_attrs.get(_OUTSIDE, {})
            if not self._is_own(found):
                settings: Mapping[str, str] | None = self._space.fitted(_settings(found), {})
                if found.state is TrialState.WAITING:
                    yield _copy(found, found.state, {}, {}, None)
                    continue
                if settings is None or not found.state.is_finished():
                    continue
            else:
                own = self._trial(found)
                if not self._jobs.has(own.job):
                    continue
                settings = kept.get(own.job)
                if settings is None:
                    was = was or {"settings": dict(own.settings), "state": own.state, "values": own.values}
                    yield _copy(found, TrialState.FAIL, {}, {}, None, {_OUTSIDE: was})
                    continue
            state = TrialState[was["state"].upper()] if was else found.state
            distributions = {named(each): _distribution(each) for each in self._space.active(settings)}
            yield _copy(found, state, self._params(settings), distributions, was.get("values", found.values))

    def _frozen(self, number: int) -> FrozenTrial:
        return next(trial for trial in self._all() if trial.number == number)

    def _is_own(self, trial: FrozenTrial) -> bool:
        return trial.user_attrs.get(_SWEEP) == self._sweep and _JOB in trial.user_attrs

    def _trial(self, found: FrozenTrial) -> Trial:
        if (was := found.user_attrs.get(_OUTSIDE)) is not None:
            return Trial(found.number, found.user_attrs[_JOB], was["settings"], OUTSIDE, None)
        values = None if found.values is None else tuple(found.values)
        return Trial(found.number, found.user_attrs[_JOB], _settings(found), found.state.name.lower(), values)

    def _copied(self) -> optuna.Study:
        """The study with all its trials, in memory."""
        known = self._study
        copied = optuna.create_study(
            study_name=known.study_name, directions=known.directions, sampler=known.sampler, pruner=known.pruner
        )
        left_out = self._left_out()
        copied.add_trials([trial for trial in self._all() if trial.number not in left_out])
        return copied


def _difference(before: Any, now: Any) -> str:
    """What a search has there that another has not; of lists, only the items that differ."""
    if isinstance(before, list) and isinstance(now, list) and sorted(before) != sorted(now):
        before, now = [each for each in before if each not in now], [each for each in now if each not in before]
    texts = ["; ".join(map(str, each)) or "nothing" if isinstance(each, list) else str(each) for each in (before, now)]
    return f"it has {texts[0]}, but this command has {texts[1]}"


def _value_of(place: int, sign: float, trial: FrozenTrial) -> float:
    return sign * float(trial.values[place])


def _in_words(parameter: Parameter) -> str:
    return parameter.described + (f" ({', '.join(map(str, parameter.when))})" if parameter.when else "")


def _parameters_of(described: Mapping[str, Any]) -> dict[str, list[Parameter]]:
    """The parameters of a space that a study has noted, by key; none of a study of embexp 0.1.0."""
    found: dict[str, list[Parameter]] = {}
    for content in described.get(_PARAMETERS, ()):
        if isinstance(content, dict):
            when = tuple(Condition(each["key"], tuple(each["texts"])) for each in content.get("when", ()))
            values = {**content, "when": when}
            parameter = (
                Choices(**values | {"texts": tuple(values["texts"])}) if "texts" in values else Numbers(**values)
            )
            found.setdefault(parameter.key, []).append(parameter)
    return found


def _copy(
    found: FrozenTrial,
    state: TrialState,
    params: dict[str, Any],
    distributions: dict[str, optuna.distributions.BaseDistribution],
    values: Sequence[float] | None,
    more: Mapping[str, Any] | None = None,
) -> FrozenTrial:
    """A trial with another space."""
    attributes = {key: value for key, value in found.user_attrs.items() if key != _OUTSIDE} | dict(more or {})
    copied = optuna.trial.create_trial(
        state=state,
        values=values,
        params=params,
        distributions=distributions,
        user_attrs=attributes,
        system_attrs=found.system_attrs,
        intermediate_values=found.intermediate_values,
    )
    copied.datetime_start = found.datetime_start or copied.datetime_start
    completed = found.datetime_complete or copied.datetime_complete
    copied.datetime_complete = completed if state.is_finished() else None
    return copied


def _settings(found: FrozenTrial) -> dict[str, str]:
    """The settings of a trial of Optuna's, whatever its space was."""
    return {key_of_name(name): _text(value, found.distributions[name]) for name, value in found.params.items()}


def _text(value: Any, distribution: optuna.distributions.BaseDistribution) -> str:
    match distribution:
        case optuna.distributions.IntDistribution():
            return text_of(value, whole=True, stepped=True)
        case optuna.distributions.FloatDistribution(step=step):
            return text_of(value, whole=False, stepped=step is not None)
        case _:
            return str(value)


def _value(parameter: Parameter, text: str) -> Any:
    if isinstance(parameter, Choices):
        return text
    return int(text) if parameter.whole else float(text)


def _distribution(parameter: Parameter) -> optuna.distributions.BaseDistribution:
    if isinstance(parameter, Choices):
        return optuna.distributions.CategoricalDistribution(parameter.texts)
    if parameter.whole:
        step = int(parameter.step or 1)
        return optuna.distributions.IntDistribution(
            int(parameter.low), int(parameter.high), log=parameter.log, step=step
        )
    return optuna.distributions.FloatDistribution(parameter.low, parameter.high, log=parameter.log, step=parameter.step)


def _sampler(kind: SamplerKind, seed: int, *, in_groups: bool) -> optuna.samplers.BaseSampler:
    """A sampler.

    Args:
        in_groups: whether parameters that are chosen under the same conditions are drawn together.
    """
    match kind:
        case SamplerKind.TPE:
            # Without conditions, each by itself: `python -m bench.search_conditions` finds an optimum several times as
            # fast, as all together stay with a bad choice. A constant liar: a batch's jobs don't repeat each other.
            return optuna.samplers.TPESampler(seed=seed, constant_liar=True, multivariate=in_groups, group=in_groups)
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


def run(
    search: Search,
    directory: Path,
    launch: Launch,
    told: Told = lambda numbers: {},
    jobs: TrialJobs | None = None,
) -> list[Trial]:
    """Runs the trials of a search that are missing.

    A batch is asked for as a whole, then run, then told as a whole. With one process after the other, a search that was
    killed at any time therefore asks for the trials that it would have asked for without.

    Args:
        told: called first. Jobs that were run again since, as their folders were gone, may have other values.

    Returns:
        The best trial, or the best ones of several objectives.

    Raises:
        RunError: the storage of the study can't be used.
        CommandLineError: the directory already holds a different search.
    """
    jobs = jobs or TrialJobs()
    with Study(search, directory, jobs) as study:
        _refresh(search, study, told([each.job for each in study.trials() if each.state not in ("running", OUTSIDE)]))
        while not (ended := _over_budget(search, study, jobs)) and (batch := _next_batch(search, study)):
            with _pruned(search, study, directory, batch):
                outcomes = {trial.job: each for trial, each in _launched(search, batch, launch)}
            for trial in batch:
                _tell(study, trial, outcomes[trial.job], search.objectives)
            _write(search, study, directory, jobs)
            if any(_is_open(each) for each in outcomes.values()):
                break  # interrupted
        sentence = ended or study.ended
        _write(search, study, directory, jobs, ended=sentence, importances=study.importances())
        return study.best()


def forget(search: Search, directory: Path, trials: Collection[int], jobs: TrialJobs) -> int:
    """Takes some trials, by their numbers, out of a search; returns how many of this sweep its sampler still knows."""
    with Study(search, directory, jobs) as study:
        study.forget(trials)
        _write(search, study, directory, jobs, importances=study.importances())
        return len(study.trials())


def refresh(search: Search, directory: Path, outcomes: Mapping[int, Sequence[Outcome]], jobs: TrialJobs) -> list[int]:
    """Tells a search the values of trials whose jobs were run again; returns the jobs of those that have others now."""
    with Study(search, directory, jobs) as study:
        changed = _refresh(search, study, outcomes)
        _write(search, study, directory, jobs, importances=study.importances())
        return changed


def _refresh(search: Search, study: Study, outcomes: Mapping[int, Sequence[Outcome]]) -> list[int]:
    changed = []
    for trial in study.trials():
        ended = outcomes.get(trial.job, ())
        if trial.state in ("running", OUTSIDE) or not ended or not all(each.status.has_results for each in ended):
            continue
        values = objective_values(search.objectives, ended)
        if all(map(math.isfinite, values)) and (trial.state != "complete" or tuple(values) != trial.values):
            study.correct(trial, values)
            changed.append(trial.job)
    return changed


def _over_budget(search: Search, study: Study, jobs: TrialJobs) -> str:
    """Why a search ends before it has all its trials; "" if it goes on, or has them."""
    budget = search.settings.budget
    if budget is None or _left(search, study) == 0 or jobs.seconds()[0] < seconds_of(budget):
        return ""
    return f"its budget of {budget} is spent; to continue, set a larger hydra.sweeper.budget"


def _left(search: Search, study: Study) -> int:
    """How many trials are not done."""
    done = sum(each.state not in (OUTSIDE, "running") for each in study.trials())
    return max(0, search.trials - done)


def described(search: Search, trial: Trial) -> str:
    """A trial in one line: its job, its values and its settings."""
    values = [
        f"validation {objective.metric} {v:.4f}"
        for objective, v in zip(search.objectives, trial.values or (), strict=True)
    ]
    settings = [f"{key}={text}" for key, text in trial.settings.items()]
    return "   ".join([f"job {trial.job * search.seeds}", *values, " ".join(settings)])


def _next_batch(search: Search, study: Study) -> list[Trial]:
    """The next trials: those of a batch that was not told, completed if it was only asked for in part."""
    known = study.trials()
    batch = [each for each in known if each.state == "running"]
    outside = sum(each.state == OUTSIDE for each in known)
    count, job = len(known) - outside, study.next_job()
    begun = batch or count % search.at_once
    end = math.ceil(count / search.at_once) * search.at_once if begun else count + search.at_once
    for number in range(count, min(end, search.trials)):
        if (asked := study.ask(job + number - count)) is None:
            break
        batch.append(asked)
    return batch


def _launched(search: Search, batch: Sequence[Trial], launch: Launch) -> Iterator[tuple[Trial, Sequence[Outcome]]]:
    """Runs a batch; a launcher numbers its jobs without gaps."""
    for _, group in itertools.groupby(enumerate(batch), key=lambda pair: pair[1].job - pair[0]):
        trials = [trial for _, trial in group]
        settings = [search.space.overrides(each.settings) for each in trials]
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


def _write(
    search: Search,
    study: Study,
    directory: Path,
    jobs: TrialJobs,
    *,
    ended: str = "",
    importances: Sequence[Mapping[str, float]] = (),
) -> None:
    """Writes search.json: the history of the search, with the best so far, and where it went."""
    choose = max if search.objectives[0].higher_is_better else min
    best: float | None = None
    history = []
    spent, seconds = jobs.seconds()
    for each in study.trials():
        if len(search.objectives) == 1 and each.state == "complete" and each.values:
            best = each.values[0] if best is None else choose(best, each.values[0])
        values = None if each.values is None else list(each.values)
        trial = {"trial": each.number, "job": each.job, "state": each.state, "params": dict(each.settings)}
        history.append(trial | {"values": values, "best_so_far": best, "seconds": seconds.get(each.job)})
    known = {name for each in importances for name in each}
    content = {
        "objectives": [
            {"metric": f"validation {objective.metric}", "direction": objective.direction}
            for objective in search.objectives
        ],
        "sampler": search.settings.sampler.value,
        "pruner": search.settings.pruner.value,
        "seeds": search.seeds,
        "n_trials": search.trials,
        "left_out": _left(search, study),
        "budget": search.settings.budget,
        "seconds": round(spent, 3),
        "ended": ended,
        "best": [each.job for each in study.best()],
        "parameters": [_parameter_json(each) for each in search.space.parameters],
        "importance": {
            "evaluator": "PED-ANOVA",
            "fewest_trials": FEWEST,
            "by_objective": list(importances),
            "without": [named(each) for each in search.space.parameters if importances and named(each) not in known],
        },
        "trials": history,
    }
    files.write_text(directory / SEARCH_FILE, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _parameter_json(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": named(parameter),
        "key": parameter.key,
        "log": isinstance(parameter, Numbers) and parameter.log,
        "choices": list(parameter.texts) if isinstance(parameter, Choices) else None,
        "when": {condition.key: list(condition.texts) for condition in parameter.when},
    }


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
