"""What happens before and after the training, for people: a line for each stage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from rich.console import Console
from rich.status import Status


@contextmanager
def shown() -> Iterator[Stages]:
    """Shows stages beside what a command prints, on standard error, until the block ends."""
    stages = Stages(Console(stderr=True))
    try:
        yield stages
    finally:
        stages.close()


class Stages:
    """Told of stages by a run; also a listener, so that it makes room for the training's own progress.

    In a terminal the stage that goes on is shown with its percentage and leaves no trace; elsewhere each is a line.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        self._status: Status | None = None
        self._last = ""

    def __call__(self, what: str, part: float | None) -> None:
        """Shows a stage and, where known, the part of it that is done."""
        if self._console.is_terminal:
            if self._status is None:
                self._status = self._console.status("")
                self._status.start()
            self._status.update(what if part is None else f"{what} {part:.0%}")
        elif what != self._last:
            self._console.print(what, markup=False, highlight=False, soft_wrap=True)
        self._last = what

    def close(self) -> None:
        """Takes the stage off the terminal."""
        if self._status is not None:
            self._status.stop()
            self._status = None

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """The training begins."""
        self.close()

    def progressed(self, step: int) -> None:
        """Nothing to do."""

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Nothing to do."""

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Nothing to do."""

    def ended(self, status: str) -> None:
        """Nothing to do."""
