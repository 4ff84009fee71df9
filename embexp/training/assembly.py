"""What a runtime executes and saves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from embexp.training.step import Step


@dataclass(frozen=True)
class Assembly:
    """An experiment with all its variables made; the rows of its tables may not be filled yet.

    Attributes:
        step: the functions of a step.
        checkpoint: a `tf.train.Checkpoint` of all that is learned.
    """

    step: Step
    checkpoint: Any
