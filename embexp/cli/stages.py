"""Progress of the stages of a command on the console, such as those before and after training."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status

from embexp.training.listeners import Listener


@contextmanager
def shown() -> Iterator[Stages]:
    """Shows stages on standard error until the block ends."""
    stages = Stages(Console(stderr=True))
    try:
        yield stages
    finally:
        stages.close()


class Stages(Listener):
    """Shows the current stage: pass it as the progress callback. As a listener it closes when training begins.

    A terminal shows the current stage with its percentage and is cleared afterwards; elsewhere each stage is a line.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._last = ""

    def __call__(self, stage: str, done: float | None) -> None:
        """Shows a stage and, if known, the fraction of it that is done."""
        if self._console.is_terminal:
            if self._status is None:
                self._status = self._console.status("")
                self._status.start()
            self._status.update(stage if done is None else f"{stage} {done:.0%}")
        elif stage != self._last:
            self._console.print(stage, markup=False, highlight=False, soft_wrap=True)
        self._last = stage

    def close(self) -> None:
        """Clears the stage from the terminal."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Closes, as the progress of training takes over."""
        self.close()
