"""The events of a training run, for progress bars, metric files and trackers."""

from __future__ import annotations

from collections.abc import Mapping

from embexp.training.pace import Pace


class Listener:
    """Receives the events of a training run; subclasses override those that they need.

    Events come in this order: started, resumed (where a checkpoint is continued), any number of progressed, paced,
    logged, evaluated and warned, ended. `ended` comes after an error too, so that files and terminals are left in
    order.
    """

    stop_status: str | None = None
    """Set in `evaluated`, it ends the training after this evaluation, with this status."""

    def started(self, total_steps: int, examples_per_epoch: int) -> None:
        """Training begins; it takes `total_steps` steps unless it ends early."""

    def resumed(self, step: int) -> None:
        """Training continues after `step` steps, which an earlier process did."""

    def progressed(self, step: int) -> None:
        """`step` steps are done. Comes several times a second."""

    def paced(self, pace: Pace) -> None:
        """How fast the training is; comes after each `progressed`."""

    def logged(self, step: int, loss: float, examples_per_second: float | None) -> None:
        """`loss` is the mean training loss since the last log event; the rate is None where nothing could be timed."""

    def evaluated(self, step: int, split: str, metrics: Mapping[str, float]) -> None:
        """`metrics` of a split (train, validation, test) after `step` steps."""

    def drifted(self, step: int, drift: Mapping[str, Mapping[str, float | None]]) -> None:
        """How far each table's pretrained rows are from their file after `step` steps; once more after `ended`."""

    def warned(self, sentence: str) -> None:
        """Something went wrong that does not end the training, such as a checkpoint that can't be written."""

    def ended(self, status: str) -> None:
        """Training has ended; `status` is completed, stopped_early, pruned, interrupted or failed."""
