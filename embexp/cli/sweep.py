"""`embexp sweep`: commands for a sweep that was started."""

from __future__ import annotations

from collections.abc import Sequence

from embexp.cli.commands import dispatch

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


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: those after `sweep`.
    """
    return dispatch(arguments, SUBCOMMANDS, modules="embexp.cli.sweep_", help_text=HELP, context="embexp sweep: ")
