"""`python -m embexp` is `embexp run`; `embexp` alone shows the help."""

from __future__ import annotations

import signal
import sys
from collections.abc import Sequence

from embexp.cli import commands
from embexp.system import interruption


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command in a process of its own, and returns the exit status.

    Args:
        arguments: of the command line, after the program's name; None: those of this process.
    """
    status = commands.main(arguments)
    for number in interruption.NUMBERS:  # what is left is Python's own end, of which a signal would print a trace
        signal.signal(number, signal.SIG_DFL)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["run"]))
