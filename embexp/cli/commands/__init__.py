"""The commands of `embexp`, and how their errors reach the user."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TextIO

from embexp.errors import Code, CommandLineError, ConfigError, EmbexpError, Fault, UsageError
from embexp.specs.fields import fields, imported, path_of, tell_by
from embexp.system import environment, interruption, machine_faults, printable
from embexp.system.printable import print as print

if TYPE_CHECKING:
    from embexp.runs.run import RunResult

DONE, FAILED, MISUSED = 0, 1, 2
"""Exit status: success; failure; the config or the command line is invalid."""
INTERRUPTED = "interrupted"
_EXPLAINED = 3
"""Keys of an error whose explanations are named."""

COMMANDS = {
    "run": "Runs an experiment, or a sweep over several (-m).",
    "plan": "Shows what a run would do: the size of each table, settings without effect, the jobs of a sweep.",
    "continue": "Continues training a finished run on new data: new tokens get rows, existing rows keep their tokens.",
    "new": "Inspects a data file and writes a first experiment for it.",
    "resume": "Completes an interrupted run or sweep, or trains a finished run longer.",
    "sweep": "Cancels, adds, repeats and removes the jobs of a sweep, on this machine or on a cluster.",
    "report": "Compares runs and sweeps in a table and on an HTML page.",
    "verify": "Repeats a finished run from its record and compares the results bit for bit.",
    "check": "Checks claimed results, of finished runs or of experiments that it runs first.",
    "diff": "Shows what differs between two runs: specs, environments, metrics, table rows.",
    "compare": "Compares finished runs on the same examples, with confidence intervals and significance tests.",
    "evaluate": "Evaluates a finished run on its own data or on another file.",
    "predict": "Writes a finished run's predictions for a file.",
    **{name: does for field in fields() for name, (does, _) in field.commands.items()},
    "export": "Exports a finished run for other programs, as a SavedModel or as files of vectors.",
    "checkpoint": "Lists, compares, draws and converts checkpoints, and extends them to a larger vocabulary.",
    "vectors": "Inspects, converts, evaluates and compares vectors, and finds the nearest neighbors of a token.",
    "fetch": "Lists public data sets and downloads them by name.",
    "keys": "Explains the keys of the config: type, default, allowed values, meaning.",
    "schema": "Prints a JSON schema of the YAML files, for editors.",
    "completion": "Prints a completion script for your shell.",
}
_OF_FINISHED_RUNS = ("evaluate", "predict")
_MODULES = {"continue": "continuing"}
"""Modules of commands whose names are words of Python."""
_COMPOSING = ("run", "plan")
"""Commands that compose a config before they begin to work."""

HELP = """\
embexp: experiments on embedding tables in TensorFlow, described in YAML.

usage: embexp COMMAND …

commands
{commands}

    embexp run                                                       Runs the default experiment, which needs no files.
    embexp run experiment=movielens data.fetch=ml-100k               Downloads MovieLens and runs an experiment on it.
    embexp run -m optimizer=adagrad,adam seed=0,1                    Sweeps over all four combinations.
    embexp plan experiment=movielens data.fetch=ml-100k              Shows what that run would do.
    embexp COMMAND --help                                            Shows the help of a command.

