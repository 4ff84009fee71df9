"""Simple models to compare a run with: fitted once for all runs with the same data, and kept in the cache."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from embexp.system import caching, digests, machine_faults
from embexp.system.locks import FileLock
from embexp.system.parallel import Progress
from embexp.training import baseline


@dataclass(frozen=True)
class Fit:
    """How a baseline was fitted.

    Attributes:
        examples: of the training split that it was fitted to, drawn at random where these are not all.
        of: examples in the training split.
        values: values of columns of ids that have a weight.
        penalty: that was chosen.
        converged: whether the iterations ended by themselves.
        seconds: that it took, with its predictions.
        evaluated: examples, or users, of other splits that it was evaluated on, evenly spread where these are not all.
        held_out: examples, or users, of these splits.
    """

    examples: int
    of: int
    values: int
    penalty: float
    converged: bool
    seconds: float
    evaluated: int = 0
    held_out: int = 0


@dataclass(frozen=True)
class FittedBaseline:
    """A simple model of the same columns, to compare with.

    Attributes:
        metrics: by its name, one of `baseline.FITTED`, and by split; empty: there is none.
        facts: by its name, how it was fitted, `Fit`.
        warnings: why it could not be fitted.
    """

    metrics: dict[str, dict[str, dict[str, float]]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


NOT_FITTED = FittedBaseline()


def stage(name: str) -> str:
    """What is shown while a baseline is fitted."""
    return f"fitting {baseline.FITTED[name]} to compare with"


def once(
    name: str, key: Mapping[str, Any], make: Callable[[Path], None], cache: Path, progress: Progress
) -> Path | FittedBaseline:
    """The folder of the cache with what `make` wrote, or why it could not."""
    words, digest = baseline.FITTED[name], digests.of_json(dict(key))

    def shown(folder: Path) -> None:
        progress(stage(name), None)
        make(folder)

    lock = FileLock(caching.place_of(cache, "baseline", digest).with_suffix(".lock"), f"the cache in {cache}")
    try:
        with contextlib.nullcontext() if caching.exists(cache, "baseline", digest) else lock.awaited():
            return caching.folder(cache, "baseline", digest, shown)
    except (OSError, MemoryError, ValueError, ArithmeticError) as error:  # no reason to lose what was trained
        why = machine_faults.sentence(error) or str(error)
        return FittedBaseline(warnings=(f"output.baselines: {words} could not be fitted: {why}",))
