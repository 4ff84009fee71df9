"""What commands on finished runs share: loading a run, and writing CSV."""

from __future__ import annotations

import csv
import io
import json
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from embexp.cli.commands import warn
from embexp.errors import CommandLineError, DataError
from embexp.system import files, printable
from embexp.system.printable import print

if TYPE_CHECKING:
    from embexp.runs.finished import Run


def load_finished(
    directory: str, command: str, *rest: str, data: str | None = None, allow_code: Sequence[str] = ()
) -> Run:
    """Loads the run in a directory, to use its model; takes and raises what `check_finished` does.

    Raises:
        CommandLineError: there is no such file or folder of data.
    """
    from embexp.system import environment

    check_finished(directory, command, *rest, allow_code=allow_code)
    if data is not None and not Path(data).exists():
        raise CommandLineError(f"--data {data}: there is no such file or folder")
    environment.load_tensorflow()
    from embexp.runs.finished import load_run

    run = load_run(directory, allow_code=allow_code)
    if run.summary["status"] == "unfinished":
        print(
            f"{directory} has not ended: this is its checkpoint after {run.summary['steps']:,} steps", file=sys.stderr
        )
    return run


def check_finished(directory: str, command: str, *rest: str, allow_code: Sequence[str] | None = None) -> None:
    """Checks that a directory is that of a run, and the code that it names. Loads no TensorFlow, which takes seconds.

    Args:
        command: name of the command, for the error message about the directory of a study.
        *rest: the command's arguments after the directory.
        allow_code: functions that the recorded spec may run; None: the command runs none.

    Raises:
        NotARunError: the directory holds no run.
        RunError: another process writes it.
        UsageError: the spec names code that isn't allowed.
        DataError: a file that the command reads is not what the run wrote. Others are a warning.
    """
    from embexp.errors import NotARunError
    from embexp.records import allowed_code
    from embexp.records.folder import RunFolder

    folder = RunFolder(Path(directory))
    with folder.reading():  # what is being written is refused now, and not after the import of TensorFlow
        folder.check(folder.spec, folder.summary, folder.vocabularies, folder.numbers, folder.coverage, folder.code)
        if runs := folder.runs_of_study():
            lines = (shlex.join(["embexp", command, str(run.path), *rest]) for run in runs.values())
            message = f"{folder.path} is the directory of a study; name one of its runs:"
            raise NotARunError("\n    ".join([message, *lines]))
        spec = folder.read_spec()
    if allow_code is not None:
        allowed_code.check(spec, allow_code, record=folder.spec)
    _warn_of_changes(folder.path)


def warn_of_checkpoint(*paths: Path) -> None:
    """Warns of a file of a checkpoint that is not what the run wrote, in whose folder it is."""
    from embexp.records.folder import check_checkpoint

    try:
        check_checkpoint(*paths)
    except DataError as error:
        warn(str(error))


def _warn_of_changes(directory: Path) -> None:
    """Warns of changed files that the command does not read; of other checkpoints, only the sizes are compared."""
    from embexp.records import inventory
    from embexp.reports.jobs import noted_inventory, record_changes

    if lost := inventory.losses(record_changes(directory, noted_inventory(directory), quick=True)):
        command = shlex.join(["embexp", "verify", str(directory)])
        words = inventory.sentence(lost)
        warn(f"the record of {directory} is not as the run wrote it ({words}): {command}")


def check_out(out: str | None, example: str) -> None:
    """Checks the value of --out.

    Raises:
        CommandLineError: it is a folder.
    """
    if out is not None and Path(out).is_dir():
        raise CommandLineError(f"--out {out}: it is a folder; name a file, such as {out}/{example}")


def write_csv(out: str | None, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes a header and rows, once all rows are known; without a file to the standard output."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
    if out is None:
        printable.write_data(text.getvalue())
    else:
        files.write_text(Path(out), text.getvalue())


def write_json(content: object) -> None:
    """Writes a value to the standard output as one line of JSON."""
    printable.write_data(json.dumps(content, ensure_ascii=False) + "\n")