The default command is `run`: embexp experiment=movielens data.fetch=ml-100k
"""


class HelpShown(Exception):  # noqa: N818 — it is no error
    """The command line asked for the help, which has been printed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command and returns the exit status.

    Args:
        arguments: of the command line, after the program's name; None: those of this process.
    """
    printable.fit_streams()
    try:
        with interruption.taken_over():
            status = _report_errors(list(sys.argv[1:] if arguments is None else arguments))
            return interruption.exit_status() if interruption.received() else status
    except KeyboardInterrupt:  # while an error was reported
        return interruption.exit_status()


def process(arguments: Sequence[str] | None = None) -> int:
    """Runs a command as the one thing that this process does; takes and returns what `main` does."""
    environment.postpone_collecting()
    status = main(arguments)
    environment.end_collecting()
    for number in interruption.NUMBERS:  # what is left is Python's own end, of which a signal would print a trace
        signal.signal(number, signal.SIG_DFL)
    return status


def _report_errors(arguments: list[str]) -> int:
    """Runs a command, reports its errors, and returns the exit status."""
    try:
        status = _dispatch(arguments)
        sys.stdout.flush()  # not at the end of the process, where Python would print a trace
        return status
    except HelpShown:
        return DONE
    except ConfigError as error:
        return _say(f"{error}{_explained(error.faults)}", MISUSED)
    except UsageError as error:
        return _say(str(error), MISUSED)
    except EmbexpError as error:
        return _say(str(error), FAILED)
    except KeyboardInterrupt as error:
        return _say(str(error) or INTERRUPTED, FAILED, before="\n")
    except BrokenPipeError:  # the reader has closed the pipe
        _drop(sys.stdout)
        return FAILED
    except Exception as error:
        if isinstance(error, OSError) and error.filename is None and (why := _output_fault()) is not None:
            _drop(sys.stdout)
            return _say(f"the standard output can't be written: {why}", FAILED)
        if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:  # only a command line or a config has one
            return _say(str(machine_faults.sentence(error)), MISUSED)
        if interruption.received() and _is_interruption(error):
            return _say(INTERRUPTED, FAILED, before="\n")  # the status is that of the signal
        if (sentence := machine_faults.sentence(error)) is None:
            raise
        return _say(sentence, FAILED)


def _output_fault() -> str | None:
    """Why the standard output can't be written, as where it is a file on a full disk; None: it can.

    What could not be written before may be lost already, so an empty line is tried.
    """
    try:
        print(flush=True)
    except OSError as error:
        return error.strerror or str(error)
    return None


def _drop(stream: TextIO) -> None:
    """Leaves out what a stream has not written yet: Python would report the error again when it flushes at exit."""
    with contextlib.suppress(OSError):  # a stream without a number, in a notebook
        printable.send_nowhere(stream.fileno())


def _explained(faults: Sequence[Fault]) -> str:
    """A line with the commands that explain the keys of some faults; of an unknown key, those next to it."""
    from embexp.specs.run import RunSpec  # which the fault has imported

    known = RunSpec.model_fields
    paths = [
        fault.path.rpartition(".")[0] if fault.code in (Code.UNKNOWN_KEY, Code.KEY_OF_ANOTHER_KIND) else fault.path
        for fault in faults
    ]
    commands = dict.fromkeys(f"`embexp keys {path}`" for path in paths if path.partition(".")[0] in known)
    return f"\n  explained by {', '.join([*commands][:_EXPLAINED])}" if commands else ""


def _say(sentence: str, status: int, *, before: str = "") -> int:
    """Reports to the user why the command ends; returns the status."""
    try:
        print(f"{before}embexp: {printable.shortened(sentence)}", file=sys.stderr)
    except OSError:  # the terminal, or the disk of a file, may be what has failed
        _drop(sys.stderr)
    return status


def exit_status(result: RunResult) -> int:
    """The exit status of a command that ran an experiment."""
    return FAILED if result.status in ("interrupted", "failed") else DONE


def warn(sentence: str) -> None:
    """Warns the user of what a command goes on without."""
    print(f"warning: {sentence}", file=sys.stderr, flush=True)


def _is_interruption(error: BaseException | None) -> bool:
    """Whether an error is what some library has made of an `Interrupted`: its context, or a word of its text."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt) or interruption.Interrupted.__name__ in str(error):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def dispatch(
    arguments: Sequence[str],
    commands: Mapping[str, str],
    main_of: Callable[[str], Callable[[Sequence[str]], int]],
    *,
    help_text: str,
    context: str = "",
) -> int:
    """Runs the command that the first argument names, or shows the help.

    Args:
        main_of: returns what runs the command of a name; it imports the module of no other.
        help_text: with `{commands}` as the placeholder of the list of commands.

    Raises:
        CommandLineError: there is no such command.
    """
    name = arguments[0] if arguments else "--help"
    if name in ("--help", "-h", "help"):
        width = max(map(len, commands))
        listing = "\n".join(f"    {each:{width}}  {does}" for each, does in commands.items())
        print(help_text.format(commands=listing), end="")
        return DONE
    if name not in commands:
        import difflib  # which a command that exists does not need

        near = difflib.get_close_matches(name, commands, n=1)
        hint = f"did you mean {near[0]}?" if near else f"the commands are {', '.join(commands)}"
        raise CommandLineError(f"{context}there is no command {name!r}\n    {hint}")
    with interruption.leaving_at_once():  # nothing is written yet, and some packages can't be imported by halves
        main = main_of(name)
    if name not in _COMPOSING:
        environment.begin_collecting()
    return main(arguments[1:])


def _dispatch(arguments: list[str]) -> int:
    tell_by(warn)
    here = os.getcwd() if os.path.exists(".") else ""
    if other := next((each for each in [*arguments, here] if not printable.is_utf8(each)), None):
        rule = "its bytes are not UTF-8, which all records and tables are"
        raise CommandLineError(f"{other}: {rule}; rename the file or folder, or give the name of a link to it")
    first = arguments[0] if arguments else "--help"
    if first in ("--version", "-V"):
        from importlib.metadata import version

        print(f"embexp {version('embexp')}")
        return DONE
    is_override = "=" in first or (first.startswith(("-", "~")) and first not in ("--help", "-h", "--"))
    words = ["run", *arguments] if is_override else arguments
    return dispatch(words, COMMANDS, lambda name: module_of(name).main, help_text=HELP)


def module_of(command: str) -> Any:
    """The module of a command, which is imported; of several commands in a module, what stands for one."""
    if command in _OF_FINISHED_RUNS:
        return importlib.import_module("embexp.cli.commands.finished").COMMANDS[command]
    if (own := path_of("commands", command)) is not None:
        return imported(own[1])
    return importlib.import_module(f"embexp.cli.commands.{_MODULES.get(command, command)}")
