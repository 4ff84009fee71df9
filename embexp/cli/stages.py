"""Progress of the stages of a command on the console, such as those before and after training."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status
from rich.text import Text

from embexp.system.terminal import SafeConsole
from embexp.training.listeners import Listener

_APART_SECONDS = 10.0
"""Between lines of one stage where there is no terminal."""
_FIRST_SECONDS = 2.0
"""Before the rest of a stage can be estimated."""


@contextmanager
def shown() -> Iterator[Stages]:
    """Shows stages on standard error until the block ends."""
    stages = Stages(SafeConsole(stderr=True))
    try:
        yield stages
    finally:
        stages.close()


class Stages(Listener):
    """Shows the current stage: pass it as the progress callback. As a listener it closes when training begins.

    A terminal shows the current stage with its percentage and the time that is left, and is cleared afterwards;
    elsewhere each stage is a line, and one more every ten seconds.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._last = ""
        self._began = self._told = 0.0
        self._begun_at = 0.0

    def __call__(self, stage: str, done: float | None) -> None:
        """Shows a stage and, if known, the fraction of it that is done."""
        now = time.monotonic()
        new = stage != self._last
        if new:
            self._began, self._begun_at = now, done or 0.0
        text = stage if done is None else f"{stage} {done:.0%}{self._left(now, done)}"
        if self._console.is_terminal:
            if self._status is None:
                self._status = self._console.status("")
                self._status.start()
            self._status.update(Text(text))
        elif new or (done is not None and now - self._told >= _APART_SECONDS):
            self._console.print(stage if new else text, markup=False, highlight=False, soft_wrap=True)
            self._told = now
        self._last = stage

    def _left(self, now: float, done: float) -> str:
        """The time that is left of a stage if it goes on as it has."""
        elapsed, gone = now - self._began, done - self._begun_at
        if elapsed < _FIRST_SECONDS or gone <= 0.0 or done >= 1.0:
            return ""
        seconds = round(elapsed * (1.0 - done) / gone)
        return f", {seconds // 60}:{seconds % 60:02} left"

    def close(self) -> None:
        """Clears the stage from the terminal."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Closes, as the progress of training takes over."""
        self.close()
