"""What a job and its sweep tell each other meanwhile, through small files: how far it is, and whether to prune it.

And what a sweep shows of its jobs while it runs. Files work wherever the job runs: in another process, or on another
machine that shares the directory. A job waits for the answer of its search, so that what is pruned does not depend on
how fast either process is.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from embexp.records.folder import json_object
from embexp.reports.record import Status
from embexp.sweeps.jobs import PROGRESS_FILE, Outcome
from embexp.sweeps.ledger import LedgerJob
from embexp.system import files
from embexp.system.printable import print
from embexp.training.listeners import Listener
from embexp.training.progress import duration

_WIDEST = 60
"""Characters of a job's overrides in the live table."""
_INTERVAL = 0.2
"""Least seconds between two writes."""
_BYTES = 256
"""Size of the file. One write of so few bytes can't be seen in part."""
PRUNED = "pruned"
_FOLDER = ".pruning"
_METRIC, _REPORT, _ANSWER = "metric.json", "report.json", "answer.json"
_LOOK_EVERY = 0.02
"""Seconds between two looks at a file."""
_PATIENCE = 20.0
"""Seconds that a job waits for an answer. A search that is gone gives none, and the job then trains to its end."""

Decide = Callable[[int, int, float], bool]
"""Whether to prune: the number of the job, the step and the value of its evaluation."""


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
        self.say(f"{name} crashed: {outcome.reason}; it continues (attempt {attempt} of {attempts})")

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


class AskedAfterEvaluations(Listener):
    """Asks the search after each evaluation, and ends the training if it is pruned."""

    def __init__(self, folder: Path, metric: str, *, patience: float = _PATIENCE) -> None:
        """Prepares a job.

        Args:
            patience: seconds to wait for an answer.
        """
        self._folder, self._metric, self._patience = folder, metric, patience
        self._total = 0

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Notes the number of steps: after the last one, there is nothing to prune."""
        self._total = total_steps

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Asks about an evaluation of the validation split."""
        value = metrics.get(self._metric, math.nan)
        if split != "validation" or step >= self._total or not math.isfinite(value):
            return
        files.write_text(self._folder / _REPORT, json.dumps({"step": step, "value": value}))
        if self._answer(step) is True:
            self.stop_status = PRUNED

    def _answer(self, step: int) -> bool | None:
        """Whether to prune; None if no answer came."""
        give_up = time.monotonic() + self._patience
        while True:
            answer = json_object(self._folder / _ANSWER)
            if answer.get("step") == step:
                return bool(answer.get("prune"))
            if time.monotonic() >= give_up:
                self._patience = 0.0  # the search has ended; a later evaluation need not wait for it again
                return None
            time.sleep(_LOOK_EVERY)


def listeners(sweep: Path, number: int) -> list[Listener]:
    """What a job needs to ask: one listener if its search prunes, else none."""
    folder = _folder(sweep, number)
    metric = json_object(folder / _METRIC).get("metric")
    return [AskedAfterEvaluations(folder, str(metric))] if metric is not None else []


@contextlib.contextmanager
def answered(sweep: Path, numbers: Iterable[int], metric: str, decide: Decide) -> Iterator[None]:
    """Within the block, a thread answers what some jobs ask.

    Args:
        metric: of the validation split, by which they are compared.
        decide: called for each evaluation, in this thread.
    """
    folders = {number: _folder(sweep, number) for number in numbers}
    for folder in folders.values():
        files.write_text(folder / _METRIC, json.dumps({"metric": metric}))
    done, errors = threading.Event(), list[BaseException]()

    def answer() -> None:
        try:
            while not done.wait(_LOOK_EVERY):
                for number, folder in folders.items():
                    _answer(folder, partial(decide, number))
        except BaseException as error:  # shown by the block: jobs go on without an answer
            errors.append(error)

    thread = threading.Thread(target=answer, name="pruning", daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if errors:
        raise errors[0]


def _answer(folder: Path, decide: Callable[[int, float], bool]) -> None:
    report = json_object(folder / _REPORT)
    if report and report.get("step") != json_object(folder / _ANSWER).get("step"):
        prune = decide(int(report["step"]), float(report["value"]))
        files.write_text(folder / _ANSWER, json.dumps({"step": report["step"], "prune": prune}))


def _folder(sweep: Path, number: int) -> Path:
    return sweep / _FOLDER / str(number)
