"""`embexp plan --time`: how long a run would take, as lines for the terminal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from embexp.training.progress import duration

if TYPE_CHECKING:
    from embexp.runs.dry_run import Timed
    from embexp.runs.prepare import Prepared


def length(prepared: Prepared) -> str:
    """Examples, steps and steps per epoch."""
    examples, batch, steps = prepared.data.training_examples, prepared.spec.train.batch_size, prepared.schedule.steps
    splits = prepared.data.scan.splits.items()
    others = [f"{len(rows):,} for {split}" for split, rows in splits if split != "train" and len(rows)]
    found = ", ".join([f"{examples:,} examples for training", *others])
    return f"length    {found}; {steps:,} steps, {examples / batch:,.4g} in an epoch"


def lines(timed: Timed, *, may_stop_early: bool) -> Iterator[str]:
    """The estimate, with what it is made of and how sure it is.

    Args:
        timed: the measurements.
        may_stop_early: whether the run may end before its last step.
    """
    low, high = (1000 * quartile for quartile in timed.quartiles)
    yield (
        f"step      {1000 * timed.step:.3g} ms (the middle half of the timed calls: {low:.3g} to {high:.3g} ms;"
        f" {timed.steps:,} steps were timed)"
    )
    for split, seconds in timed.evaluations.items():
        times = f", {timed.validations:,} times" if split == "validation" else ", at the end"
        yield f"evaluate  {split}: {seconds:.2g} s{times}"
    most = "at most " if may_stop_early else ""
    yield (
        f"time      {most}about {duration(timed.total)} (± {timed.spread:.0%} for the steps): {duration(timed.start)}"
        f" to start, {duration(timed.training)} for {timed.training_steps:,} steps, {duration(timed.evaluating)} for"
        " evaluations; without checkpoints, digests and plots"
    )
