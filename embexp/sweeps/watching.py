"""Follows and cancels jobs that run in processes of others: a launcher's, a scheduler's, or those of a killed sweep.

What becomes of such a job is in files that its worker writes (`jobs.RunElsewhere`), in the lock of its folder, in its
results, and in the queue of its scheduler. The process of the sweep looks at them again and again, and notes what it
sees in the ledger.

`embexp sweep cancel` ends the jobs of a sweep that are queued or running, wherever they are. A file in the folder of
the sweep says that it is cancelled. Its process looks for that file, and so does each worker of a launcher: a running
job saves its state and ends, and one that has not begun runs nothing. Only what waits in Slurm's queue is cancelled
there. So no process gets a signal because a file has its number, which may be another's by now.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from embexp.errors import RunError
from embexp.reports.jobs import in_use, last_written
from embexp.reports.record import Status
from embexp.sweeps import jobs, ledger
from embexp.sweeps.jobs import Start
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.progress import Shown
from embexp.system import locks, slurm

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
_LOOK_EVERY_CANCEL = 0.2
"""Seconds between two looks at the jobs."""
_AGAIN = 10.0
"""Seconds until Slurm is asked once more to cancel a job."""
CANCEL_GRACE = 60.0
"""Seconds that a running job has to save its state."""


@dataclass
class _Followed:
    """A job that is followed.

    Attributes:
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
            shown: shows what happens; None: nothing does.
        """
        self._sweep, self.shown = sweep, shown or Shown.nothing(sweep)
        self._followed: dict[int, _Followed] = {}
        self._pause, self._next = _FIRST, 0.0
        self._mute = False
        self._cancelled: float | None = None
        self._cancel_next = 0.0
        self.foreign: list[str] = []
        """Ids of Slurm's that are not in the queue of this sweep's jobs, and were not cancelled."""

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
            asked: what tells about a job, where that is no scheduler.
        """
        for job in found:
            self._followed[job.number] = _Followed(job, (asked or {}).get(job.number))
        self._pause, self._next = _FIRST, 0.0

    def look(self, known: Ledger) -> list[int]:
        """Looks at all jobs, and notes in the ledger what becomes of them.

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

    def look_again(self, known: Ledger, own: Collection[int] = ()) -> list[int]:
        """Looks at all jobs, shows those that have ended, and returns those that are to run again.

        Args:
            own: jobs that this process has launched; they are not run again.
        """
        again = []
        for number in self.look(known):
            outcome = jobs.outcome(self._sweep, known.job(number))
            if number in own or outcome.status.is_settled or outcome.status in (Status.FAILED, Status.CANCELLED):
                self.shown.ended(outcome)
            else:
                again.append(number)
        return again

    def cancel(self) -> None:
        """Cancels what waits in a queue, and after a while also what still runs; to be called again and again.

        The file that says that the sweep is cancelled is there already.
        """
        now = time.monotonic()
        self._cancelled = self._cancelled or now
        if now < self._cancel_next:
            return
        self._cancel_next = now + _AGAIN
        late = now - self._cancelled > CANCEL_GRACE
        for job in self.under_way:
            if job.scheduler is None and job.state is Status.QUEUED and not jobs.starts(self._sweep, job.number):
                jobs.withdraw(self._sweep, job.number)
        ids = [
            job.scheduler_job
            for job in self.under_way
            if job.scheduler == SLURM and job.scheduler_job is not None and (late or job.state is Status.QUEUED)
        ]
        with contextlib.suppress(slurm.NoAnswerError):  # what begins nonetheless runs nothing
            self.foreign = slurm.cancel(ids, below=self._sweep)

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
            if not self._mute:
                self.shown.say(f"Slurm does not answer ({error}): what it has queued is waited for")
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
        job, starts = each.job, jobs.starts(self._sweep, each.job.number)
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
            needs_grace = jobs.submission(self._sweep, job.number) is not None
            if needs_grace and (last is None or last.ended is None) and time.monotonic() - each.gone < _GRACE:
                return False
            self._settle(known, each, last)
            return True
        each.gone = None
        if changed or state is not job.state:
            if state is not known.job(job.number).state:
                known.leave(job.number, state)
            each.job = known.job(job.number)
        if changed and last is not None and last.ended is None:
            self.shown.started(each.job, last.host)
        return False

    def _state(self, each: _Followed, last: Start | None) -> Status | None:
        """Where a job is: queued, running, or with nobody (None)."""
        directory = jobs.job_directory(self._sweep, each.job)
        queued, runs = (each.says in words for words in (slurm.QUEUED, slurm.RUNNING))
        if last is not None and last.ended is not None and last.exit_status != jobs.BUSY:
            status, _ = jobs.ending(directory, last.exit_status)
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
        if jobs.ending(directory, None)[0].is_settled:
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
    starts = jobs.starts(sweep, job.number)
    if not starts or starts[-1].ended is not None or starts[-1].host != socket.gethostname():
        return False
    try:
        os.kill(starts[-1].process, signal.SIGINT)
    except (ProcessLookupError, PermissionError):
        return False
    return True


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


def cancel(directory: Path, say: Callable[[str], object]) -> bool:
    """Cancels the jobs of a sweep that are queued or running, and waits for their end.

    `embexp resume` runs them later, from their newest checkpoints.

    Args:
        say: called with a line about what happens.

    Returns:
        Whether nothing is queued or running any more.

    Raises:
        RunError: the directory has no ledger.
    """
    sweep = directory.absolute()
    with Ledger(sweep) as ledger:
        under_way, told = _under_way(ledger), False  # before the sweep's process sees the file
        (sweep / jobs.CANCEL).touch()
        while True:
            with contextlib.ExitStack() as locked:
                try:
                    locked.enter_context(locks.of_folder(sweep, f"the sweep in {sweep}").exclusive())
                except RunError:
                    if not in_use(sweep):
                        raise
                else:
                    return _cancel_alone(sweep, ledger, say)
            if not told:
                told = True
                say(f"the sweep's process is stopping its jobs: {described(under_way)}")
            time.sleep(_LOOK_EVERY_CANCEL)


def count_jobs(found: Collection[object]) -> str:
    """A number of jobs in words."""
    return f"{len(found)} job{'' if len(found) == 1 else 's'}"


def described(found: Collection[LedgerJob]) -> str:
    """How many jobs are running and queued."""
    states = [job.state for job in found]
    parts = [f"{states.count(each)} {each.value}" for each in (Status.RUNNING, Status.QUEUED) if each in states]
    return ", ".join(parts) or "none is running"


def _under_way(ledger: Ledger) -> list[LedgerJob]:
    return [job for job in ledger.jobs() if job.same_as is None and job.state.is_under_way]


def _cancel_alone(sweep: Path, ledger: Ledger, say: Callable[[str], object]) -> bool:
    """Cancels jobs of a sweep that has no process."""
    watch, give_up = Watch(sweep), time.monotonic() + 3 * CANCEL_GRACE
    watch.follow(_under_way(ledger))
    before = {job.number for job in watch.under_way}
    if before:
        say(f"cancelling {described(watch.under_way)}")
    while len(watch) and time.monotonic() < give_up:
        watch.look(ledger)
        watch.cancel()
        time.sleep(_LOOK_EVERY_CANCEL if len(watch) else 0)
    states = [ledger.job(number).state for number in before]
    cancelled = [state for state in states if state is Status.CANCELLED]
    ended = [job for job in ledger.jobs() if job.same_as is None and job.state is Status.CANCELLED]
    found = cancelled if before else ended
    text = (
        f"{count_jobs(found)} cancelled" if found else "all have ended by themselves" if before else "no job is running"
    )
    say(f"{text}; `embexp resume {sweep}` continues the sweep")
    for job in watch.under_way:
        where = f"Slurm's job {job.scheduler_job}" if job.scheduler == SLURM else "its process"
        rule = "is not in this folder's queue" if job.scheduler_job in watch.foreign else "has not ended"
        say(f"job {job.number} is still {job.state.value}: {where} {rule}; end it yourself")
    if not len(watch):
        (sweep / jobs.CANCEL).unlink(missing_ok=True)
    return not len(watch)
