"""`embexp recommend`: the best items for each user, by a finished run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

from embexp.cli import finished
from embexp.cli.arguments import Parser, add_allow_code, run_directory
from embexp.cli.commands import DONE
from embexp.cli.finished import load_finished
from embexp.errors import CommandLineError

USAGE = "embexp recommend DIR [--users FILE] [--count N] [--out FILE] [--allow-code MODULE:FUNCTION]"

HELP = f"""\
usage: {USAGE}

Writes the best items for each user, by a run of task recommendation, without items that the user has seen in the run's
data. Writes CSV with the columns `user`, `rank`, `item` and `score`, the best item of each user first.

    --users FILE  Names a text file with a user per line (default: all users of the training split).
    --count N     Sets the number of items for each user (default: 10).
    --out FILE    Names the file to write (default: standard output).
    --allow-code MODULE:FUNCTION   Allows a function that the run's record names, such as that of its model.
"""

Lists = Mapping[str, Sequence[tuple[str, float]]]
Recommender = Callable[[str, Sequence[str] | None, int], Lists]
"""Computes lists of items and scores from the directory of a run, users or None, and a number of items."""


def main(arguments: Sequence[str], *, recommender: Recommender | None = None) -> int:
    """Runs the command; `recommender` recommends for a run; None: `Run.recommend`."""
    parser = Parser("recommend", USAGE, HELP)
    parser.add_argument("directory", nargs="?")
    parser.add_argument("--users")
    parser.add_argument("--count", default="10")
    parser.add_argument("--out")
    add_allow_code(parser)
    options = parser.parse(arguments)
    if options is None:
        return DONE
    directory = run_directory(parser, options.directory)
    if not options.count.isdecimal() or not int(options.count):
        raise CommandLineError(f"--count {options.count}: it must be a whole number of at least 1")
    finished.check_out(options.out, "items.csv")
    users = None if options.users is None else _users(Path(options.users))
    recommender = recommender or partial(_recommend, allow_code=options.allow_code)
    rows = [
        (user, rank, item, f"{score:.7g}")
        for user, items in recommender(directory, users, int(options.count)).items()
        for rank, (item, score) in enumerate(items, 1)
    ]
    finished.write_csv(options.out, ["user", "rank", "item", "score"], rows)
    return DONE


def _users(file: Path) -> list[str]:
    """The lines of a file.

    Raises:
        CommandLineError: it can't be read, or has no line.
    """
    try:
        users = [line for line in file.read_text("utf-8").splitlines() if line]
    except (OSError, UnicodeError) as error:
        raise CommandLineError(f"--users {file}: it can't be read: {error}") from None
    if not users:
        raise CommandLineError(f"--users {file}: it holds no user; write one per line")
    return users


def _recommend(directory: str, users: Sequence[str] | None, count: int, *, allow_code: Sequence[str]) -> Lists:
    return load_finished(directory, "recommend", allow_code=allow_code).recommend(users, count)
