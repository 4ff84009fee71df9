"""`embexp checkpoint`: commands for checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

from embexp.cli.commands import dispatch

SUBCOMMANDS = {
    "list": "Lists the keys of a checkpoint of any program: shapes, types, bytes.",
    "diff": "Shows what differs between two checkpoints, how far values moved, and the rows that moved most.",
    "convert": "Converts a name-based checkpoint to an object-based one, or the reverse.",
    "graph": "Draws the objects in a checkpoint and the edges between them.",
    "grow": "Writes a checkpoint for a longer vocabulary: rows and slots are matched by token, new rows filled.",
}

HELP = """\
usage: embexp checkpoint COMMAND …

commands
{commands}

    embexp checkpoint COMMAND --help                                 Shows the help of a command.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: those after `checkpoint`.
    """
    return dispatch(
        arguments, SUBCOMMANDS, modules="embexp.cli.checkpoint_", help_text=HELP, context="embexp checkpoint: "
    )
