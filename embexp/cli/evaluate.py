"""`embexp evaluate`: metrics of a finished run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE
from embexp.cli.finished import check_data, check_finished, load_finished
from embexp.errors import CommandLineError

USAGE = "embexp evaluate DIR [--data FILE] [--split SPLIT] [--json]"

HELP = f"""\
usage: {USAGE}

Measures a finished run: on a split of its own data, or on another file of the same format (with labels).

    --data FILE     Evaluates on all of this file, with the run's vocabularies.
    --split SPLIT   Evaluates on a split of the run's own data: test (the default), validation or train; for a graph
                    with new entities also test_new and test_known.
    --json          Prints one JSON object instead of a table.
"""

Evaluator = Callable[[str, str | None, str], Mapping[str, float]]
"""Computes metrics from the directory of a run, a file or None, and a split."""


def main(arguments: Sequence[str], *, evaluator: Evaluator | None = None) -> int:
    """Runs the command.

    Args:
        arguments: those after `evaluate`.
        evaluator: evaluates a run; None: `Run.evaluate`.
    """
    parser = Parser("evaluate", USAGE)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--data")
    parser.add_argument("--split", choices=("test", "validation", "train", "test_new", "test_known"))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_intermixed_args(list(arguments))
    if options.help:
        print(HELP, end="")
        return DONE
    if options.directory is None:
        raise CommandLineError(f"embexp evaluate: which run? Give its directory\n    usage: {USAGE}")
    if options.data is not None and options.split is not None:
        raise CommandLineError("--split is for the run's own data and --data for another file: give one of them")
    metrics = (evaluator or _evaluate)(options.directory, options.data, options.split or "test")
    if options.json:
        print(json.dumps(dict(metrics)))
    else:
        width = max(map(len, metrics), default=0)
        for name, value in metrics.items():
            print(f"{name:{width}}  {value:.6f}")
    return DONE


def _evaluate(directory: str, file: str | None, split: str) -> Mapping[str, float]:
    rest = ["--data", file] if file is not None else ["--split", split] if split != "test" else []
    check_finished(directory, "evaluate", *rest)
    if file is not None:
        check_data(file)
    return load_finished(directory, "evaluate", *rest).evaluate(file, split=split)
