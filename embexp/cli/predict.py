"""`embexp predict`: predictions of a finished run for a file."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.cli.finished import opened
from embexp.errors import CommandLineError
from embexp.system import files

USAGE = "embexp predict DIR --data FILE [--out FILE]"

HELP = f"""\
usage: {USAGE}

A prediction for each example of a file of the same form as the run's data (labels may be missing): ratings, the
probability of a click, or the name of a class. They come as CSV with the one column `prediction`, in the order of the
file.

    --data FILE   the examples
    --out FILE    where to write; to the terminal if not given
"""

Predictor = Callable[[str, str], Iterable[float | str]]
"""From the directory of a run and a file to predictions."""


def main(arguments: Sequence[str], *, predictor: Predictor | None = None) -> int:
    """Runs the command.

    Args:
        arguments: the words after `predict`.
        predictor: does the work; None: the run itself.
    """
    parser = Parser("predict", USAGE)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--data")
    parser.add_argument("--out")
    options = parser.parse_intermixed_args(list(arguments))
    if options.help:
        print(HELP, end="")
        return DONE
    if options.directory is None or options.data is None:
        missing = "which run? Give its directory" if options.directory is None else "for what? Give --data FILE"
        raise CommandLineError(f"embexp predict: {missing}\n    usage: {USAGE}")
    predictions = (predictor or _predict)(options.directory, options.data)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")  # names of classes may hold commas
    rows.writerow(["prediction"])
    rows.writerows([value if isinstance(value, str) else f"{value:.7g}"] for value in predictions)
    if options.out is None:
        sys.stdout.write(text.getvalue())
    else:
        files.write_text(Path(options.out), text.getvalue())
    return DONE


def _predict(directory: str, file: str) -> Iterable[float | str]:
    predicted: list[float | str] = opened(directory, "predict", "--data", file).predict(file).tolist()
    return predicted
