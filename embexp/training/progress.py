"""Progress of a training and of single stages: a bar in a terminal or a notebook, plain lines elsewhere."""

from __future__ import annotations

import html
import importlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.progress_bar import ProgressBar as Bar
from rich.table import Table
from rich.text import Text

from embexp.errors import plural
from embexp.training.listeners import Listener, Pace

_LINE_SECONDS = 10.0
"""Seconds between two plain lines, whatever the number of steps, so that slow steps show life."""
_LONGEST_SECONDS = 300.0
_LINE_SHARE = 0.02
"""In a long training, lines are this share of its duration apart, up to `_LONGEST_SECONDS`, to keep the log short."""
_SECONDS = 0.2
"""The fewest seconds between two updates, because each is a message to the browser."""


_FIRST_SECONDS = 2.0
"""Seconds of a stage before the rest of it can be estimated."""
_BAR_WIDTH = 30


class Stage:
    """A stage of a run, how much of it is done, and how long the rest takes if it goes on as it has.

    As a renderable it has a bar; where it is not known how much is done, the elapsed time.
    """

    def __init__(self) -> None:
        self.name = ""
        self._done: float | None = None
        self._began = self._begun_at = self._now = 0.0

    def moved(self, name: str, done: float | None, now: float) -> bool:
        """Notes the present stage; returns whether it is another than before.

        Args:
            done: the fraction, 0 to 1; None: not known.
            now: in seconds.
        """
        new = name != self.name
        if new or (done or 0.0) < (self._done or 0.0):
            self._began, self._begun_at = now, done or 0.0
        self.name, self._done, self._now = name, done, now
        return new

    def __str__(self) -> str:
        return self.name if self._done is None else f"{self.name} {self._figures()}"

    def __rich__(self) -> Table:
        row = Table.grid(padding=(0, 1))
        if self._done is None:
            elapsed = time.monotonic() - self._began
            # One cell: next to an empty one, Rich breaks a name that has room.
            row.add_row(Text(self.name if elapsed < _FIRST_SECONDS else f"{self.name} {duration(elapsed)} elapsed"))
        else:
            row.add_row(Text(self.name), Bar(1.0, self._done, width=_BAR_WIDTH), Text(self._figures()))
        return row

    def _figures(self) -> str:
        """The percentage, and the remaining time."""
        done = self._done or 0.0
        elapsed, gone = self._now - self._began, done - self._begun_at
        if elapsed < _FIRST_SECONDS or gone <= 0.0 or done >= 1.0:
            return f"{done:.0%}"
        return f"{done:.0%}, {duration(elapsed * (1.0 - done) / gone)} left"


def progress(console: Console) -> Listener:
    """A listener that shows progress on `console`: a bar in a terminal or a notebook, lines elsewhere."""
    if console.is_jupyter:
        return NotebookBar()
    return ProgressBar(console) if console.is_terminal else ProgressLines(console)


class ProgressBar(Listener):
    """Shows a bar with throughput and remaining time, and below it the loss and the latest evaluation."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("steps"),
            _Rate(),
            _Time(),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("training", total=None, pace=None)
        self._loss = self._evaluation = ""
        self._stage, self._between = Stage(), False
        self._live: Live | None = None

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Shows the bar."""
        self._progress.update(self._task, total=total_steps)
        self._live = Live(get_renderable=self._render, console=self._console, refresh_per_second=5)
        self._live.start()

    def resumed(self, step: int) -> None:
        """Starts the bar where the earlier process ended."""
        self._progress.reset(self._task, completed=step)

    def progressed(self, step: int) -> None:
        """Advances the bar."""
        self._between = False
        self._progress.update(self._task, completed=step)

    def working(self, stage: str, done: float | None) -> None:
        """Shows a second bar below, until the next step."""
        self._stage.moved(stage, done, time.monotonic())
        self._between = True

    def paced(self, pace: Pace) -> None:
        """Shows steps per second and the remaining time."""
        self._progress.update(self._task, pace=pace)

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Shows the loss and the throughput."""
        self._loss = f"training loss [bold]{loss:.4f}[/bold]"
        if examples_per_second is not None:
            self._loss += f", {_rate(examples_per_second)}"

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Shows the metrics."""
        self._between = False
        self._evaluation = f"{split} [dim](step {step:,})[/dim] {_metrics(metrics)}"

    def warned(self, sentence: str) -> None:
        """Prints the warning above the bar."""
        self._console.print(f"warning: {sentence}", style="yellow", markup=False, highlight=False, soft_wrap=True)

    def ended(self, status: str) -> None:
        """Stops the bar and leaves it on the terminal, with the status."""
        if self._live is None:
            return
        colour = {"completed": "green", "stopped_early": "green", "failed": "red"}.get(status, "yellow")
        self._progress.update(self._task, description=f"[{colour}]{escape(_readable(status))}")
        self._progress.stop_task(self._task)
        self._between = False
        self._live.stop()
        self._live = None

    def _render(self) -> Group:
        below = [Text.from_markup(line) for line in (self._loss, self._evaluation) if line]
        return Group(self._progress.get_renderable(), *below, *([self._stage] if self._between else []))


