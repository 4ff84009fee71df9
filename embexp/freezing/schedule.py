"""freeze=schedule: phases, each with rules of its own, one after the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

from embexp.specs.freezing import Phase


def first_steps(phases: Sequence[Phase], steps_per_epoch: float) -> tuple[int, ...]:
    """The step at which each phase begins.

    An epoch's phase begins with the first step that reads an example of that epoch.

    Args:
        phases: in their order.
        steps_per_epoch: examples of the training split / batch size.

    Raises:
        ValueError: a phase would begin before the one that precedes it; says which.
    """
    starts = [
        phase.step if phase.step is not None else math.floor((phase.epoch or 0.0) * steps_per_epoch + 1e-9)
        for phase in phases
    ]
    for number, (before, after) in enumerate(itertools.pairwise(starts), 1):
        if after <= before:
            raise ValueError(f"phase {number} begins at step {after}, the one before it at step {before}")
    return tuple(starts)
