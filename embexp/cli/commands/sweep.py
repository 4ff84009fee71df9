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
    "cancel": "Cancels the queued and running jobs of a sweep, on this machine or on a cluster.",
    "add": "Adds jobs with other values to a sweep and runs them.",
    "rerun": "Runs jobs of a sweep again from the start.",
    "forget": "Removes jobs from a sweep, its tables and the history of its search.",
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

Cancels the queued and running jobs of a sweep: processes on this machine, and jobs that a launcher has submitted to a
cluster. Running jobs save a checkpoint first. Jobs that have not been started stay planned.

You can run it in another terminal or on another machine, even if the process that started the sweep was killed. Results
are kept, and `embexp resume DIR` continues the sweep later.

    embexp sweep cancel outputs/2026-01-31/12-00-00_sweep

The exit status is 0 if no job is queued or running any more, 1 if one still is, and 2 if the command line is invalid.
"""
_REFUSED = """\
If another process uses the sweep, or if an argument is wrong, nothing is changed. If the command is killed, repeat it,
or run `embexp resume DIR` to run the missing jobs.
"""
_CODE = """\
    --allow-code MODULE:FUNCTION             Allows code that the folder names, such as your own model. You can repeat
                                             it.
"""
ADD_HELP = f"""\
usage: embexp sweep add DIR OVERRIDES [--later] [--allow-code MODULE:FUNCTION]

Adds jobs to a sweep over listed values. Each override replaces the one with the same key in the command that started
the sweep; all other settings stay the same. Jobs that the sweep already has are not run again. If the config, data or
code has changed since, nothing is added. To add trials to a search, use `embexp resume DIR
hydra.sweeper.n_trials=N`.

    --later                                  Only plans the jobs. `embexp resume DIR` runs them.
{_CODE}
    embexp sweep add outputs/models seed=3,4
    embexp sweep add outputs/models model=dlrm optimizer.learning_rate=0.1,0.3 --later

{_REFUSED}
The exit status is 0 on success, 1 if a job failed, and 2 if the command line or a config is invalid.
"""
RERUN_HELP = f"""\
usage: embexp sweep rerun DIR JOB… [--later] [--allow-code MODULE:FUNCTION]

Runs jobs of a sweep again from the start, whatever their state. JOB is the job's number in the table. Existing files of
these jobs are moved to DIR/.earlier, which reports ignore. Duplicates of a job get its new result, and a search uses
the new value.

    --later                                  Only plans the jobs. `embexp resume DIR` runs them.
{_CODE}
    embexp sweep rerun outputs/models 2 5

{_REFUSED}
The exit status is 0 on success, 1 if a job failed, and 2 if the command line is invalid.
"""
FORGET_HELP = f"""\
usage: embexp sweep forget DIR JOB… [--delete] [--allow-code MODULE:FUNCTION]

Removes jobs from a sweep: from its ledger, its tables and its page. JOB is the job's number in the table, which is not
used again. If a job has duplicates, remove them together. The same is true of the seeds of a trial.

The sampler of a search forgets the trials of these jobs. They no longer count towards hydra.sweeper.n_trials, so
`embexp resume DIR` runs as many new trials.

The folders of the jobs stay where they are, but reports of DIR ignore them. `embexp resume DIR` does not run the jobs.
If you repeat the command that started the sweep, they are planned again as new jobs.

    --delete                                 Also deletes the folders of the jobs.
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
