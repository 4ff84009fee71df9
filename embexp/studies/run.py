"""Running whatever a spec describes: one run, or a study of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import assert_never

from embexp.runs import run as single
from embexp.runs.run import RunResult
from embexp.specs.run import RunSpec
from embexp.specs.studies import NewEntitiesStudy, NoStudy
from embexp.studies import new_entities
from embexp.system.progress import Progress, quiet
from embexp.training.listeners import Listener

Announce = Callable[[str], None]
"""Told of each run of a study before it begins."""


def run(
    spec: RunSpec,
    directory: Path,
    *,
    listeners: Callable[[], Sequence[Listener]] = lambda: (),
    progress: Progress = quiet,
    announce: Announce = lambda words: None,
) -> RunResult:
    """Runs an experiment, or all those of a study.

    Args:
        spec: what the user asked for.
        directory: an existing directory of its own. A study's runs lie in it, in directories of theirs.
        listeners: gives those that are to be told of a training, anew for each.
        progress: is called with what comes before and after a training.
        announce: is told of each run of a study.

    Raises:
        RunError: the data, a file or the machine is not as it must be.
    """
    match spec.study:
        case NoStudy():
            return single.run(spec, directory, listeners=listeners(), progress=progress)
        case NewEntitiesStudy():
            return new_entities.run(spec, directory, listeners=listeners, progress=progress, announce=announce)
        case _:
            assert_never(spec.study)
