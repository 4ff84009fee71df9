"""Running from Python."""

from __future__ import annotations

import datetime
from pathlib import Path

from rich.console import Console

from embexp.runs.run import RunResult
from embexp.specs.run import RunSpec
from embexp.studies import run as studies
from embexp.system import files
from embexp.training.progress import progress


def run(spec: RunSpec, directory: str | Path | None = None) -> RunResult:
    """Runs an experiment, or all those of a study.

    Args:
        spec: from `embexp.compose`.
        directory: of the run; `outputs/DATE/TIME` when None. A directory that exists is never written into:
            the run then gets the next free name, `…_2`.

    Returns:
        Where the run lies, and its summary.

    Raises:
        RunError: the data, a file or the machine is not as it must be.
    """
    if directory is None:
        directory = Path("outputs") / f"{datetime.datetime.now():%Y-%m-%d/%H-%M-%S}"
    return studies.run(spec, files.new_directory(Path(directory)), listeners=lambda: [progress(Console())])
