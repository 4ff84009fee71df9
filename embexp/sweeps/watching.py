"""Follows jobs that run in processes of others: a launcher's, a scheduler's, or those of a sweep that was killed.

What becomes of such a job is in files that its worker writes (`elsewhere`), in the lock of its folder, in its results,
and in the queue of its scheduler. The process of the sweep looks at them again and again, and notes what it sees in the
ledger.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from embexp.reports.jobs import in_use, last_written
from embexp.reports.record import Status
from embexp.sweeps import elsewhere, jobs, ledger, outcomes
from embexp.sweeps.elsewhere import Start
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.shown import Shown
from embexp.system import slurm

SLURM = "slurm"
_GRACE = 3.0
"""Seconds that a worker has to note the end of a process, after this has released its lock."""
_START = 60.0
"""Seconds in which a process takes the lock of its job."""
_FIRST, _LONGEST = 1.0, 30.0
"""Seconds between two questions to a scheduler: more and more."""
_FAILURES = frozenset(("FAILED", "BOOT_FAIL", "OUT_OF_MEMORY"))
"""Words of Slurm for jobs that are not to be continued without a change."""

Asked = Callable[[], str]
"""What a scheduler says of a job, in Slurm's words; "" if it has ended."""


@dataclass
class _Followed:
    """A job that is followed.

    Attributes:
        job: as the ledger has it.
        asked: what is asked about it, instead of its scheduler.
        says: what its scheduler has said at last; None: nothing yet, or it has none.
        gone: since when there has been no sign of it, on the monotonic clock.
        noted: its starts that are in the ledger.
    """

    job: LedgerJob
    asked: Asked | None = None
    says: str | None = None
    gone: float | None = None
    noted: list[Start] = field(default_factory=list)


