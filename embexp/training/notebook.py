"""Training progress in a notebook: one line that is updated in place. Needs nothing beyond the kernel's IPython."""

from __future__ import annotations

import html
import importlib
import time
from collections.abc import Mapping
from typing import Any

from embexp.training.listeners import Listener
from embexp.training.pace import Pace

_SECONDS = 0.2
"""Least seconds between two updates, which are messages to the browser."""


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
        self._step = step
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
        values = ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
        self._evaluation = f"{split} (step {step:,}) {values}"
        self._update()

    def warned(self, sentence: str) -> None:
        """Shows the warning below the bar."""
        self._warnings.append(sentence)
        self._update(now=True)

    def ended(self, status: str) -> None:
        """Leaves the bar with the status."""
        self._status = status.replace("_", " ")
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
        return ", ".join([*parts, *([self._evaluation] if self._evaluation else [])])

    def __repr__(self) -> str:
        return "\n".join([self._text(), *(f"warning: {each}" for each in self._warnings)])

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self._step}" max="{max(1, self._total)}" style="width: 20em"></progress>'
        below = "".join(f"<div>warning: {html.escape(each)}</div>" for each in self._warnings)
        return f"<div>{bar} {html.escape(self._text())}</div>{below}"
