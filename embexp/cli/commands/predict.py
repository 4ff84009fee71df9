"""`embexp predict`: predictions of a finished run for a file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from embexp.cli import finished
from embexp.cli.arguments import Parser, add_allow_code, run_directory
from embexp.cli.commands import DONE
from embexp.cli.finished import load_finished

USAGE = "embexp predict DIR --data FILE [--out FILE] [--allow-code MODULE:FUNCTION]"

HELP = f"""\
usage: {USAGE}

Predicts a number, the probability of label 1 or the name of a class for each example of a file in the format of the
run's data (labels may be missing). Writes CSV with one column, `prediction`, in the order of the file.

    --data FILE   Names the file of the examples.
    --out FILE    Names the file to write (default: standard output).
    --allow-code MODULE:FUNCTION   Allows a function that the run's record names, such as that of its model.
"""

Predictor = Callable[[str, str], Iterable[float | str]]
"""Computes predictions from the directory of a run and a file."""


def main(arguments: Sequence[str], *, predictor: Predictor | None = None) -> int:
    """Runs the command; `predictor` predicts for a run; None: `Run.predict`."""
    parser = Parser("predict", USAGE, HELP)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--data")
    parser.add_argument("--out")
    add_allow_code(parser)
    options = parser.parse(arguments)
    if options is None:
        return DONE
    directory = run_directory(parser, options.directory)
    if options.data is None:
        raise parser.incomplete("which data? Give --data FILE")
    finished.check_out(options.out, "predictions.csv")
    predictor = predictor or partial(_predict, allow_code=options.allow_code)
    predictions = predictor(directory, options.data)
    texts = (value if isinstance(value, str) else f"{value:.7g}" for value in predictions)
    finished.write_csv(options.out, ["prediction"], ([text] for text in texts))
    return DONE


def _predict(directory: str, file: str, *, allow_code: Sequence[str]) -> Iterable[float | str]:
    run = load_finished(directory, "predict", "--data", file, data=file, allow_code=allow_code)
    predictions: list[float | str] = run.predict(file).tolist()
    return predictions
