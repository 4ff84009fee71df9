"""Rows of CSV that a command writes, to a file or to standard output."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path

from embexp.errors import CommandLineError
from embexp.system import files, printable


def check(out: str | None, example: str) -> None:
    """Checks the value of --out.

    Args:
        out: the file to write; None: standard output.
        example: name of a file in a folder.

    Raises:
        CommandLineError: it is a folder.
    """
    if out is not None and Path(out).is_dir():
        raise CommandLineError(f"--out {out}: it is a folder; name a file, such as {out}/{example}")


def write(out: str | None, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Writes a header and rows, once all rows are known.

    Args:
        out: the file to write; None: standard output.
        header: names of the columns.
        rows: their values.
    """
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(header)
    table.writerows(rows)
    if out is None:
        printable.write_data(text.getvalue())
    else:
        files.write_text(Path(out), text.getvalue())
