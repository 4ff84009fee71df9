"""Runs a spec: a single run, or a study of several."""

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
"""Called with a heading before each run of a study."""


def run(
    spec: RunSpec,
    directory: Path,
    *,
    listeners: Callable[[], Sequence[Listener]] = lambda: (),
    progress: Progress = quiet,
    announce: Announce = lambda heading: None,
) -> RunResult:
    """Runs an experiment, or all runs of a study.

    Args:
        spec: what the user asked for.
        directory: an existing, empty directory. Each run of a study gets a subdirectory.
        listeners: returns new listeners for each training.
        progress: called with the stages before and after training.
        announce: called with a heading before each run of a study.

    Raises:
        RunError: a run fails for a reason in the data, a file or the machine.
    """
    match spec.study:
        case NoStudy():
            return single.run(spec, directory, listeners=listeners(), progress=progress)
        case NewEntitiesStudy():
            return new_entities.run(spec, directory, listeners=listeners, progress=progress, announce=announce)
        case _:
            assert_never(spec.study)
