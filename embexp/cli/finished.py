"""Opening a finished run from the command line."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embexp.runs.finished import Run


def opened(directory: str, command: str, *rest: str) -> Run:
    """The run of a directory.

    Args:
        directory: of the run.
        command: that is given, for what to say where the directory is that of a study.
        *rest: the command's words behind the directory.

    Raises:
        NotARunError: it holds none. That is told before TensorFlow takes its seconds.
    """
    from embexp.errors import NotARunError
    from embexp.records.folder import RunFolder
    from embexp.system import environment

    folder = RunFolder(Path(directory))
    if runs := folder.runs_of_study():
        each = (shlex.join(["embexp", command, str(run.path), *rest]) for run in runs.values())
        lines = "\n    ".join([f"{folder.path} is the directory of a study; say which of its runs:", *each])
        raise NotARunError(lines)
    folder.read_spec()
    environment.load_tensorflow()
    from embexp.runs.finished import load_run

    return load_run(directory)
