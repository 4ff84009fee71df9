"""Runs jobs of a ledger, and reports their results."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from embexp.reports.finish import write_reports
from embexp.reports.record import Status
from embexp.specs.sweeping import Launching
from embexp.specs.tracking import MLflow
from embexp.sweeps import cancelling, outcomes
from embexp.sweeps import jobs as recorded
from embexp.sweeps.engines import Engine
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.outcomes import Outcome
from embexp.sweeps.processes import Command, Starter
from embexp.sweeps.scheduler import Scheduler
from embexp.sweeps.shown import Shown
from embexp.sweeps.watching import Watch
from embexp.system import interruption
from embexp.tracking import session


class Runner:
    """Runs jobs of a ledger. The process that has one holds the lock of the sweep.

    Attributes:
        ledger: of the sweep.
        shown: shows progress.
    """

    def __init__(
        self,
        ledger: Ledger,
        launching: Launching,
        console: Console,
        *,
        folder: Path | None = None,
        command: Command | None = None,
        engine: Engine | None = None,
    ) -> None:
        """Settles what an earlier process left behind, and follows what still runs, or waits in a queue.

        Args:
            ledger: of the sweep.
            launching: how jobs are run.
            console: shows progress and results.
            folder: working directory of the jobs; None: that of this process.
            command: runs a job; None: jobs are forked where their devices allow that.
            engine: the launcher of others that runs the jobs; None: this process does.
        """
        self._engine = engine
        self.ledger = ledger
        self.shown = Shown(console, ledger.directory, self._own)
        self._starter = Starter(ledger.directory, folder=folder, command=command)
        self._folder = folder
        self._watch = Watch(ledger.directory, self.shown)
        self._scheduler = Scheduler(ledger, launching, self._starter, self.shown, self._watch, self._ended)
        self._outcomes: dict[int, Outcome] = {}
        self._varying: list[str] | None = None
        self._stores: set[MLflow] = set()
        (ledger.directory / recorded.CANCEL).unlink(missing_ok=True)
        self._watch.follow(job for job in ledger.jobs() if job.state.is_under_way and job.same_as is None)
        self._watch.look(ledger)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._starter.close()

    def run(self, numbers: Sequence[int]) -> None:
        """Runs jobs until all have ended or the sweep is interrupted.

        Args:
            numbers: of the jobs.
        """
        self._varying = outcomes.varying([each.settings for each in self.ledger.jobs()])
        self._outcomes = {}
        self._open_stores(numbers)
        if followed := [job for job in self._watch.under_way if job.number in numbers]:
            self.shown.say(
                f"{cancelling.described(followed)} already: this waits for {'it' if len(followed) == 1 else 'them'}"
            )
        if self._engine is None:
            self._scheduler.run(numbers)
            halted = self._scheduler.halted
        else:
            halted = self._run_elsewhere(self._engine, numbers)
        if halted:
            for number in numbers:
                if (job := self.ledger.job(number)).state is Status.PLANNED:
                    self.ledger.leave(number, job.state, halted)
                    self._outcomes.pop(number, None)

    def _run_elsewhere(self, engine: Engine, numbers: Sequence[int]) -> str:
        """Has the launcher of others run jobs; returns why not all were run, or ""."""
        with self.shown.live():
            try:
                return engine.run(self.ledger, numbers, self._ended, watch=self._watch, shown=self.shown)
            except KeyboardInterrupt:
                return "the sweep was interrupted"

    def _open_stores(self, numbers: Sequence[int]) -> None:
        """Opens the stores of MLflow runs before jobs, of several machines perhaps, open a new one at once."""
        for number in numbers:
            settings = json.loads(self.ledger.job(number).spec).get("tracking", {})
            if settings.get("kind") == "mlflow" and (store := MLflow.model_validate(settings)) not in self._stores:
                self._stores.add(store)
                with contextlib.chdir(self._folder or "."):
                    session.open_store(store)

    def outcomes(self) -> list[Outcome]:
        """The outcomes of all jobs so far, by number."""
        for job in self.ledger.jobs() if not self._outcomes else ():
            self._outcomes[job.number] = recorded.outcome(self.ledger.directory, job)
        return list(self._outcomes.values())

    def outcome(self, number: int) -> Outcome:
        """The outcome of one job."""
        return recorded.outcome(self.ledger.directory, self.ledger.job(number))

    def finish(self) -> bool:
        """Writes and prints the results; returns whether every job that was not skipped ended with some."""
        from embexp.runs import table_maps

        self._outcomes = {}
        with interruption.finished_first():
            write_reports(self.ledger.directory, self.shown.console, table_maps.of_best)
        return all(each.status.is_settled for each in self.outcomes())

    def _ended(self, outcome: Outcome) -> None:
        self.outcomes()
        for number, each in self._outcomes.items():
            if outcome.number in (number, each.same_as):
                self._outcomes[number] = self.outcome(number)

    def _own(self, job: LedgerJob) -> str:
        """The overrides that distinguish a job from the others."""
        keys = self._varying or list(job.settings)
        return " ".join(f"{key}={job.settings[key]}" for key in keys if key in job.settings)
