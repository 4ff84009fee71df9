"""Sweeps: which settings are left out, what a search optimizes, and how jobs are run."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from embexp.specs.base import Count, Positive, Spec, WholeNumber
from embexp.specs.bounds import JobCount

Value = bool | int | float | str | None
Metric = Annotated[str, Field(min_length=1)]


class Sweep(Spec):
    """What concerns a sweep as a whole; not part of the identity of its runs."""

    exclude: tuple[Annotated[dict[str, Value], Field(min_length=1)], ...] = ()
    """Settings that are left out: choices by group and values by key, such as `{init: constant, freeze: table}`."""
    objective: Metric | tuple[Metric, ...] | None = None
    """Metrics that a search optimizes, such as `validation auc`; null: the task's first on the validation split."""
    max_jobs: Count = 10_000
    """Most jobs, of all settings and seeds; a sweep with more is an error before any of them is checked."""


class Launching(Spec):
    """How the jobs of a sweep are run: `hydra.launcher`."""

    jobs: JobCount | Literal["auto"] = 1
    """Jobs at once; auto: as many as have a core of their own, or a GPU."""
    timeout_minutes: Positive | None = None
    """Time limit of a job; null: none."""
    retries: WholeNumber = 0
    """Further attempts at a job whose process crashed."""
    stop_after: Count | None = None
    """Jobs that failed with the same error before no further job is started; null: all are started."""
