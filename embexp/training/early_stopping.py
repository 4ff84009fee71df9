"""When to stop: no improvement of one metric over so many evaluations."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class EarlyStopping:
    """Takes the values of one metric in turn, remembers the best and says when to stop.

    Attributes:
        metric: its name.
        lower_is_better: its direction.
        patience: evaluations in a row without an improvement after which to stop; None: never.
        min_delta: a value must be better than the best by more than this to count as an improvement.
        best: the best value so far; None before the first. A value that is no number is never the best.
        waited: evaluations since then.
    """

    metric: str
    lower_is_better: bool
    patience: int | None
    min_delta: float = 0.0
    best: float | None = None
    waited: int = 0

    def update(self, value: float) -> bool:
        """Takes the next value in and returns whether it is the best so far."""
        gain = 0.0 if self.best is None else self.best - value if self.lower_is_better else value - self.best
        improved = not math.isnan(value) if self.best is None else gain > self.min_delta
        if improved:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return improved

    @property
    def stop(self) -> bool:
        """Whether the patience is at its end."""
        return self.patience is not None and self.waited >= self.patience
