"""`embexp sweep`: commands for a sweep that was started."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, FAILED, dispatch
from embexp.system.printable import print

SUBCOMMANDS = {
    "cancel": "Cancels the jobs of a sweep that are queued or running, here or on a cluster.",
}

HELP = """\
usage: embexp sweep COMMAND …

commands
{commands}

    embexp sweep COMMAND --help                                      Shows the help of a command.

`embexp run -m` starts a sweep, `embexp resume DIR` completes it, and `embexp report DIR` shows the states of its jobs.
"""
CANCEL_HELP = """\
usage: embexp sweep cancel DIR

Cancels the jobs of a sweep that are queued or running: processes on this machine, and jobs that a launcher has passed
to a cluster. Running jobs save a checkpoint first. Jobs that wait for their turn stay planned.

It works from another terminal or machine, and also if the process that started the sweep was killed. Results are kept,
and `embexp resume DIR` continues the sweep later.

    embexp sweep cancel outputs/2026-01-31/12-00-00_sweep

The exit status is 0 if nothing is queued or running any more, 1 if something is, and 2 if the command line is invalid.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    return dispatch(arguments, SUBCOMMANDS, lambda name: subcommand(name)[0], help_text=HELP, context="embexp sweep: ")


def subcommand(name: str) -> tuple[Callable[[Sequence[str]], int], str]:
    """What runs a subcommand, and its help."""
    return {"cancel": (cancel, CANCEL_HELP)}[name]


def cancel(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("sweep cancel", CANCEL_HELP)
    parser.needs("directory", "which sweep? Give its directory")
    options = parser.parse(arguments)
    from embexp.sweeps import watching

    return DONE if watching.cancel(Path(options.directory), partial(print, flush=True)) else FAILED
