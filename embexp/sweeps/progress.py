"""How far jobs are: the file in which each notes it, and what a sweep shows of them while it runs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from embexp.reports.record import Status
from embexp.sweeps.jobs import PROGRESS_FILE, Outcome
from embexp.sweeps.ledger import LedgerJob
from embexp.system.printable import print
from embexp.training.listeners import Listener
from embexp.training.progress import duration

_WIDEST = 60
"""Characters of a job's overrides in the live table."""
_INTERVAL = 0.2
"""Least seconds between two writes."""
_BYTES = 256
"""Size of the file. One write of so few bytes can't be seen in part."""


class Shown:
    """Shows jobs as they start, run and end."""

    def __init__(self, console: Console, directory: Path, own: Callable[[LedgerJob], str]) -> None:
        """Shows nothing yet.

        Args:
            own: returns the overrides that distinguish a job from the others.
        """
        self.console = console
        self.total: int | None = None
        self._directory = directory
        self._own = own
        self._done = self._failed = 0
        self._seconds: list[float] = []
        self._left = 0
        self._running: Sequence[LedgerJob] = ()
        self._live: Live | None = None

    def expect(self, jobs: int, total: int | None) -> None:
        """Notes how many jobs are to run, and how many jobs the sweep has (None: unknown)."""
        self._left, self.total = jobs, total

    @contextlib.contextmanager
    def live(self) -> Iterator[None]:
        """Within the block, a terminal shows the running jobs below all lines."""
        if not self.console.is_terminal:
            yield
            return
        with Live(
            get_renderable=self._render, console=self.console, refresh_per_second=4, transient=True
        ) as self._live:
            yield

    def update(self, running: Sequence[LedgerJob]) -> None:
        """Notes which jobs run, and which are in the queue of a scheduler."""
        self._running = running

    def started(self, job: LedgerJob, host: str = "") -> None:
        """A job was started, on this or another machine."""
        again = f" (attempt {job.attempts})" if job.attempts > 1 else ""
        where = f" on {host}" if host else ""
        self.say(f"{self._name(job.number)} started{where}{again}   {self._own(job)}".rstrip())

    def ended(self, outcome: Outcome) -> None:
        """A job has ended."""
        self._left -= 1
        self._running = [job for job in self._running if job.number != outcome.number]
        self._done += outcome.status.has_results
        self._failed += outcome.status is Status.FAILED
        if outcome.status.has_results and outcome.seconds is not None:
            self._seconds.append(outcome.seconds)
        self.say(f"{self._name(outcome.number)} {_ended_line(outcome)}")

    def retried(self, outcome: Outcome, attempt: int, attempts: int) -> None:
        """A job crashed, and is started again."""
        name = self._name(outcome.number)
        self.say(f"{name} crashed: {outcome.reason}; it goes on (attempt {attempt} of {attempts})")

    def say(self, text: str) -> None:
        """Prints a line."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Prints a line on standard error."""
        if self._live is not None:
            self.say(text)
        else:
            print(f"\n{text}", file=sys.stderr, flush=True)

    @staticmethod
    def nothing(directory: Path) -> Shown:
        """Shows nothing at all."""
        return Shown(Console(quiet=True, force_terminal=False), directory, lambda job: "")

    def _name(self, number: int) -> str:
        return f"job {number}" if self.total is None else f"job {number} of {self.total}"

    def _render(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        for _ in range(2):
            table.add_column(no_wrap=True)
        table.add_column(width=24)
        table.add_column(justify="right", no_wrap=True)
        table.add_column(justify="right", no_wrap=True)
        running = [job for job in self._running if job.state is not Status.QUEUED]
        reached = {job.number: read_progress(self._directory / str(job.directory)) for job in running}
        for job in running:
            table.add_row(f"job {job.number}", Text(self._own(job)[:_WIDEST]), *_cells(reached[job.number], job))
        queued = len(self._running) - len(running)
        counts = [f"{len(running)} running", *([f"{queued} queued"] if queued else []), f"{self._done} done"]
        counts += [f"{self._failed} failed"] if self._failed else []
        counts += [f"{waiting} waiting"] if (waiting := self._left - len(self._running)) > 0 else []
        if (left := self._seconds_left(reached)) is not None:
            counts.append(f"{duration(left)} left")
        return Group(table, Text("  ·  ".join(counts), style="bold"))

    def _seconds_left(self, reached: dict[int, Reached | None]) -> float | None:
        """Time left, if the jobs that wait take as long as those that have ended; None while that is unknown."""
        rest = [left for each in reached.values() if (left := _rest(each)) is not None]
        waiting = max(0, self._left - len(reached))
        if not self._seconds:
            return max(rest) if rest and waiting <= 0 and len(rest) == len(reached) else None
        mean = sum(self._seconds) / len(self._seconds)
        rest += [mean / 2] * (len(reached) - len(rest))
        return (waiting * mean + sum(rest)) / max(1, len(reached))


def _cells(reached: Reached | None, job: LedgerJob) -> tuple[RenderableType, str, str]:
    """The bar, the steps and the time left of a running job."""
    since = duration(time.time() - (job.started or time.time()))
    if reached is None or not reached.total:
        return Text("starting" if reached is None else reached.stage, style="dim"), "", since
    left = _rest(reached)
    steps = f"{reached.step:,}/{reached.total:,} steps"
    bar = ProgressBar(total=reached.total, completed=reached.step, width=24)
    if reached.stage != "training":
        return Text(reached.stage, style="dim"), steps, since
    return bar, steps, since if left is None else f"{duration(left)} left"


def _rest(reached: Reached | None) -> float | None:
    if reached is None or not reached.rate:
        return None
    return (reached.total - reached.step) / reached.rate


def _ended_line(outcome: Outcome) -> str:
    text = outcome.status.value.replace("_", " ")
    if outcome.seconds is not None:
        text += f" after {outcome.seconds:.1f} s"
    if outcome.reason:
        return f"{text}: {outcome.reason}"
    shown = [f"{name} {value:.4f}" for name, value in outcome.metrics.items() if name.startswith("test ")]
    return "   ".join([text, *shown[:2]])


@dataclass(frozen=True)
class Reached:
    """How far a job is.

    Attributes:
        stage: what it does, such as "training".
        total: steps of the whole training; 0 while that is unknown.
        rate: steps per second so far in this process; 0 while that is unknown.
    """

    stage: str
    step: int = 0
    total: int = 0
    rate: float = 0.0


class ProgressFile(Listener):
    """Writes how far a run is; also a progress callback for the stages before and after training."""

    def __init__(self, directory: Path) -> None:
        self._handle = os.open(directory / PROGRESS_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._reached = Reached("starting")
        self._first = 0
        self._began = self._written = 0.0

    def __call__(self, stage: str, done: float | None) -> None:
        """Writes the stage."""
        self._write(Reached(stage), now=stage != self._reached.stage)

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Writes that the training begins."""
        self._began, self._first = time.monotonic(), 0
        self._write(Reached("training", 0, total_steps), now=True)

    def resumed(self, step: int) -> None:
        """Counts from where an earlier process ended."""
        self._first = step
        self.progressed(step)

    def progressed(self, step: int) -> None:
        """Writes the step, a few times a second."""
        seconds = time.monotonic() - self._began
        rate = (step - self._first) / seconds if seconds else 0.0
        self._write(Reached("training", step, self._reached.total, rate), now=step == self._reached.total)

    def _write(self, reached: Reached, *, now: bool) -> None:
        self._reached = reached
        if now or time.monotonic() - self._written > _INTERVAL:
            self._written = time.monotonic()
            with contextlib.suppress(OSError):  # a full disk ends no training on account of its progress
                os.pwrite(self._handle, json.dumps(asdict(reached)).encode()[:_BYTES].ljust(_BYTES), 0)


def read_progress(directory: Path) -> Reached | None:
    """How far the job in a directory is; None where that is unknown."""
    try:
        return Reached(**json.loads((directory / PROGRESS_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return None
