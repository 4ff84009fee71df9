"""`embexp recommend`: lists of items for users, by a finished run."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace

from embexp.cli.arguments import Parser
from embexp.cli.commands import DONE, warn
from embexp.cli.commands.finished import load_finished, output_of, stages_of_long_work, write_csv
from embexp.errors import CommandLineError, plural

HELP = """\
usage: embexp recommend DIR [--user NAME] [--users FILE | --items A,B,… | --history FILE] [--count N] [--include-seen]
                        [--content FILE [--only-new]] [--out FILE] [--force] [--safe] [--json]
                        [--allow-code MODULE:FUNCTION]

Recommends the best items for each user, from a finished run of task recommendation. Items that the user has seen in the
run's data are left out. Writes CSV with the columns `user`, `rank`, `item` and `score`, the best item of each user
first.

    --user NAME     Recommends for this user. You can repeat it (default: all users of the training split).
    --users FILE    Recommends for the users in a text file, one per line.
    --items A,B,…   Recommends for a new user with these items as the only history, without training. The user is called
                    `new` in the output.
    --history FILE  Recommends for all users of a file with the user and item columns of the run's data. Only the items
                    in the file count as history, even for users that the run knows.
    --count N       Sets the number of items for each user (default: 10).
    --include-seen  Includes items that the user has seen in the run's data or that you gave as history.
    --content FILE  Reads content vectors of items, with their ids. Items that the run does not know are recommended,
                    too: their vectors are predicted from their content, which study=new_items evaluates.
    --only-new      Recommends only items that the run does not know.
    --out FILE      Writes to this file (default: -, standard output).
    --force         Replaces a file that `embexp recommend` did not write, or that was changed since.
    --safe          Makes cells safe for spreadsheets, as `embexp predict --safe` does.
    --json          Writes one JSON object instead. It maps each user to a list of objects with `item` and `score`.
    --allow-code MODULE:FUNCTION   Allows a function that the run's record names, such as that of its model.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the command."""
    parser = Parser.of_run("recommend", HELP)
    parser.values("--users", "--items", "--history", "--out", "--content")
    parser.switches("--include-seen", "--only-new", "--json", "--force", "--safe")
    parser.add_argument("--user", action="append", default=[])
    parser.add_argument("--count", default="10")
    options = parser.parse(arguments)
    if not options.count.isdecimal() or not int(options.count):
        raise CommandLineError(f"--count {options.count}: it must be a whole number of at least 1")
    if options.content is None and options.only_new:
        raise CommandLineError("--only-new: new items can be listed only by their content: add --content FILE")
    if options.content is not None and not Path(options.content).exists():
        raise CommandLineError(f"--content {options.content}: there is no such file or folder")
    out = output_of(options, "recommend", options.users, options.history, options.content)
    users = options.user + ([] if options.users is None else _users(Path(options.users)))
    given = {"--user or --users": users, "--items": options.items, "--history": options.history}
    if len(named := [name for name, value in given.items() if value]) > 1:
        raise CommandLineError(f"{' and '.join(named)}: these name different users: give only one of them")
    if options.history is not None and not Path(options.history).exists():
        raise CommandLineError(f"--history {options.history}: there is no such file or folder")
    histories: dict[str, list[str]] | None = (
        None if options.items is None else {"new": next(csv.reader([options.items]), [])}
    )
    run = load_finished(options.directory, "recommend", own_data=True, allow_code=options.allow_code)
    unknown: dict[str, int] = {}
    with stages_of_long_work() as progress:
        if options.history is not None:
            from embexp.fields.recommendation import recommending

            histories = recommending.read_histories(run, options.history)
        found = run.recommend(
            users or None,
            int(options.count),
            histories=histories,
            unknown=unknown,
            include_seen=options.include_seen,
            content=options.content,
            only_new=options.only_new,
            progress=progress,
        )
    _warn_of_histories(histories or {}, unknown)
    if options.json:
        lists = {user: [{"item": item, "score": score} for item, score in items] for user, items in found.items()}
        out.write(json.dumps(lists, ensure_ascii=False) + "\n")
        return DONE
    rows = [
        (user, rank, item, f"{score:.7g}")
        for user, items in found.items()
        for rank, (item, score) in enumerate(items, 1)
    ]
    write_csv(out, ["user", "rank", "item", "score"], rows, safe=options.safe)
    return DONE


def _warn_of_histories(histories: Mapping[str, Sequence[str]], unknown: Mapping[str, int]) -> None:
    """Warns about unknown items, and about users who only have unknown items."""
    from embexp.specs.base import summarize_names

    if unknown:
        items = summarize_names([repr(item) for item in unknown])
        warn(f"ignored {plural(len(unknown), 'item')} that the run's catalogue lacks: {items}")
    if nobody := [repr(user) for user, given in histories.items() if all(item in unknown for item in given)]:
        warn(
            f"no list for {plural(len(nobody), 'user')} without any item that the run knows: {summarize_names(nobody)}"
        )


def _users(file: Path) -> list[str]:
    """The lines of a file.

    Raises:
        CommandLineError: the file can't be read, or is empty.
    """
    try:
        users = [line for line in file.read_text("utf-8").splitlines() if line]
    except (OSError, UnicodeError) as error:
        raise CommandLineError(f"--users {file}: it can't be read: {error}") from None
    if not users:
        raise CommandLineError(f"--users {file}: it holds no user; write one per line")
    return users


COMMAND = SimpleNamespace(main=main, HELP=HELP)
