"""How long the stages of a run took."""

from __future__ import annotations

import time
from collections.abc import Mapping


class Clock:
    """A listener that takes the time of a training, and of what comes before and after it. Starts when it is made."""

    def __init__(self) -> None:
        self._times = [time.perf_counter()]

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """The training begins."""
        self._times.append(time.perf_counter())

    def progressed(self, step: int) -> None:
        """Nothing to do."""

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """Nothing to do."""

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """Nothing to do."""

    def ended(self, status: str) -> None:
        """The training ends."""
        self._times.append(time.perf_counter())

    def seconds(self) -> dict[str, float]:
        """What has passed until now.

        Returns:
            setup: reading the data, making and filling the tables; training: with its evaluations; finishing: the
            checkpoint, the last evaluations, digests and plots; total.
        """
        times = [*self._times, time.perf_counter()]
        names = ("setup", "training", "finishing")
        passed = {name: after - before for name, before, after in zip(names, times, times[1:], strict=False)}
        return {name: round(seconds, 3) for name, seconds in (passed | {"total": times[-1] - times[0]}).items()}
