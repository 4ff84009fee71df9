"""Runs jobs of a ledger, and reports their results."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from embexp.reports.finish import write_reports
from embexp.reports.record import Status
from embexp.specs.sweeping import Launching
from embexp.sweeps import jobs as recorded
from embexp.sweeps import outcomes
from embexp.sweeps.engines import Engine
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.outcomes import Outcome
from embexp.sweeps.processes import Command, Starter
from embexp.sweeps.scheduler import Scheduler
from embexp.sweeps.shown import Shown
from embexp.system import interruption


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
        """Settles what an earlier process left behind.

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
        self._scheduler = Scheduler(ledger, launching, self._starter, self.shown, self._ended)
        self._outcomes: dict[int, Outcome] = {}
        self._varying: list[str] | None = None
        for job in ledger.jobs():
            if job.state is Status.RUNNING and job.same_as is None:
                _left(ledger, job)

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._starter.close()

    def run(self, numbers: Sequence[int]) -> None:
        """Runs jobs until all have ended or the sweep is interrupted.

        Args:
            numbers: of the jobs.
        """
        self._varying = None
        self._outcomes = {}
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
        """Passes jobs to the launcher of others; returns why not all were started, or ""."""
        self.shown.say(f"{len(numbers)} jobs go to hydra/launcher={engine.name}")

        def ended(outcome: Outcome) -> None:
            self.shown.ended(outcome)
            self._ended(outcome)

        try:
            engine.run(self.ledger, numbers, ended)
        except KeyboardInterrupt:
            return "the sweep was interrupted"
        return ""

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
        if self._varying is None:
            self._varying = outcomes.varying([each.settings for each in self.ledger.jobs()])
        keys = self._varying or list(job.settings)
        return " ".join(f"{key}={job.settings[key]}" for key in keys if key in job.settings)


def _left(ledger: Ledger, job: LedgerJob) -> None:
    """Settles a job whose process is gone, as it was killed together with its sweep."""
    directory = recorded.job_directory(ledger.directory, job)
    status, _ = outcomes.ending(directory, None)
    if status.has_results:
        ended = (directory / "summary.json").stat().st_mtime
        ledger.end(job.number, status, ended, run_id=outcomes.read_summary(directory).get("run_id"))
    else:
        ledger.end(job.number, Status.INTERRUPTED, time.time(), reason="it was killed together with the sweep")
