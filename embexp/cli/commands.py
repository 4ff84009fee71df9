"""Which command is asked for, and how its errors reach the user."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from collections.abc import Sequence

from embexp.errors import CommandLineError, EmbexpError, UsageError

DONE, FAILED, MISUSED = 0, 1, 2
"""Exit status: the work is done; it failed; the config or the command line is wrong."""

COMMANDS = {
    "run": "run an experiment, or sweep over several (-m)",
    "plan": "what would happen: tables with their bytes, inert settings, the jobs of a sweep",
    "evaluate": "metrics of a finished run, on its own or on other data",
    "predict": "predictions of a finished run for a file",
    "checkpoint": "grow a checkpoint to a longer vocabulary",
    "vectors": "look into files of pretrained vectors, convert them, find the rows near a token",
}

HELP = """\
embexp: experiments on embedding tables in TensorFlow, described in YAML.

usage: embexp COMMAND …

commands
{commands}

    embexp run                                                       a first experiment, needs no files
    embexp run experiment=movielens data.path=ml-100k                another one
    embexp run -m optimizer=adagrad,adam seed=0,1                    all four
    embexp plan experiment=movielens data.path=ml-100k               what would that take?
    embexp COMMAND --help                                            more

Without a command the words go to `run`: embexp experiment=movielens data.path=ml-100k
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status.

    Args:
        arguments: the words after the program's name; None: those of this process.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return _dispatch(words)
    except UsageError as error:
        print(f"embexp: {error}", file=sys.stderr)
        return MISUSED
    except EmbexpError as error:
        print(f"embexp: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print("\nembexp: interrupted", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        # Whoever read the output has gone; Python would complain once more when it flushes at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED


def _dispatch(words: list[str]) -> int:
    first = words[0] if words else "--help"
    if first in ("--help", "-h", "help"):
        width = max(map(len, COMMANDS))
        print(HELP.format(commands="\n".join(f"    {name:{width}}  {what}" for name, what in COMMANDS.items())), end="")
        return DONE
    if first in ("--version", "-V"):
        from importlib.metadata import version

        print(f"embexp {version('embexp')}")
        return DONE
    if first not in COMMANDS:
        if "=" not in first and not first.startswith(("-", "~")):
            near = difflib.get_close_matches(first, COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(COMMANDS)}"
            raise CommandLineError(f"there is no command {first!r}\n    {hint}")
        words = ["run", *words]
    module = importlib.import_module(f"embexp.cli.{words[0]}")
    return int(module.main(words[1:]))
