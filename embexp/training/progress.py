"""Training progress on the console: a bar in a terminal or a notebook, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Mapping

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from embexp.training.listeners import Listener
from embexp.training.notebook import NotebookBar

_LINE_SECONDS = 10.0
"""Least seconds between two plain lines of losses, so that a log file stays readable."""


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
            _TimeLeft(),
            console=console,
            expand=True,
        )
        self._task = self._progress.add_task("training", total=None, rate=None)
        self._loss: float | None = None
        self._evaluation = ""
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
        self._progress.update(self._task, completed=step)

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Shows the loss and the throughput."""
        self._loss = loss
        if examples_per_second is not None:
            self._progress.update(self._task, rate=examples_per_second)

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Shows the metrics."""
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
        self._live.stop()
        self._live = None

    def _render(self) -> Group:
        loss = "" if self._loss is None else f"training loss [bold]{self._loss:.4f}[/bold]"
        below = [Text.from_markup(line) for line in (loss, self._evaluation) if line]
        return Group(self._progress.get_renderable(), *below)


class ProgressLines(Listener):
    """Prints a line at the start, at each evaluation and at the end, and a loss every ten seconds in between."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._total = 0
        self._step = self._first = 0
        self._start = self._last_line = 0.0

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Prints the length of the training."""
        self._total = total_steps
        self._start = self._last_line = time.monotonic()
        self._print(f"training for {total_steps:,} steps on {examples_per_epoch:,} examples")

    def resumed(self, step: int) -> None:
        """Prints where the training continues."""
        self._step = self._first = step
        self._print(f"continuing after step {step:,}")

    def progressed(self, step: int) -> None:
        """Remembers the step for the last line."""
        self._step = step

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Prints the loss, if the last one was printed long enough ago or this is the last step."""
        now = time.monotonic()
        if now - self._last_line < _LINE_SECONDS and step < self._total:
            return
        self._last_line = now
        parts = [f"step {step:,} of {self._total:,}", f"loss {loss:.4f}"]
        if examples_per_second is not None:
            parts.append(_rate(examples_per_second))
        if self._first < step < self._total:
            each = (now - self._start) / (step - self._first)
            parts.append(f"{_duration(each * (self._total - step))} left")
        self._print(", ".join(parts))

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Prints the metrics."""
        self._print(f"step {step:,} of {self._total:,}, {split}: {_metrics(metrics)}")

    def warned(self, sentence: str) -> None:
        """Prints the warning."""
        self._print(f"warning: {sentence}")

    def ended(self, status: str) -> None:
        """Prints the status and the duration."""
        duration = _duration(time.monotonic() - self._start)
        self._print(f"training {_readable(status)} after {self._step:,} steps, {duration}")

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


class _Rate(ProgressColumn):
    """The latest throughput."""

    def render(self, task: Task) -> Text:
        rate = task.fields.get("rate")
        return Text("" if rate is None else _rate(rate), style="progress.data.speed")


class _TimeLeft(ProgressColumn):
    """The remaining time as rich estimates it; after the end, the duration."""

    max_refresh = 0.5

    def render(self, task: Task) -> Text:
        if task.stop_time is not None:
            return Text(f"in {_duration(task.elapsed or 0.0)}", style="progress.elapsed")
        left = task.time_remaining
        return Text("" if left is None else f"{_duration(left)} left", style="progress.remaining")


def _metrics(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


def _rate(rate: float) -> str:
    for size, unit in ((1e6, "M"), (1e3, "k")):
        if rate >= size:
            return f"{rate / size:.3g} {unit} examples/s"
    return f"{rate:.3g} examples/s"


def _duration(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def _readable(status: str) -> str:
    return status.replace("_", " ")
