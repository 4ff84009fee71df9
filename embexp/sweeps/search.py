"""A search: trials in batches of jobs, until there are as many as asked for. A search that was killed goes on."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.reports.record import Status
from embexp.sweeps import objective, pruning
from embexp.sweeps.outcomes import Outcome
from embexp.sweeps.search_settings import PrunerKind, SearchSettings
from embexp.sweeps.search_space import Space
from embexp.system import files
from embexp.training.metric_names import Objective

if TYPE_CHECKING:
    from embexp.sweeps.study import Study, Trial

NAME = "search.json"


Launch = Callable[[Sequence[Sequence[str]], int], Sequence[Sequence[Outcome]]]
"""Runs some trials, the first of which has this number, and returns the outcomes of each: one for each seed."""
Told = Callable[[Sequence[int]], object]
"""Takes note of trials that an earlier process has run, by their numbers."""


@dataclass(frozen=True)
class Search:
    """What is searched, and how.

    Attributes:
        space: what it chooses.
        objectives: what it makes better.
        settings: of the search.
        at_once: trials of a batch.
        seeds: jobs of a trial.
    """

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
            directory: of the sweep.
            launch: runs trials.
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
        files.write_text(directory / NAME, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


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
    values = objective.values(objectives, outcomes)
    if all(each.status.has_results for each in outcomes) and all(map(math.isfinite, values)):
        study.tell(trial, values)
    else:
        study.tell_failed(trial)
