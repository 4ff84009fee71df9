"""The process of one job of a sweep: `python -P -m embexp.cli.job SWEEP NUMBER`.

`--elsewhere`: the job was started by the launcher of others, and is described by a file beside the ledger.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path

from embexp.errors import EmbexpError, RunError
from embexp.reports.jobs import in_use
from embexp.sweeps import jobs, outcomes, progress, pruning
from embexp.sweeps.ledger import Ledger, LedgerJob
from embexp.system import collector, encoding, environment, interruption, machine_faults, parents
from embexp.system.printable import print
from embexp.training.listeners import Listener

_PATIENCE = 15.0
"""Seconds that a job waits for an earlier process in its directory, which was killed with its sweep, to be gone."""


def main() -> int:
    """Runs the job as it is planned; the output goes to the job's run.log."""
    sweep, number = Path(sys.argv[1]), int(sys.argv[2])
    if sys.argv[3:] == ["--elsewhere"]:
        become_job(parents.parent())  # the worker of the launcher
        return execute(sweep, jobs.submitted_job(sweep, number))
    become_job(parents.parent())
    with Ledger(sweep) as ledger:
        job = ledger.job(number)
    return execute(sweep, job)


def execute(sweep: Path, job: LedgerJob) -> int:
    """Trains a job in this process, from its newest checkpoint if it has one.

    Args:
        sweep: directory of the sweep.
        job: of the ledger, which is left as it is.

    Returns:
        The exit status of the process: 0, `jobs.BUSY` if another process works there, or another one if the job failed.
    """
    encoding.write_utf8()
    directory = jobs.made_directory(sweep, job)
    try:
        with contextlib.ExitStack() as locked:
            lock = jobs.lock(sweep, job)
            try:
                locked.enter_context(lock.exclusive(patience=_PATIENCE))
            except RunError as error:
                if in_use(directory):
                    print(error, file=sys.stderr, flush=True)
                    return jobs.BUSY
                locked.enter_context(lock.exclusive(patience=_PATIENCE))
            (directory / outcomes._FAILURE).unlink(missing_ok=True)
            _train(directory, job.spec, pruning.listeners(sweep, job.number))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        return outcomes.INTERRUPTED
    except Exception as error:
        told = str(error) if isinstance(error, EmbexpError) else machine_faults.sentence(error)
        with contextlib.suppress(OSError):  # the disk of the log may be what has failed
            if told is None:
                traceback.print_exc()
            else:
                print(f"error: {told}", file=sys.stderr, flush=True)
        outcomes.note_failure(directory, error)
        return 1
    return 0


def _train(directory: Path, spec_json: str, listeners: Sequence[Listener]) -> None:
    from embexp.records.folder import RunFolder
    from embexp.specs.run import RunSpec

    spec, folder = RunSpec.model_validate_json(spec_json), RunFolder(directory)
    if not (has_begun := folder.spec.exists()):
        folder.write_spec(spec)  # before TensorFlow is loaded: a job that is killed meanwhile can be resumed
    environment.load_tensorflow()
    from embexp.records import allowed_code
    from embexp.studies import report
    from embexp.studies import run as studies
    from embexp.system.terminal import SafeConsole
    from embexp.training.progress import ProgressLines

    collector.begin()
    console = SafeConsole(file=sys.stdout, width=160)

    def say(sentence: str) -> None:
        console.print(sentence, markup=False, highlight=False, soft_wrap=True)

    reached = progress.ProgressFile(directory)
    if has_begun:
        result = studies.resume(
            directory,
            allow_code=allowed_code.named(spec),  # the sweep has checked it
            listeners=lambda: [ProgressLines(console), reached, *listeners],
            progress=reached,
            announce=say,
            say=say,
        )
    else:
        result = studies.run(
            spec,
            directory,
            listeners=lambda: [ProgressLines(console), reached, *listeners],
            progress=reached,
            announce=say,
        )
    console.print(report.terminal_report(result.summary, directory))


def become_job(parent: int) -> None:
    """Prepares this process for a job: it ends with its parent, and signals interrupt it whatever its parent does."""
    parents.die_with_parent(parent)
    parents.be_expendable()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in interruption.NUMBERS:
        signal.signal(number, signal.SIG_DFL)  # which the server ignores
    interruption.take_over()
    signal.pthread_sigmask(signal.SIG_UNBLOCK, interruption.NUMBERS)


if __name__ == "__main__":
    collector.postpone()
    sys.exit(main())
