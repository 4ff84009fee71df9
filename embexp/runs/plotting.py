"""The plots of a run that has ended, or that has diverged. Matplotlib is imported only then."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from embexp.errors import DivergedError
from embexp.records.folder import RunFolder
from embexp.runs.execute import Started
from embexp.runs.prepare import Prepared
from embexp.runs.summary import describe


def plot(folder: RunFolder, summary: Mapping[str, Any], kept: int) -> None:
    """Plots a run that has ended.

    Args:
        folder: of the run.
        summary: of the run.
        kept: the step of the final values.
    """
    from embexp.reports import plots

    plots.write(folder.read_metrics(), summary, folder.plots, kept=kept)


@contextlib.contextmanager
def plotted_if_diverged(prepared: Prepared, started: Started, folder: RunFolder) -> Iterator[None]:
    """Plots the curves of a training that diverges within the block, so that one sees where; raises its error."""
    try:
        yield
    except DivergedError:
        lines = list(folder.read_metrics())
        # Which rows moved is not known: nothing was compared.
        known: dict[str, Any] = {"status": "diverged", "steps": lines[-1]["step"] if lines else 0, "freeze": {}}
        if prepared.spec.output.plots:
            from embexp.reports import plots

            with contextlib.suppress(OSError):
                plots.write(lines, describe(prepared, started) | known, folder.plots)
        raise
