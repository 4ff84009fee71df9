"""`embexp predict`: predictions of a finished run for a file."""

from __future__ import annotations

from collections.abc import Sequence

from embexp.cli.arguments import WHICH_RUN, Parser, add_allow_code
from embexp.cli.commands import DONE
from embexp.cli.finished import check_out, load_finished, write_csv

HELP = """\
usage: embexp predict DIR --data FILE [--out FILE] [--allow-code MODULE:FUNCTION]

Predicts a number, the probability of label 1 or the name of a class for each example of a file in the format of the
run's data (labels may be missing). Writes CSV with one column, `prediction`, in the order of the file.

    --data FILE   Names the file of the examples.
    --out FILE    Names the file to write (default: standard output).
    --allow-code MODULE:FUNCTION   Allows a function that the run's record names, such as that of its model.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("predict", HELP)
    parser.needs("directory", WHICH_RUN)
    parser.needs("--data", "which data? Give --data FILE")
    parser.values("--out")
    add_allow_code(parser)
    options = parser.parse(arguments)
    check_out(options.out, "predictions.csv")
    rest = ["--data", options.data]
    run = load_finished(options.directory, "predict", *rest, data=options.data, allow_code=options.allow_code)
    predictions = run.predict(options.data).tolist()
    texts = (value if isinstance(value, str) else f"{value:.7g}" for value in predictions)
    write_csv(options.out, ["prediction"], ([text] for text in texts))
    return DONE