class ProgressLines(Listener):
    """Prints a line at the start, every ten seconds or so, at each evaluation and at the end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = self._step = 0
        self._start = self._last_line = 0.0
        self._rate: float | None = None
        self._stage = Stage()

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Prints the length of the training."""
        self._total = total_steps
        self._start = self._last_line = time.monotonic()
        self._print(f"training for {plural(total_steps, 'step')} on {examples_per_epoch:,} examples")

    def resumed(self, step: int) -> None:
        """Prints where the training continues."""
        self._step = step
        self._print(f"continuing after step {step:,}")

    def paced(self, pace: Pace) -> None:
        """Prints step, loss and time, if the last line was printed long enough ago."""
        self._step = pace.step
        now = time.monotonic()
        elapsed = now - self._start
        if not self._due(now):
            return
        rates = [_steps(pace.steps_per_second), None if self._rate is None else _rate(self._rate)]
        loss = None if pace.loss is None else f"loss {pace.loss:.4f}"
        self._line(pace.step, [loss, *rates, f"{duration(elapsed)} elapsed", _left(pace)])

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Prints the last loss of the training."""
        self._rate = examples_per_second
        if step == self._total:
            self._line(step, [f"loss {loss:.4f}", None if self._rate is None else _rate(self._rate)])

    def working(self, stage: str, done: float | None) -> None:
        """Prints how far the stage is, if the last line was printed long enough ago."""
        now = time.monotonic()
        self._stage.moved(stage, done, now)
        if self._due(now):
            self._print(str(self._stage))

    def _due(self, now: float) -> bool:
        """Whether the last line was printed long enough ago. If so, the caller prints one now."""
        if now - self._last_line < max(_LINE_SECONDS, min(_LINE_SHARE * (now - self._start), _LONGEST_SECONDS)):
            return False
        self._last_line = now
        return True

    def _line(self, step: int, parts: Sequence[str | None]) -> None:
        self._print(", ".join([f"step {step:,} of {self._total:,}", *filter(None, parts)]))

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Prints the metrics."""
        self._print(f"step {step:,} of {self._total:,}, {split}: {_metrics(metrics)}")

    def warned(self, sentence: str) -> None:
        """Prints the warning."""
        self._print(f"warning: {sentence}")

    def ended(self, status: str) -> None:
        """Prints the status and the duration."""
        elapsed = duration(time.monotonic() - self._start)
        self._print(f"training {_readable(status)} after {plural(self._step, 'step')}, {elapsed}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Rate(ProgressColumn):
    """Steps per second."""

    def render(self, task: Task) -> Text:
        pace: Pace | None = task.fields.get("pace")
        rate = None if pace is None else _steps(pace.steps_per_second)
        return Text(rate or "", style="progress.data.speed")


class _Time(ProgressColumn):
    """The elapsed and the remaining time, including evaluations; after the end, the duration."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        if task.stop_time is not None:
            return Text(f"in {duration(task.elapsed or 0.0)}", style="progress.elapsed")
        elapsed = "" if task.elapsed is None else f"{duration(task.elapsed)} elapsed"
        pace: Pace | None = task.fields.get("pace")
        parts = [elapsed, None if pace is None else _left(pace)]
        return Text(", ".join(filter(None, parts)), style="progress.remaining")


def _left(pace: Pace) -> str | None:
    """The remaining time, if it is known."""
    if pace.seconds_left is None:
        return None
    count = pace.untimed_evaluations
    evaluations = f" and {plural(count, 'evaluation')}" if count else ""
    return f"{duration(pace.seconds_left)}{evaluations} left" if pace.seconds_left or count else None


def _steps(rate: float | None) -> str | None:
    return None if rate is None else f"{rate:.3g} steps/s" if rate < 1000 else f"{rate:,.0f} steps/s"


def _metrics(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def _rate(rate: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g} {unit} examples/s"
    return f"{rate:.3g} examples/s"


def _readable(status: str) -> str:
    return status.replace("_", " ")


class NotebookBar(Listener):
    """Shows a bar with the loss, the latest evaluation and the remaining time.

    rich's bar and tqdm's need the package ipywidgets in a notebook; IPython alone can update what it has displayed.
    """

    def __init__(self) -> None:
        self._handle: Any = None
        self._total = self._step = 0
        self._left: float | None = None
        self._start = self._shown = 0.0
        self._loss: float | None = None
        self._evaluation = ""
        self._stage, self._between = Stage(), False
        self._status = "training"
        self._warnings: list[str] = []

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Displays the bar."""
        self._total, self._start = total_steps, time.monotonic()
        display = importlib.import_module("IPython.display")
        self._handle = display.display(self, display_id=True)

    def resumed(self, step: int) -> None:
        """Starts the bar where the earlier process ended."""
        self._step = step
        self._update(now=True)

    def progressed(self, step: int) -> None:
        """Advances the bar."""
        self._step, self._between = step, False
        self._update()

    def working(self, stage: str, done: float | None) -> None:
        """Shows the stage behind the loss, until the next step."""
        self._stage.moved(stage, done, time.monotonic())
        self._between = True
        self._update()

    def paced(self, pace: Pace) -> None:
        """Remembers the remaining time."""
        self._left = pace.seconds_left
        self._update()

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Shows the loss."""
        self._loss = loss
        self._update()

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Shows the metrics."""
        self._evaluation, self._between = f"{split} (step {step:,}) {_metrics(metrics)}", False
        self._update()

    def warned(self, sentence: str) -> None:
        """Shows the warning below the bar."""
        self._warnings.append(sentence)
        self._update(now=True)

    def ended(self, status: str) -> None:
        """Leaves the bar with the status."""
        self._status, self._between = _readable(status), False
        self._update(now=True)

    def _update(self, *, now: bool = False) -> None:
        if self._handle is not None and (now or time.monotonic() - self._shown >= _SECONDS):
            self._shown = time.monotonic()
            self._handle.update(self)

    def _text(self) -> str:
        elapsed = time.monotonic() - self._start
        parts = [f"{self._status}: {self._step:,} of {self._total:,} steps"]
        if self._status != "training":
            parts.append(f"in {elapsed:.0f} s")
        elif self._left:
            parts.append(f"{elapsed:.0f} s elapsed, {self._left:.0f} s left")
        if self._loss is not None:
            parts.append(f"loss {self._loss:.4f}")
        return ", ".join([*parts, *filter(None, [self._evaluation, str(self._stage) if self._between else ""])])

    def __repr__(self) -> str:
        return "\n".join([self._text(), *(f"warning: {warning}" for warning in self._warnings)])

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self._step}" max="{max(1, self._total)}" style="width: 20em"></progress>'
        below = "".join(f"<div>warning: {html.escape(warning)}</div>" for warning in self._warnings)
        return f"<div>{bar} {html.escape(self._text())}</div>{below}"


def duration(seconds: float) -> str:
    """Such as `0:07`, `12:34` or `62:59:59`: minutes and seconds, with hours from the first on."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
