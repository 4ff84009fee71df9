"""How long each stage of a run takes."""

from __future__ import annotations

import time

from embexp.training.listeners import Listener


class Clock(Listener):
    """Measures the time of a run before, during and after training, from its own creation on."""

    def __init__(self) -> None:
        self._times = [time.perf_counter()]

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Training begins."""
        self._times.append(time.perf_counter())

    def ended(self, status: str) -> None:
        """Training has ended."""
        self._times.append(time.perf_counter())

    def seconds(self) -> dict[str, float]:
        """Seconds until now, by stage.

        Returns:
            setup: reading the data, creating and filling the tables; training: steps and evaluations; finishing: the
            checkpoint, the last evaluations, digests and plots; total.
        """
        times = [*self._times, time.perf_counter()]
        names = ("setup", "training", "finishing")
        passed = {name: after - before for name, before, after in zip(names, times, times[1:], strict=False)}
        return {name: round(seconds, 3) for name, seconds in (passed | {"total": times[-1] - times[0]}).items()}
