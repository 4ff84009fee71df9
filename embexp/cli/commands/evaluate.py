"""`embexp evaluate`: metrics of a finished run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from embexp.cli.arguments import Parser, add_allow_code, run_directory
from embexp.cli.commands import DONE
from embexp.cli.finished import load_finished
from embexp.errors import CommandLineError
from embexp.system.printable import print

USAGE = "embexp evaluate DIR [--data FILE] [--split SPLIT] [--json] [--allow-code MODULE:FUNCTION]"

HELP = f"""\
usage: {USAGE}

Evaluates a finished run on a split of its own data, or on another file of the same format (with labels).

    --data FILE     Evaluates on all of this file, with the run's vocabularies.
    --split SPLIT   Evaluates on a split of the run's own data: test (the default), validation or train; for a graph
                    with new entities also test_new and test_known.
    --json          Prints one JSON object instead of a table.
    --allow-code MODULE:FUNCTION   Allows a function that the run's record names, such as that of its model.
"""

Evaluator = Callable[[str, str | None, str], Mapping[str, float]]
"""Computes metrics from the directory of a run, a file or None, and a split."""


def main(arguments: Sequence[str], *, evaluator: Evaluator | None = None) -> int:
    """Runs the command; `evaluator` evaluates a run; None: `Run.evaluate`."""
    parser = Parser("evaluate", USAGE, HELP)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--data")
    parser.add_argument("--split", choices=("test", "validation", "train", "test_new", "test_known"))
    parser.add_argument("--json", action="store_true")
    add_allow_code(parser)
    options = parser.parse(arguments)
    if options is None:
        return DONE
    directory = run_directory(parser, options.directory)
    if options.data is not None and options.split is not None:
        raise CommandLineError("--split is for the run's own data and --data for another file: give one of them")
    evaluator = evaluator or partial(_evaluate, allow_code=options.allow_code)
    metrics = evaluator(directory, options.data, options.split or "test")
    if options.json:
        print(json.dumps(dict(metrics)))
    else:
        width = max(map(len, metrics), default=0)
        for name, value in metrics.items():
            print(f"{name:{width}}  {value:.6f}")
    return DONE


def _evaluate(directory: str, file: str | None, split: str, *, allow_code: Sequence[str]) -> Mapping[str, float]:
    rest = ["--data", file] if file is not None else ["--split", split] if split != "test" else []
    return load_finished(directory, "evaluate", *rest, data=file, allow_code=allow_code).evaluate(file, split=split)
