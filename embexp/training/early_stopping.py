"""Early stopping: end training when one metric has not improved for a number of evaluations."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass
class EarlyStopping:
    """Follows the values of one metric, remembers the best and decides when to stop.

    Attributes:
        metric: its name.
        lower_is_better: its direction.
        patience: consecutive evaluations without improvement after which to stop; None: never.
        min_delta: a value must be better than the best by more than this to count as an improvement.
        best: the best value so far; None before the first. NaN is never the best.
        waited: evaluations since the best one.
    """

    metric: str
    lower_is_better: bool
    patience: int | None
    min_delta: float = 0.0
    best: float | None = None
    waited: int = 0

    def update(self, value: float) -> bool:
        """Takes the next value and returns whether it is the best so far."""
        gain = 0.0 if self.best is None else self.best - value if self.lower_is_better else value - self.best
        improved = not math.isnan(value) if self.best is None else gain > self.min_delta
        if improved:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        return improved

    @property
    def stop(self) -> bool:
        """Whether the patience has run out."""
        return self.patience is not None and self.waited >= self.patience
