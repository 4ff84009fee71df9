"""`embexp recommend`: the best items for each user, by a finished run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from embexp.cli.arguments import WHICH_RUN, Parser, add_allow_code
from embexp.cli.commands import DONE
from embexp.cli.finished import check_out, load_finished, write_csv
from embexp.errors import CommandLineError

HELP = """\
usage: embexp recommend DIR [--users FILE] [--count N] [--out FILE] [--allow-code MODULE:FUNCTION]

Writes the best items for each user, by a run of task recommendation, without items that the user has seen in the run's
data. Writes CSV with the columns `user`, `rank`, `item` and `score`, the best item of each user first.

    --users FILE  Names a text file with a user per line (default: all users of the training split).
    --count N     Sets the number of items for each user (default: 10).
    --out FILE    Names the file to write (default: standard output).
    --allow-code MODULE:FUNCTION   Allows a function that the run's record names, such as that of its model.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser("recommend", HELP)
    parser.needs("directory", WHICH_RUN)
    parser.values("--users", "--out")
    parser.add_argument("--count", default="10")
    add_allow_code(parser)
    options = parser.parse(arguments)
    if not options.count.isdecimal() or not int(options.count):
        raise CommandLineError(f"--count {options.count}: it must be a whole number of at least 1")
    check_out(options.out, "items.csv")
    users = None if options.users is None else _users(Path(options.users))
    run = load_finished(options.directory, "recommend", allow_code=options.allow_code)
    rows = [
        (user, rank, item, f"{score:.7g}")
        for user, items in run.recommend(users, int(options.count)).items()
        for rank, (item, score) in enumerate(items, 1)
    ]
    write_csv(options.out, ["user", "rank", "item", "score"], rows)
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
