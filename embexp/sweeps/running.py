"""Runs the jobs of a sweep, several at once, to the end of all of them, and reports their results."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections import Counter, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from embexp.reports import tracking
from embexp.reports.jobs import TABLES_NOTED, changed_tables, in_use, table_digests
from embexp.reports.record import Status
from embexp.reports.report import write_reports
from embexp.specs.running import Launching
from embexp.specs.strategies import Strategy
from embexp.specs.tracking import MLflow
from embexp.sweeps import jobs, planning, processes, watching
from embexp.sweeps.engines import Engine
from embexp.sweeps.jobs import Outcome
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.processes import Command, Forked, Fresh, Starter
from embexp.sweeps.progress import Shown
from embexp.sweeps.watching import Watch
from embexp.system import interruption

_INTERVAL = 0.05
_LOOK_EVERY = 0.2
"""Seconds between two looks at jobs that other processes run."""
_GRACE = 60.0
"""Seconds that a job has to save its state after its time limit."""
_INTERRUPTED = "the sweep was interrupted"


@dataclass
class _Running:
    """A job that runs in a process of this one's.

    Attributes:
        gpus: that it has for itself.
        limit: when its time is over, on the monotonic clock; None: never.
        reason: why it was ended, or "".
        killed: whether the user has had it killed, or will if it does not end within its limit.
    """

    job: LedgerJob
    process: Fresh | Forked
    gpus: Sequence[str]
    limit: float | None
    reason: str = ""
    killed: bool = False


class Runner:
    """Runs jobs of a ledger, each in a process of its own on this machine, or by a launcher of others.

    The process that has a runner holds the lock of the sweep.
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
        """Changes nothing yet.

        Args:
            launching: how many at once, time limit, retries.
            folder, command: see `Starter`.
            engine: the launcher of others that runs the jobs; None: this process does.
        """
        self.ledger = ledger
        self.shown = Shown(console, ledger.directory, self._own)
        self._launching, self._engine, self._folder, self._sweep = launching, engine, folder, ledger.directory
        self._starter = Starter(ledger.directory, folder=folder, command=command)
        self._watch = Watch(ledger.directory, self.shown)
        self._varying: list[str] | None = None
        self._stores: set[MLflow] = set()
        self._halted = ""
        self._next_look = 0.0
        self._cancelled: float | None = None
        self._attempts: Counter[int] = Counter()
        self._errors: Counter[str] = Counter()
        self._running: list[_Running] = []
        self._free = list(processes.visible_gpus())

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._starter.close()

    def begin(self) -> None:
        """Settles what an earlier process left behind, and follows what still runs, or waits in a queue.

        Takes back an earlier `embexp sweep cancel`, and plans again the jobs whose results are not on disk any more. To
        be called once nothing can refuse the sweep any more.
        """
        self._watch.follow(job for job in self.ledger.jobs() if job.state.is_under_way and job.same_as is None)
        self._watch.look(self.ledger)
        (self._sweep / jobs.CANCEL).unlink(missing_ok=True)
        for name in changed_tables(self._sweep):
            self.shown.warn(
                f"{self._sweep / name} was changed or removed after the sweep wrote it, so it is written again"
            )
        self.ledger.add([], {TABLES_NOTED: {}})
        for job in self.ledger.jobs():
            if reason := jobs.loss(self._sweep, job):
                self.ledger.reopen(job.number)
                self.shown.say(f"job {job.number} runs again: {reason}")

    def run(self, numbers: Sequence[int]) -> None:
        """Runs jobs until all have ended or the sweep is interrupted; those that were not started stay planned.

        Jobs that other processes run are started here only if they end without a result.
        """
        self._varying = planning.varying([each.settings for each in self.ledger.jobs()])
        self._open_stores(numbers)
        if followed := [job for job in self._watch.under_way if job.number in numbers]:
            them = "it" if len(followed) == 1 else "them"
            self.shown.say(f"{watching.described(followed)} already: this waits for {them}")
        if self._engine is None:
            self._run_here(numbers)
        else:
            with self.shown.live():
                try:
                    self._halted = self._engine.run(self.ledger, numbers, watch=self._watch)
                except KeyboardInterrupt:
                    self._halted = _INTERRUPTED
        for number in numbers if self._halted else ():
            if (job := self.ledger.job(number)).state is Status.PLANNED:
                self.ledger.leave(number, job.state, self._halted)

    def _open_stores(self, numbers: Sequence[int]) -> None:
        """Opens the stores of MLflow runs before jobs, of several machines perhaps, open a new one at once."""
        for number in numbers:
            settings = json.loads(self.ledger.job(number).spec).get("tracking", {})
            if settings.get("kind") == "mlflow" and (store := MLflow.model_validate(settings)) not in self._stores:
                self._stores.add(store)
                with contextlib.chdir(self._folder or "."):
                    tracking.open_store(store)

    def outcome(self, number: int) -> Outcome:
        """The outcome of one job."""
        return jobs.outcome(self.ledger.directory, self.ledger.job(number))

    def finish(self) -> bool:
        """Writes and prints the results; returns whether every job that was not skipped ended with some."""
        from embexp.runs import table_maps

        with interruption.finished_first():
            self.ledger.add([], {TABLES_NOTED: {}})
            write_reports(self._sweep, self.shown.console, table_maps.of_best)
            self.ledger.add([], {TABLES_NOTED: table_digests(self._sweep)})
        return all(job.state.is_settled for job in self.ledger.jobs())

    def _own(self, job: LedgerJob) -> str:
        """The overrides that distinguish a job from the others."""
        keys = self._varying or list(job.settings)
        return " ".join(f"{key}={job.settings[key]}" for key in keys if key in job.settings)

    def _run_here(self, numbers: Sequence[int]) -> None:
        waiting = deque(number for number in numbers if number not in self._watch)
        strategies = {number: self.ledger.job(number).checked_spec.strategy for number in numbers}
        at_once = processes.jobs_at_once(self._launching, strategies.values(), self._free)
        with interruption.collected_signals() as signals, self.shown.live():
            try:
                self._loop(waiting, strategies, at_once, signals)
            except BaseException:
                self._signal_all(signal.SIGKILL)
                raise

    def _loop(
        self, waiting: deque[int], strategies: Mapping[int, Strategy], at_once: int, signals: Sequence[int]
    ) -> None:
        heard = 0
        while self._running or (waiting and not self._halted) or (self._follows(strategies) and not signals):
            while waiting and not self._halted and not signals and len(self._running) < at_once:
                gpus = self._own_gpus(strategies[waiting[0]], at_once)
                if gpus is None:
                    break
                number = waiting.popleft()
                if in_use(jobs.job_directory(self._sweep, self.ledger.job(number))):
                    self._free += gpus
                    self._follow(number)
                else:
                    self._start(number, strategies[number], gpus)
            for each in [each for each in self._running if each.process.exit_status() is not None]:
                self._running.remove(each)
                self._free += each.gpus
                if self._settle(each):
                    waiting.appendleft(each.job.number)
            if len(signals) > heard:
                heard = len(signals)
                self._interrupt(heard)
            self._end_late()
            if time.monotonic() > self._next_look:
                self._next_look = time.monotonic() + _LOOK_EVERY
                if jobs.is_cancelled(self._sweep):
                    self._cancel()
                waiting.extend(self._watch.look_again(self.ledger))
            self.shown.update([*(each.job for each in self._running), *self._watch.under_way])
            time.sleep(_INTERVAL)

    def _follows(self, numbers: Collection[int]) -> bool:
        """Whether other processes run some of the jobs; of a sweep that is cancelled, they have some time to end."""
        is_late = self._cancelled is not None and time.monotonic() - self._cancelled > _GRACE
        return not is_late and any(job.number in numbers for job in self._watch.under_way)

    def _follow(self, number: int) -> None:
        """Follows a job in whose folder another process works."""
        self.ledger.leave(number, Status.RUNNING)
        self._watch.follow([self.ledger.job(number)])
        self.shown.say(f"job {number} is run by another process: this waits for it")

    def _cancel(self) -> None:
        """Has all running jobs save their state and end, here and elsewhere, and starts no others."""
        if not self._halted:
            self._halted, self._cancelled = "the sweep was cancelled", time.monotonic()
            self._signal_all(signal.SIGINT)
            for each in self._running:
                each.limit, each.killed = time.monotonic() + _GRACE, True
        self._watch.cancel()

    def _own_gpus(self, strategy: Strategy, at_once: int) -> list[str] | None:
        """GPUs for a job; none if it needs none of its own, None if it has to wait for them."""
        needed = min(processes.gpus_of(strategy), len(processes.visible_gpus()))
        if at_once == 1 or not needed:
            return []
        if len(self._free) < needed:
            return None
        taken, self._free = self._free[:needed], self._free[needed:]
        return taken

    def _start(self, number: int, strategy: Strategy, gpus: Sequence[str]) -> None:
        self.ledger.begin(number, time.time())
        job = self.ledger.job(number)
        log = jobs.made_directory(self._sweep, job) / "run.log"
        process = self._starter.start(number, strategy=strategy, log=log, gpus=gpus)
        minutes = self._launching.timeout_minutes
        limit = None if minutes is None else time.monotonic() + 60 * minutes
        self._running.append(_Running(job, process, gpus, limit))
        self._attempts[number] += 1
        self.shown.started(job)

    def _settle(self, each: _Running) -> bool:
        """Notes how a job ended; returns whether it is to be tried again."""
        number, status = each.job.number, each.process.exit_status() or 0
        if status == jobs.BUSY:
            self.ledger.end(number, Status.RUNNING, time.time())
            self._follow(number)
            return False
        if each.killed and status == -signal.SIGKILL:
            status = jobs.INTERRUPTED
        outcome = jobs.settle(self.ledger, number, status, reason=each.reason)
        if outcome.status is Status.FAILED:
            directory = jobs.job_directory(self._sweep, each.job)
            crashed = not each.reason and jobs.is_crash(directory, status)
            retries = max(self._launching.retries, processes.restarts_of(each.job.checked_spec.strategy))
            if crashed and self._attempts[number] <= retries and not self._halted:
                self.shown.retried(outcome, self._attempts[number] + 1, retries + 1)
                return True
            self._errors[outcome.reason.replace(str(directory), "DIR")] += 1
            repeated, most = max(self._errors.values()), self._launching.stop_after
            if most is not None and repeated >= most and not self._halted:
                self._halted = f"{repeated} jobs failed with the same error (hydra.launcher.stop_after)"
                self.shown.say(f"{self._halted}: no others are started")
        self.shown.ended(outcome)
        return False

    def _interrupt(self, times: int) -> None:
        self._halted = _INTERRUPTED
        if times > 1:
            for each in self._running:
                each.killed = True
            self._signal_all(signal.SIGKILL)
            return
        self._signal_all(signal.SIGINT)
        if self._running:
            count = len(self._running)
            what, them = ("the running job", "it") if count == 1 else (f"the {count} running jobs", "them")
            self.shown.warn(f"ending {what}, with a checkpoint; press Ctrl-C again to kill {them}")

    def _signal_all(self, number: int) -> None:
        for each in self._running:
            each.process.signal(number)

    def _end_late(self) -> None:
        """Has jobs save their state and end when their time is over, and kills those that do not."""
        now = time.monotonic()
        for each in self._running:
            if each.limit is None or now <= each.limit:
                continue
            if each.killed:
                each.process.signal(signal.SIGKILL)
                continue
            each.process.signal(signal.SIGKILL if each.reason else signal.SIGINT)
            minutes = self._launching.timeout_minutes
            each.reason = f"it took longer than hydra.launcher.timeout_minutes={minutes:g}"
            each.limit = now + _GRACE
