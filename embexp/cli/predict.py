"""`embexp predict`: predictions of a finished run for a file."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.cli.finished import check_data, check_finished, load_finished
from embexp.errors import CommandLineError
from embexp.system import files

USAGE = "embexp predict DIR --data FILE [--out FILE]"

HELP = f"""\
usage: {USAGE}

Predicts a rating, the probability of a click or the name of a class for each example of a file in the format of the
run's data (labels may be missing). Writes CSV with one column, `prediction`, in the order of the file.

    --data FILE   Names the file of the examples.
    --out FILE    Names the file to write (default: standard output).
"""

Predictor = Callable[[str, str], Iterable[float | str]]
"""Computes predictions from the directory of a run and a file."""


def main(arguments: Sequence[str], *, predictor: Predictor | None = None) -> int:
    """Runs the command.

    Args:
        arguments: those after `predict`.
        predictor: predicts for a run; None: `Run.predict`.
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
        missing = "which run? Give its directory" if options.directory is None else "which data? Give --data FILE"
        raise CommandLineError(f"embexp predict: {missing}\n    usage: {USAGE}")
    if options.out is not None and Path(options.out).is_dir():
        raise CommandLineError(
            f"--out {options.out}: it is a folder; name a file, such as {options.out}/predictions.csv"
        )
    predictions = (predictor or _predict)(options.directory, options.data)
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")  # class names may contain commas
    rows.writerow(["prediction"])
    rows.writerows([value if isinstance(value, str) else f"{value:.7g}"] for value in predictions)
    if options.out is None:
        sys.stdout.write(text.getvalue())
    else:
        files.write_text(Path(options.out), text.getvalue())
    return DONE


def _predict(directory: str, file: str) -> Iterable[float | str]:
    check_finished(directory, "predict", "--data", file)
    check_data(file)
    predictions: list[float | str] = load_finished(directory, "predict", "--data", file).predict(file).tolist()
    return predictions
