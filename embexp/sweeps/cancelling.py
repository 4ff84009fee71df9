"""`embexp sweep cancel`: ends the jobs of a sweep that are queued or running, wherever they are.

A file in the folder of the sweep says that it is cancelled. Its process looks for that file, and so does each worker of
a launcher: a running job saves its state and ends, and one that has not begun runs nothing. Only what waits in Slurm's
queue is cancelled there. So no process gets a signal because a file has its number, which may be another's by now.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection
from pathlib import Path

from embexp.errors import RunError
from embexp.reports.jobs import in_use
from embexp.reports.record import Status
from embexp.sweeps import elsewhere, jobs
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.sweeps.watching import SLURM, Watch
from embexp.system import locks, slurm

_LOOK_EVERY = 0.2
"""Seconds between two looks at the jobs."""
_AGAIN = 10.0
"""Seconds until Slurm is asked once more to cancel a job."""
GRACE = 60.0
"""Seconds that a running job has to save its state."""


class Cancellation:
    """Cancels jobs that run elsewhere. The file that says so is there already."""

    def __init__(self, sweep: Path) -> None:
        """Cancels nothing yet.

        Args:
            sweep: directory of the sweep.
        """
        self._sweep = sweep
        self._began: float | None = None
        self._next = 0.0
        self.foreign: list[str] = []

    def look(self, watch: Watch) -> None:
        """Cancels what waits in a queue, and after a while also what still runs; to be called again and again."""
        now = time.monotonic()
        self._began = self._began or now
        if now < self._next:
            return
        self._next = now + _AGAIN
        late = now - self._began > GRACE
        for job in watch.under_way:
            if job.scheduler is None and job.state is Status.QUEUED and not elsewhere.starts(self._sweep, job.number):
                elsewhere.withdraw(self._sweep, job.number)
        ids = [
            job.scheduler_job
            for job in watch.under_way
            if job.scheduler == SLURM and job.scheduler_job is not None and (late or job.state is Status.QUEUED)
        ]
        with contextlib.suppress(slurm.NoAnswerError):  # what begins nonetheless runs nothing
            self.foreign = slurm.cancel(ids, below=self._sweep)


def cancel(directory: Path, say: Callable[[str], object], *, patience: float = 3 * GRACE) -> bool:
    """Cancels the jobs of a sweep that are queued or running, and waits for their end.

    `embexp resume` runs them later, from their newest checkpoints.

    Args:
        directory: of the sweep.
        say: called with a line about what happens.
        patience: seconds to wait for jobs that no process of the sweep waits for.

    Returns:
        Whether nothing is queued or running any more.

    Raises:
        RunError: the directory has no ledger.
    """
    sweep = directory.absolute()
    with Ledger(sweep) as ledger:
        (sweep / jobs.CANCEL).touch()
        told = False
        while True:
            with contextlib.ExitStack() as locked:
                try:
                    locked.enter_context(locks.of_folder(sweep, f"the sweep in {sweep}").exclusive())
                except RunError:
                    if not in_use(sweep):
                        raise
                else:
                    return _cancel_alone(sweep, ledger, say, patience)
            if not told:
                told = True
                say(f"the process of the sweep ends its jobs: {described(_under_way(ledger))}")
            time.sleep(_LOOK_EVERY)


def count(found: Collection[object]) -> str:
    """A number of jobs in words."""
    return f"{len(found)} job{'' if len(found) == 1 else 's'}"


def described(found: Collection[LedgerJob]) -> str:
    """How many jobs are running and queued."""
    states = [job.state for job in found]
    parts = [f"{states.count(each)} {each.value}" for each in (Status.RUNNING, Status.QUEUED) if each in states]
    return ", ".join(parts) or "none is running"


def _under_way(ledger: Ledger) -> list[LedgerJob]:
    return [job for job in ledger.jobs() if job.same_as is None and job.state.is_under_way]


def _cancel_alone(sweep: Path, ledger: Ledger, say: Callable[[str], object], patience: float) -> bool:
    """Cancels jobs of a sweep that has no process."""
    watch, cancellation, give_up = Watch(sweep), Cancellation(sweep), time.monotonic() + patience
    watch.follow(_under_way(ledger))
    before = {job.number for job in watch.under_way}
    if before:
        say(f"cancelling {described(watch.under_way)}")
    while len(watch) and time.monotonic() < give_up:
        watch.look(ledger)
        cancellation.look(watch)
        time.sleep(_LOOK_EVERY if len(watch) else 0)
    states = [ledger.job(number).state for number in before]
    cancelled = [state for state in states if state is Status.CANCELLED]
    ended = [job for job in ledger.jobs() if job.same_as is None and job.state is Status.CANCELLED]
    found = cancelled if before else ended
    text = f"{count(found)} cancelled" if found else "all have ended by themselves" if before else "no job is running"
    say(f"{text}; `embexp resume {sweep}` continues the sweep")
    for job in watch.under_way:
        where = f"Slurm's job {job.scheduler_job}" if job.scheduler == SLURM else "its process"
        rule = "is not in this folder's queue" if job.scheduler_job in cancellation.foreign else "has not ended"
        say(f"job {job.number} is still {job.state.value}: {where} {rule}; end it yourself")
    if not len(watch):
        (sweep / jobs.CANCEL).unlink(missing_ok=True)
    return not len(watch)
