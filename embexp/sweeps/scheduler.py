"""Runs the jobs of a sweep, several at once, each in its own process, to the end of all of them."""

from __future__ import annotations

import signal
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from embexp.reports.record import Status
from embexp.specs.run import RunSpec
from embexp.specs.sweeping import Launching
from embexp.sweeps import failures, jobs, shares
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.outcomes import Outcome
from embexp.sweeps.processes import Process, Starter
from embexp.sweeps.shown import Shown
from embexp.system import interruption

_INTERVAL = 0.05
_GRACE = 60.0
"""Seconds that a job has to save its state after its time limit."""


@dataclass
class _Running:
    """A job that runs.

    Attributes:
        job: of the ledger.
        process: its process.
        gpus: that it has for itself.
        limit: when its time is over, on the monotonic clock; None: never.
        reason: why it was ended, or "".
        killed: whether the user has had it killed.
    """

    job: LedgerJob
    process: Process
    gpus: Sequence[str]
    limit: float | None
    reason: str = ""
    killed: bool = False


class Scheduler:
    """Runs jobs of a ledger.

    Attributes:
        halted: why no further jobs are started, or "".
    """

    def __init__(
        self,
        ledger: Ledger,
        launching: Launching,
        starter: Starter,
        shown: Shown,
        ended: Callable[[Outcome], None],
    ) -> None:
        """Prepares it.

        Args:
            ledger: of the sweep; the one in which this process notes how jobs begin and end.
            launching: how many at once, time limit, retries.
            starter: starts the processes.
            shown: shows progress.
            ended: called with each job's outcome.
        """
        self.halted = ""
        self._ledger = ledger
        self._launching = launching
        self._starter = starter
        self._shown = shown
        self._ended = ended
        self._attempts: Counter[int] = Counter()
        self._errors: Counter[str] = Counter()
        self._running: list[_Running] = []
        self._free = list(shares.visible_gpus())

    def run(self, numbers: Sequence[int]) -> None:
        """Runs jobs until all have ended, or the sweep is interrupted; those that were not started stay planned.

        Args:
            numbers: of the jobs.
        """
        waiting = deque(numbers)
        specs = {number: self._ledger.job(number).checked_spec for number in numbers}
        at_once = shares.jobs_at_once(self._launching, list(specs.values()), self._free)
        with interruption.counted() as signals, self._shown.live():
            try:
                self._loop(waiting, specs, at_once, signals)
            except BaseException:
                self._signal_all(signal.SIGKILL)
                raise

    def _loop(self, waiting: deque[int], specs: dict[int, RunSpec], at_once: int, signals: Sequence[int]) -> None:
        heard = 0
        while self._running or (waiting and not self.halted):
            while waiting and not self.halted and not signals and len(self._running) < at_once:
                gpus = self._own_gpus(specs[waiting[0]], at_once)
                if gpus is None:
                    break
                number = waiting.popleft()
                self._start(number, specs[number], gpus)
            for each in [each for each in self._running if each.process.exit_status() is not None]:
                self._running.remove(each)
                self._free += each.gpus
                if self._settle(each):
                    waiting.appendleft(each.job.number)
            if len(signals) > heard:
                heard = len(signals)
                self._interrupt(heard)
            self._end_late()
            self._shown.update([each.job for each in self._running])
            time.sleep(_INTERVAL)

    def _own_gpus(self, spec: RunSpec, at_once: int) -> list[str] | None:
        """GPUs for a job; none if it needs none of its own, None if it has to wait for them."""
        needed = min(shares.gpus_of(spec), len(shares.visible_gpus()))
        if at_once == 1 or not needed:
            return []
        if len(self._free) < needed:
            return None
        taken, self._free = self._free[:needed], self._free[needed:]
        return taken

    def _start(self, number: int, spec: RunSpec, gpus: Sequence[str]) -> None:
        self._ledger.begin(number, time.time())
        job = self._ledger.job(number)
        directory = jobs.made_directory(self._ledger.directory, job)
        process = self._starter.start(number, strategy=spec.strategy.kind, log=directory / "run.log", gpus=gpus)
        minutes = self._launching.timeout_minutes
        limit = None if minutes is None else time.monotonic() + 60 * minutes
        self._running.append(_Running(job, process, gpus, limit))
        self._attempts[number] += 1
        self._shown.started(job)

    def _settle(self, each: _Running) -> bool:
        """Notes how a job ended; returns whether it is to be tried again."""
        number, status = each.job.number, each.process.exit_status() or 0
        if each.killed and status == -signal.SIGKILL:
            status = failures.INTERRUPTED
        outcome = jobs.settle(self._ledger, number, status, reason=each.reason)
        directory = jobs.job_directory(self._ledger.directory, each.job)
        crashed = outcome.status is Status.FAILED and not each.reason and failures.is_crash(directory, status)
        if crashed and self._attempts[number] <= self._launching.retries and not self.halted:
            self._shown.retried(outcome, self._attempts[number] + 1, self._launching.retries + 1)
            return True
        if outcome.status is Status.FAILED:
            self._errors[outcome.reason.replace(str(directory), "DIR")] += 1
            alike = max(self._errors.values())
            if self._launching.stop_after is not None and alike >= self._launching.stop_after and not self.halted:
                self.halted = f"{alike} jobs failed with the same error (hydra.launcher.stop_after)"
                self._shown.say(f"{self.halted}: no others are started")
        self._shown.ended(outcome)
        self._ended(outcome)
        return False

    def _interrupt(self, times: int) -> None:
        self.halted = "the sweep was interrupted"
        if times > 1:
            for each in self._running:
                each.killed = True
            self._signal_all(signal.SIGKILL)
            return
        self._signal_all(signal.SIGINT)
        if self._running:
            count = len(self._running)
            what, them = ("the running job", "it") if count == 1 else (f"the {count} running jobs", "them")
            self._shown.warn(f"ending {what}, with a checkpoint; press Ctrl-C again to kill {them}")

    def _signal_all(self, number: int) -> None:
        for each in self._running:
            each.process.signal(number)

    def _end_late(self) -> None:
        """Has jobs save their state and end when their time is over, and kills those that do not."""
        now = time.monotonic()
        for each in self._running:
            if each.limit is not None and now > each.limit:
                each.process.signal(signal.SIGKILL if each.reason else signal.SIGINT)
                minutes = self._launching.timeout_minutes
                each.reason = f"it took longer than hydra.launcher.timeout_minutes={minutes:g}"
                each.limit = now + _GRACE
