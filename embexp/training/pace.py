"""How fast a training is, and when it ends. Imports no TensorFlow."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """The pace of a training after some of its steps.

    Attributes:
        step: how many are done.
        loss: mean over the steps since the last log event; None: there were none since.
        steps_per_second: over all timed steps of this process, without the first call, which traces, and without
            evaluations; None: none was timed yet.
        seconds_left: until the last step, with evaluations at the duration of the latest one; None: not known yet.
        untimed_evaluations: how many evaluations come that `seconds_left` lacks, as none was timed yet.
    """

    step: int
    loss: float | None = None
    steps_per_second: float | None = None
    seconds_left: float | None = None
    untimed_evaluations: int = 0


@dataclass
class Pacing:
    """Measures the pace of a training.

    Attributes:
        steps: that were timed.
        seconds: that these took.
        evaluation_seconds: that the latest evaluation took; None: there was none.
    """

    steps: int = 0
    seconds: float = 0.0
    evaluation_seconds: float | None = None

    def timed(self, steps: int, seconds: float) -> None:
        """Some steps took so long."""
        self.steps += steps
        self.seconds += seconds

    def pace(self, step: int, *, loss: float | None, steps_left: int, evaluations_left: int) -> Pace:
        """The pace after `step` steps, with that much to be done."""
        if not self.steps or self.seconds <= 0:
            return Pace(step, loss)
        each = self.evaluation_seconds
        return Pace(
            step,
            loss,
            self.steps / self.seconds,
            steps_left * self.seconds / self.steps + evaluations_left * (each or 0.0),
            evaluations_left if each is None else 0,
        )
