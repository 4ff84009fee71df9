"""`embexp sweep`: commands for a sweep that was started."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from embexp.cli.arguments import Parser, add_allow_code
from embexp.cli.commands import DONE, FAILED, dispatch
from embexp.system.printable import print

SUBCOMMANDS = {
    "cancel": "Cancels the jobs of a sweep that are queued or running, here or on a cluster.",
    "add": "Adds jobs with other values to a sweep, and runs them.",
    "rerun": "Runs jobs of a sweep again, from their start.",
    "forget": "Takes jobs out of a sweep, its tables, and what its search knows.",
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
_REFUSED = """\
Nothing is changed if the sweep is in use by another process, or if anything is wrong with the arguments. If the command
is killed, `embexp resume DIR` runs what is missing, or the command can be repeated.
"""
_CODE = """\
    --allow-code MODULE:FUNCTION             Allows code that the folder names, such as your own model; may be repeated.
"""
ADD_HELP = f"""\
usage: embexp sweep add DIR OVERRIDES [--later] [--allow-code MODULE:FUNCTION]

Adds jobs to a sweep over given values. Each override takes the place of the one with the same key in the command that
began the sweep; other settings are as in that command. Jobs that the sweep has already are not run again. If files of
the config, data or code have changed since, nothing is added. A search gets more trials from
`embexp resume DIR hydra.sweeper.n_trials=N`.

    --later                                  Only plans the jobs, for `embexp resume DIR`.
{_CODE}
    embexp sweep add outputs/models seed=3,4
    embexp sweep add outputs/models model=dlrm optimizer.learning_rate=0.1,0.3 --later

{_REFUSED}
The exit status is 0 on success, 1 if a job failed, and 2 if the command line or a config is invalid.
"""
RERUN_HELP = f"""\
usage: embexp sweep rerun DIR JOB… [--later] [--allow-code MODULE:FUNCTION]

Runs jobs of a sweep again, from their start, whatever their state. JOB is a number in the table. What is in their
folders is moved to DIR/.earlier, which reports leave out. Copies of a job show its new result, and a search gets its
new value.

    --later                                  Only plans the jobs, for `embexp resume DIR`.
{_CODE}
    embexp sweep rerun outputs/models 2 5

{_REFUSED}
The exit status is 0 on success, 1 if a job failed, and 2 if the command line is invalid.
"""
FORGET_HELP = f"""\
usage: embexp sweep forget DIR JOB… [--delete] [--allow-code MODULE:FUNCTION]

Takes jobs out of a sweep: out of its ledger, its tables and its page. JOB is a number in the table. The number is not
used again. A job of which others are copies goes only together with them, and so do the seeds of a trial.

The sampler of a search no longer knows the trials of these jobs. It counts only the others towards
hydra.sweeper.n_trials, so that `embexp resume DIR` tries as many more.

The folders of the jobs stay where they are; reports of DIR leave them out. `embexp resume DIR` does not run the jobs.
The command that began the sweep asks for them again, as new jobs.

    --delete                                 Removes the folders of the jobs, too.
{_CODE}
    embexp sweep forget outputs/models 3

{_REFUSED}
The exit status is 0 on success, and 2 if the command line is invalid.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    return dispatch(arguments, SUBCOMMANDS, lambda name: subcommand(name)[0], help_text=HELP, context="embexp sweep: ")


def subcommand(name: str) -> tuple[Callable[[Sequence[str]], int], str]:
    """What runs a subcommand, and its help."""
    return {
        "cancel": (cancel, CANCEL_HELP),
        "add": (add, ADD_HELP),
        "rerun": (rerun, RERUN_HELP),
        "forget": (forget, FORGET_HELP),
    }[name]


def cancel(arguments: Sequence[str]) -> int:
    """Runs the command."""
    options = _parser("cancel", CANCEL_HELP).parse(arguments)
    from embexp.sweeps import watching

    return DONE if watching.cancel(Path(options.directory), partial(print, flush=True)) else FAILED


def add(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = _parser("add", ADD_HELP, "--later", code=True)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse(
        arguments, lambda given: [] if given.overrides else ["add which jobs? Give overrides: seed=3,4"]
    )
    from embexp.sweeps import changes

    code = {"later": options.later, "allow_code": options.allow_code}
    return DONE if changes.add(Path(options.directory), options.overrides, **code) else FAILED


def rerun(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = _parser("rerun", RERUN_HELP, "--later", code=True)
    parser.add_argument("jobs", nargs="*")
    options = parser.parse(arguments, _faults_of_jobs)
    from embexp.sweeps import changes

    numbers, code = [int(job) for job in options.jobs], {"later": options.later, "allow_code": options.allow_code}
    return DONE if changes.rerun(Path(options.directory), numbers, **code) else FAILED


def forget(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = _parser("forget", FORGET_HELP, "--delete", code=True)
    parser.add_argument("jobs", nargs="*")
    options = parser.parse(arguments, _faults_of_jobs)
    from embexp.sweeps import changes

    numbers = [int(job) for job in options.jobs]
    changes.forget(Path(options.directory), numbers, delete=options.delete, allow_code=options.allow_code)
    return DONE


def _parser(name: str, help_text: str, *switches: str, code: bool = False) -> Parser:
    parser = Parser(f"sweep {name}", help_text)
    parser.needs("directory", "which sweep? Give its directory")
    parser.switches(*switches)
    if code:
        add_allow_code(parser)
    return parser


def _faults_of_jobs(options: argparse.Namespace) -> Iterator[str]:
    if not options.jobs:
        yield "which jobs? Give their numbers in the table"
    for job in options.jobs:
        if not (job.isascii() and job.isdecimal() and len(job) < 10):
            yield f"a job is its number in the table, and this is {job!r}"