class Watch:
    """Jobs that run elsewhere."""

    def __init__(self, sweep: Path, shown: Shown | None = None) -> None:
        """Follows nothing yet.

        Args:
            sweep: directory of the sweep.
            shown: shows what becomes of the jobs.
        """
        self._sweep, self._shown = sweep, shown
        self._followed: dict[int, _Followed] = {}
        self._pause, self._next = _FIRST, 0.0
        self._mute = False

    def __contains__(self, number: int) -> bool:
        return number in self._followed

    def __len__(self) -> int:
        return len(self._followed)

    @property
    def under_way(self) -> list[LedgerJob]:
        """The jobs as they were at the last look."""
        return [each.job for each in self._followed.values()]

    def follow(self, found: Iterable[LedgerJob], asked: Mapping[int, Asked] | None = None) -> None:
        """Follows jobs from now on.

        Args:
            found: of the ledger.
            asked: what tells about a job, where that is no scheduler.
        """
        for job in found:
            self._followed[job.number] = _Followed(job, (asked or {}).get(job.number))
        self._pause, self._next = _FIRST, 0.0

    def look(self, known: Ledger) -> list[int]:
        """Looks at all jobs, and notes in the ledger what becomes of them.

        Args:
            known: the ledger, opened by this thread.

        Returns:
            The numbers of jobs that no process or queue has any more, and that are not followed from now on.
        """
        self._ask()
        ended = []
        for number, each in list(self._followed.items()):
            if self._ended(known, each):
                ended.append(number)
                del self._followed[number]
        return ended

    def forget(self, number: int) -> None:
        """Follows a job no longer."""
        self._followed.pop(number, None)

    def _ask(self) -> None:
        """Asks the schedulers, if it is time."""
        if time.monotonic() < self._next:
            return
        ids = []
        for each in self._followed.values():
            if each.asked is not None:
                each.says = each.asked()
            elif each.job.scheduler == SLURM and each.job.scheduler_job is not None:
                ids.append(each.job.scheduler_job)
        try:
            said = slurm.states(ids)
        except slurm.NoAnswerError as error:
            said = {}
            if self._shown is not None and not self._mute:
                self._shown.say(f"Slurm does not answer ({error}): what it has queued is waited for")
            self._mute = True
        else:
            self._mute = False
        for each in self._followed.values():
            if each.job.scheduler == SLURM:
                each.says = said.get(str(each.job.scheduler_job))
        self._pause = min(_LONGEST, 1.5 * self._pause)
        self._next = time.monotonic() + self._pause

    def _ended(self, known: Ledger, each: _Followed) -> bool:
        """Whether a job has ended; notes how, or else where it is."""
        job, starts = each.job, elsewhere.starts(self._sweep, each.job.number)
        for start in starts:
            if start not in each.noted:
                known.note_attempt(job.number, ledger.Attempt(start.host, start.started, start.ended))
        last, changed = starts[-1] if starts else None, starts != each.noted
        if changed:
            each.noted = starts
            self._pause, self._next = _FIRST, min(self._next, time.monotonic() + _FIRST)
        state = self._state(each, last)
        if state is None:
            each.gone = each.gone or time.monotonic()
            needs_grace = elsewhere.submission(self._sweep, job.number) is not None
            if needs_grace and not _has_ended(last) and time.monotonic() - each.gone < _GRACE:
                return False
            self._settle(known, each, last)
            return True
        each.gone = None
        if changed or state is not job.state:
            if state is not known.job(job.number).state:
                known.leave(job.number, state)
            each.job = known.job(job.number)
        if self._shown is not None and changed and last is not None and last.ended is None:
            self._shown.started(each.job, last.host)
        return False

    def _state(self, each: _Followed, last: Start | None) -> Status | None:
        """Where a job is: queued, running, or with nobody (None)."""
        directory = jobs.job_directory(self._sweep, each.job)
        queued, runs = (each.says in words for words in (slurm.QUEUED, slurm.RUNNING))
        if last is not None and last.ended is not None and last.exit_status != jobs.BUSY:
            status, _ = outcomes.ending(directory, last.exit_status)
            if status is Status.INTERRUPTED and (queued or runs):  # its scheduler starts it again, or ends it now
                return Status.QUEUED if queued else Status.RUNNING
            return None
        if in_use(directory):
            return Status.RUNNING
        if queued or runs:
            return Status.QUEUED if queued else Status.RUNNING
        if each.job.scheduler == SLURM and each.says is None:  # it does not answer
            return each.job.state if each.job.state.is_under_way else Status.QUEUED
        if last is not None and last.ended is None and _is_starting(last):
            return Status.RUNNING
        return None

    def _settle(self, known: Ledger, each: _Followed, last: Start | None) -> None:
        """Notes how a job ended."""
        number, directory = each.job.number, jobs.job_directory(self._sweep, each.job)
        if last is not None and last.exit_status not in (None, jobs.BUSY):
            jobs.settle(known, number, last.exit_status or 0, ended=last.ended)
            return
        started = max((attempt.started for attempt in known.attempts(number)), default=0.0)
        ended = max(started, last_written(directory)) or time.time()
        if outcomes.ending(directory, None)[0].is_settled:
            jobs.settle(known, number, 0, ended=ended)
            return
        begun, word = started >= (each.job.queued or 0.0) and started > 0, each.says or ""
        name = f"Slurm: {word or 'it has left the queue'}" if each.job.scheduler == SLURM else ""
        if jobs.is_cancelled(self._sweep) or word == "CANCELLED":
            why = "" if jobs.is_cancelled(self._sweep) else "cancelled in Slurm"
            known.end(number, Status.CANCELLED, ended, reason=why)
        elif word in _FAILURES:
            known.end(number, Status.FAILED, ended, reason=name + ("" if begun else ", before it began"))
        elif begun:
            known.end(number, Status.INTERRUPTED, ended, reason=name if word else "its process was killed")
        else:
            known.leave(number, Status.PLANNED, f"{name}, before it began" if name else "")


def interrupt(sweep: Path, job: LedgerJob) -> bool:
    """Asks the process of a job to save what is trained and to end, if it runs on this machine; whether it does."""
    starts = elsewhere.starts(sweep, job.number)
    if not starts or starts[-1].ended is not None or starts[-1].host != socket.gethostname():
        return False
    try:
        os.kill(starts[-1].process, signal.SIGINT)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _has_ended(start: Start | None) -> bool:
    return start is not None and start.ended is not None


def _is_starting(start: Start) -> bool:
    """Whether a process has begun that may not yet hold the lock of its job."""
    if time.time() - start.started > _START:
        return False
    if start.host != socket.gethostname():
        return True
    try:
        os.kill(start.process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True
