"""Running experiments from Python: `embexp.run`."""

from __future__ import annotations

import datetime
from pathlib import Path

from rich.console import Console

from embexp.runs import story
from embexp.specs.run import RunSpec
from embexp.studies import run as studies
from embexp.system import files
from embexp.training.progress import progress


def run(spec: RunSpec, directory: str | Path | None = None) -> story.RunResult:
    """Runs an experiment, or all those of a study.

    Args:
        spec: from `embexp.compose`.
        directory: of the run; None: `outputs/DATE/TIME`. An existing directory is never written to: the run then gets
            the next free name, `…_2`.

    Returns:
        The directory of the run and its summary.

    Raises:
        RunError: the run fails for a reason in the data, a file or the machine.
    """
    if directory is None:
        directory = Path("outputs") / f"{datetime.datetime.now():%Y-%m-%d/%H-%M-%S}"
    return studies.run(spec, files.new_directory(Path(directory)), listeners=lambda: [progress(Console())])
