"""`embexp sweep cancel`: cancels the jobs of a sweep that are queued or running."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, FAILED, print

USAGE = "embexp sweep cancel DIR"

HELP = f"""\
usage: {USAGE}

Cancels the jobs of a sweep that are queued or running: processes on this machine, and jobs that a launcher has passed
to a cluster. Running jobs save a checkpoint first. Jobs that wait for their turn stay planned.

It works from another terminal or machine, and also if the process that started the sweep was killed. Results are kept,
and `embexp resume DIR` continues the sweep later.

    embexp sweep cancel outputs/2026-01-31/12-00-00_sweep

The exit status is 0 if nothing is queued or running any more, 1 if something is, and 2 if the command line is invalid.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: those after `sweep cancel`.
    """
    parser = Parser("sweep cancel", USAGE)
    parser.add_argument("directory", nargs="?")
    options = parser.parse_intermixed_args(list(arguments))
    if options.help:
        print(HELP, end="")
        return DONE
    if options.directory is None:
        raise parser.incomplete("which sweep? Give its directory")
    from embexp.sweeps.watching import cancel

    return DONE if cancel(Path(options.directory), partial(print, flush=True)) else FAILED
