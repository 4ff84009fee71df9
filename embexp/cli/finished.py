"""Opening a finished run from the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from embexp.runs import Run


def opened(directory: str) -> Run:
    """The run of a directory.

    Raises:
        NotARunError: it holds none. That is told before TensorFlow takes its seconds.
    """
    from embexp import environment
    from embexp.folder import RunFolder

    RunFolder(Path(directory)).read_spec()
    environment.load_tensorflow()
    from embexp.runs import load_run

    return load_run(directory)
