"""When a training saves its state. Imports no TensorFlow."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_SHARE = 0.02
"""Share of the time that checkpoints may take, where the config sets no interval."""
_SHORTEST_SECONDS = 60.0
"""Shortest interval, where the config sets none: shorter trainings are simply repeated."""


@dataclass(frozen=True)
class Replay:
    """How a training follows an earlier one, to be compared with it.

    Attributes:
        save_at: the steps after which its state is saved, and only these.
        stop_after: the step after which it ends as if interrupted, as the earlier one was; None: at its own end.
    """

    save_at: Sequence[int] = ()
    stop_after: int | None = None

    @property
    def stops(self) -> tuple[int, ...]:
        """All steps after which something is to be done, in order."""
        return tuple(sorted({*self.save_at, *([] if self.stop_after is None else [self.stop_after])}))


@dataclass
class SaveTimes:
    """Decides after which steps a training saves its state.

    Attributes:
        every_steps: steps between two saves; None: time decides.
        every_seconds: seconds between two saves; None: the cost of the last one decides.
        last_step: step of the last save.
        only_at: the steps after which it is saved, in order, whatever else is set; None: the others decide.
    """

    every_steps: int | None = None
    every_seconds: float | None = None
    last_step: int = 0
    only_at: Sequence[int] | None = None
    clock: Callable[[], float] = time.monotonic
    _cost: float = 0.0
    _since: float = field(default=0.0, repr=False)

    def started(self) -> None:
        """The training begins now."""
        self._since = self.clock()

    def next_step(self, done: int) -> int | None:
        """The first step after `done` at which a save is due by the number of steps; None: never."""
        if self.only_at is not None:
            return next((step for step in self.only_at if step > done), None)
        return None if self.every_steps is None else (done // self.every_steps + 1) * self.every_steps

    def due(self, step: int) -> bool:
        """Whether the state after `step` steps is to be saved."""
        if step == self.last_step:
            return False
        if self.only_at is not None:
            return step in self.only_at
        if self.every_steps is not None and step % self.every_steps == 0:
            return True
        if self.every_seconds is not None:
            return self.clock() - self._since >= self.every_seconds
        return self.every_steps is None and self.clock() - self._since >= max(_SHORTEST_SECONDS, self._cost / _SHARE)

    def saved(self, step: int, seconds: float) -> None:
        """The state after `step` steps was saved, which took `seconds`."""
        self.last_step, self._cost, self._since = step, seconds, self.clock()
