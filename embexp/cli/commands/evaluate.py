"""`embexp evaluate`: metrics of a finished run."""

from __future__ import annotations

import json
from collections.abc import Sequence

from embexp.cli.arguments import WHICH_RUN, Parser, add_allow_code
from embexp.cli.commands import DONE
from embexp.cli.finished import load_finished
from embexp.errors import CommandLineError
from embexp.system.printable import print

HELP = """\
usage: embexp evaluate DIR [--data FILE] [--split SPLIT] [--json] [--allow-code MODULE:FUNCTION]

Evaluates a finished run on a split of its own data, or on another file of the same format (with labels).

    --data FILE     Evaluates on all of this file, with the run's vocabularies.
    --split SPLIT   Evaluates on a split of the run's own data: test (the default), validation or train; for a graph
                    with new entities also test_new and test_known.
    --json          Prints one JSON object instead of a table.
    --allow-code MODULE:FUNCTION   Allows a function that the run's record names, such as that of its model.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("evaluate", HELP)
    parser.needs("directory", WHICH_RUN)
    parser.values("--data")
    parser.add_argument("--split", choices=("test", "validation", "train", "test_new", "test_known"))
    parser.switches("--json")
    add_allow_code(parser)
    options = parser.parse(arguments)
    if options.data is not None and options.split is not None:
        raise CommandLineError("--split is for the run's own data and --data for another file: give one of them")
    data, split = options.data, options.split or "test"
    rest = ["--data", data] if data is not None else ["--split", split] if split != "test" else []
    run = load_finished(options.directory, "evaluate", *rest, data=data, allow_code=options.allow_code)
    metrics = run.evaluate(data, split=split)
    if options.json:
        print(json.dumps(dict(metrics)))
    else:
        width = max(map(len, metrics), default=0)
        for name, value in metrics.items():
            print(f"{name:{width}}  {value:.6f}")
    return DONE
