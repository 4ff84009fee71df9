"""`embexp checkpoint`: what can be done with checkpoints."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Sequence

from embexp.cli.commands import DONE
from embexp.errors import CommandLineError

SUBCOMMANDS = {
    "grow": "a checkpoint for a longer vocabulary: rows and slots by token, new rows filled",
}

HELP = """\
usage: embexp checkpoint COMMAND …

commands
{commands}

    embexp checkpoint COMMAND --help                                 more
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command.

    Args:
        arguments: the words after `checkpoint`.
    """
    first = arguments[0] if arguments else "--help"
    if first in ("--help", "-h", "help"):
        width = max(map(len, SUBCOMMANDS))
        listed = "\n".join(f"    {name:{width}}  {what}" for name, what in SUBCOMMANDS.items())
        print(HELP.format(commands=listed), end="")
        return DONE
    if first not in SUBCOMMANDS:
        near = difflib.get_close_matches(first, SUBCOMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(SUBCOMMANDS)}"
        raise CommandLineError(f"embexp checkpoint: there is no command {first!r}\n    {hint}")
    module = importlib.import_module(f"embexp.cli.checkpoint_{first}")
    return int(module.main(arguments[1:]))
